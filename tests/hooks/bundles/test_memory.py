"""What is remembered of batches stays within bounds, whatever they are made of."""

import weakref
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from runwatch_hooks.bundles.memory import MAX_BYTES, BatchMemory

_LARGE = MAX_BYTES // 4


@dataclass
class Example:
    x: Tensor


class Graph:
    """Of a library of its own, with more in it than anybody knows."""


MAKERS: dict[str, Callable[[], object]] = {
    "tensors": lambda: {"x": torch.zeros(_LARGE, dtype=torch.uint8)},
    "a dataclass": lambda: [Example(torch.zeros(_LARGE, dtype=torch.uint8))],
    "arrays": lambda: {"x": np.zeros(_LARGE, np.uint8)},
    "text": lambda: ("x" * _LARGE, b"x"),
}


def num_held(memory: BatchMemory) -> int:
    found = [memory.find(step) for step in range(8)]
    return sum(len(one.batches) for one in found if one is not None)


@pytest.mark.parametrize("kind", MAKERS)
def test_large_batches_of_former_steps_are_forgotten(kind: str) -> None:
    memory = BatchMemory()
    for step in range(8):
        memory.begin_step(step)
        memory.add(MAKERS[kind]())

    assert num_held(memory) == 4


def test_a_step_of_very_many_small_batches_is_given_up() -> None:
    memory = BatchMemory()
    memory.begin_step(0)
    num_rng = torch.get_rng_state().numel()
    for _ in range(MAX_BYTES // num_rng + 1):  # a loop that never closes its step
        memory.add(torch.zeros(1))
    step = memory.find(0)

    assert step is not None
    assert step.note == "the step's batches have more than 64 MiB"
    assert (step.batches, step.rngs, step.versions) == ([], [], [])


def test_a_batch_that_could_not_be_written_is_not_held() -> None:
    memory = BatchMemory()
    memory.begin_step(0)
    graph = Graph()
    alive = weakref.ref(graph)
    memory.add({"graph": graph})
    step = memory.find(0)
    del graph

    assert alive() is None
    assert step is not None
    assert step.note.startswith("batch.graph: found a ")


def test_a_tensor_in_a_dataclass_that_the_loop_changed_is_found_out() -> None:
    memory = BatchMemory()
    memory.begin_step(0)
    example = Example(torch.zeros(3))
    memory.add(example)
    step = memory.find(0)
    assert step is not None
    assert step.note == ""

    example.x.add_(1.0)
    assert step.note == "the loop changed the batch in place; it is as after"
