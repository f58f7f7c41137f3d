"""Where a backward pass begins, and whether one is running. Some programs step an optimizer from
a hook within it."""

from typing import Any, Final, cast

import torch

ENGINE: Final = "_engine_run_backward"
"""The function in `torch.autograd` with which `backward` and `grad` run a pass. They look it up at
each call, so a program that imported one of the two by name is heard as well."""


def is_in_backward() -> bool:
    """Whether this thread is inside a backward pass. Torch runs parts of it in threads of its own;
    the answer is right in each of them."""
    c = cast(Any, torch)._C  # torch's own check, which has no public name
    is_running: bool = c._current_graph_task_id() != -1
    return is_running
