"""Commands on their way to a trainer: ordered, approved, delivered, answered."""
