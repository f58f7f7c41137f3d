"""Prometheus metrics about the service and its runs, and its health for what supervises it."""
