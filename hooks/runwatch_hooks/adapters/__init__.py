"""The hook inside frameworks with a training loop of their own: one module per framework.

Import the module of the framework that you use: `runwatch_hooks.adapters.huggingface`, `.lightning`
or `.accelerate`. Nothing else in this package imports them.
"""

from runwatch_hooks.oldest_versions import check_torch

check_torch()
