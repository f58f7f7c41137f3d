"""Checks the trainer's installation and environment, and measures the cost of watching a model."""

from runwatch_hooks.doctor.examination import examine

__all__ = ["examine"]
