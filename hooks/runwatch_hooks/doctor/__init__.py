"""What is installed beside a trainer, and what watching a model would cost."""

from runwatch_hooks.doctor.examination import examine

__all__ = ["examine"]
