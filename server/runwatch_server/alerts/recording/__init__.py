"""Records what becomes of alerts, with the events of their history."""
