"""What a row of a step is made of: its fields, numbers given by the user, and its urgency."""
