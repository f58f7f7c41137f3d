"""What the service is told about a run, and the channel that carries reports and commands."""
