"""Whether a backward pass is running, as where a hook of it steps an optimizer."""

from typing import Any, cast

import torch


def is_in_backward() -> bool:
    """In this thread: torch runs some of a pass in threads of its own, and says so in each."""
    c = cast(Any, torch)._C  # what torch asks itself; it has no public name
    is_running: bool = c._current_graph_task_id() != -1
    return is_running
