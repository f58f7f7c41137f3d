"""Runwatch's core: what the trainer's side and the service's side agree on."""

__version__ = "0.1.0"

__all__ = ["__version__"]
