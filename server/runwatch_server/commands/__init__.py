"""Commands to trainers: ordered, approved, delivered and answered."""
