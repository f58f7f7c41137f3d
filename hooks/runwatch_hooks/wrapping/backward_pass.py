"""Where a backward pass begins, and whether one is running, as where a hook steps an optimizer."""

from typing import Any, Final, cast

import torch

ENGINE: Final = "_engine_run_backward"
"""In `torch.autograd`, what `backward` and `grad` run a pass with. They look it up at each call, so
that a program that has imported one of the two by name is heard as well."""


def is_in_backward() -> bool:
    """In this thread: torch runs some of a pass in threads of its own, and says so in each."""
    c = cast(Any, torch)._C  # what torch asks itself; it has no public name
    is_running: bool = c._current_graph_task_id() != -1
    return is_running
