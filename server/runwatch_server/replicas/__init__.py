"""Several services on one database: which of them looks after which run, and how they notify each
other."""
