"""Alerts and rules in the form of Prometheus' HTTP API, for tools that read it."""
