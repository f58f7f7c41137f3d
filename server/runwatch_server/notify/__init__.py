"""Notifying people of alerts: through Alertmanager, or directly through Apprise."""
