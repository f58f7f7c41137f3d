"""Fingerprints of parameters, and the groups of ranks that they are compared in."""

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from tests.hooks.tiny import tiny_gpt
from torch import nn

from runwatch_hooks.ranks.letters import BEFORE_THE_FIRST, Fingerprint
from runwatch_hooks.ranks.replicas import ROUND, ReplicaSampler, is_marked
from runwatch_hooks.statistics.cpu import NORM_TURNS
from runwatch_hooks.statistics.layer_names import name_tensors


def fingerprints(model: nn.Module, rank: int = 0) -> list[Fingerprint]:
    """Of a model that does not change, over as many steps as it takes to see all of it."""
    named = name_tensors({"": model}, [])
    sampler = ReplicaSampler(rank, 2)
    return [one for step in range(ROUND) for one in sampler.sample(step, named)]


def values(prints: Sequence[Fingerprint]) -> list[int]:
    return [value for one in prints for value in np.frombuffer(one.values, "<u4").tolist()]


def first_of(model: nn.Module) -> Fingerprint:
    sampler, named = ReplicaSampler(0, 2), name_tensors({"": model}, [])
    sampler.begin(named)
    [found] = sampler.sample(1, named)
    return found


def test_equal_models_have_equal_fingerprints() -> None:
    assert fingerprints(tiny_gpt(), 0) == fingerprints(tiny_gpt(), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_bit_anywhere_makes_another_fingerprint(dtype: torch.dtype) -> None:
    untouched = values(fingerprints(tiny_gpt().to(dtype)))
    for place in range(len(list(tiny_gpt().parameters()))):
        model = tiny_gpt().to(dtype)
        tensor = list(model.parameters())[place].detach().view(-1)
        tensor[-1] = torch.nextafter(tensor[-1], tensor[-1] + 1)

        touched = values(fingerprints(model))
        assert sum(one != other for one, other in zip(untouched, touched, strict=True)) == 1


def test_they_are_the_same_whatever_device_is_the_programs_default() -> None:
    model = tiny_gpt()
    expected = fingerprints(model)
    with torch.device("meta"):
        found = fingerprints(model)

    assert found == expected


def test_every_parameter_is_looked_at_once_in_64_steps() -> None:
    found = fingerprints(tiny_gpt())

    assert len(found) == NORM_TURNS
    assert len(values(found)) == len(list(tiny_gpt().parameters()))


def test_all_are_read_before_the_first_step_with_what_is_known_of_them() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4))
    next(model.parameters()).tensor_model_parallel = True  # type: ignore[attr-defined]
    found = first_of(model)

    assert found.step == BEFORE_THE_FIRST
    assert sorted(values([found])) == sorted(values(fingerprints(model)))
    known = {(one.is_constant, one.is_marked, one.num_dimensions) for one in found.traits}
    assert known == {(False, True, 2), (False, False, 1), (True, False, 1)}
    assert len({one.home for one in found.traits}) == 2


@pytest.mark.parametrize(
    ("marks", "is_part"),
    [
        ({}, False),
        ({"tensor_model_parallel": True, "partition_dim": 0, "partition_stride": 1}, True),
        ({"tensor_model_parallel": False, "partition_dim": -1, "partition_stride": 1}, False),
        ({"tensor_model_parallel": False, "partition_dim": 0, "partition_stride": 1}, False),
        ({"partition_dim": 1}, True),
        ({"partition_dim": -1}, False),
        ({"sequence_parallel": True}, False),
        ({"allreduce": False}, True),
        ({"allreduce": True}, False),
        ({"model_parallel": True}, True),
        ({"expert_model_parallel": True}, True),
        ({"expert": True}, True),
    ],
)
def test_a_parameter_is_a_part_if_the_marks_of_known_code_bases_say_so(
    marks: dict[str, object], is_part: bool
) -> None:
    parameter = nn.Parameter(torch.zeros(2))
    for name, value in marks.items():
        setattr(parameter, name, value)

    assert is_marked(parameter) is is_part
