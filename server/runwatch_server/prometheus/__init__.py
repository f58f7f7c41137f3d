"""Alerts and rules in the shape of Prometheus' HTTP API, for the tools that read that."""
