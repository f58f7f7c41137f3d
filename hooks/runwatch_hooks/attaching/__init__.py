"""From a program's own objects to a watch over them."""

from runwatch_hooks.oldest_versions import check_torch

check_torch()  # before the imports below, which ask for what an older one lacks

from runwatch_hooks.attaching.entry_point import attach  # noqa: E402

__all__ = ["attach"]
