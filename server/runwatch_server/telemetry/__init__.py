"""Telemetry: frames from trainers are ingested, stored, rolled up and read back."""
