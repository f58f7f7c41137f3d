"""Makes the row of a step from what was given and measured, until it is handed on."""
