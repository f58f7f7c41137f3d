"""Several services on one database: who looks after which run, and how each hears of the others."""
