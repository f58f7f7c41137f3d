"""What the service is told about a run, and the channel that carries it there and back."""
