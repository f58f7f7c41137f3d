"""What an alert leads to: commands to the trainer, and the next rung if they did not help."""
