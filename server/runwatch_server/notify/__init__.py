"""Telling people: alerts to Alertmanager, or to receivers of our own through Apprise."""
