"""From a program's own objects to a watch over them."""

from runwatch_hooks.attaching.entry_point import attach

__all__ = ["attach"]
