"""Telemetry: frames from trainers are ingested, stored, aggregated and read back."""
