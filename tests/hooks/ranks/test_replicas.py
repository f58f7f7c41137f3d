"""Fingerprints of parameters, and which rank stands apart."""

import pytest
import torch
from tests.hooks.tiny import tiny_gpt

from runwatch_hooks.measuring.layer_names import name_tensors
from runwatch_hooks.measuring.statistics import NORM_TURNS
from runwatch_hooks.ranks.letters import Fingerprint
from runwatch_hooks.ranks.replicas import EVERY, ReplicaJudge, ReplicaSampler

ALL_STEPS = EVERY * NORM_TURNS


def fingerprints(model: torch.nn.Module, rank: int = 0) -> list[Fingerprint]:
    """Of a model that does not change, over as many steps as it takes to see all of it."""
    return fingerprints_over(ALL_STEPS, model, rank)


def fingerprints_over(steps: int, model: torch.nn.Module, rank: int) -> list[Fingerprint]:
    named = name_tensors({"": model}, [])
    sampler = ReplicaSampler(rank, 2)
    return [one for step in range(steps) for one in sampler.sample(step, named)]


def test_equal_models_have_equal_fingerprints() -> None:
    assert fingerprints(tiny_gpt(), 0) == fingerprints(tiny_gpt(), 1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_one_bit_anywhere_makes_another_fingerprint(dtype: torch.dtype) -> None:
    untouched = fingerprints(tiny_gpt().to(dtype))
    for place in range(len(list(tiny_gpt().parameters()))):
        model = tiny_gpt().to(dtype)
        tensor = list(model.parameters())[place].detach().view(-1)
        tensor[-1] = torch.nextafter(tensor[-1], tensor[-1] + 1)

        differing = [a.step for a, b in zip(untouched, fingerprints(model), strict=True) if a != b]
        assert len(differing) == 1


def test_they_are_the_same_whatever_device_is_the_programs_default() -> None:
    model = tiny_gpt()
    expected = fingerprints(model)
    with torch.device("meta"):
        found = fingerprints(model)

    assert found == expected


def test_every_parameter_is_looked_at_once_in_64_steps() -> None:
    assert len(fingerprints(tiny_gpt())) == NORM_TURNS


def judged(*rounds: list[int]) -> tuple[ReplicaJudge, list[str]]:
    """The values of ranks 0, 1, ... at one comparison after another."""
    judge = ReplicaJudge()
    told = [
        judge.take(rank, Fingerprint(step, 1, tuple(range(len(values))), value))
        for step, values in enumerate(rounds)
        for rank, value in enumerate(values)
    ]
    return judge, [one for one in told if one is not None]


def test_the_rank_that_differs_from_most_has_drifted() -> None:
    judge, _ = judged([5, 5, 5, 5], [6, 9, 6, 6])

    assert judge.drifted == (1,)


def test_rank_0_may_be_the_one() -> None:
    judge, _ = judged([5, 5, 5], [4, 6, 6])

    assert judge.drifted == (0,)


def test_of_two_that_differ_it_is_the_other_than_rank_0() -> None:
    judge, _ = judged([5, 5], [5, 6])

    assert judge.drifted == (1,)


def test_one_that_is_equal_again_has_not_drifted() -> None:
    judge, _ = judged([5, 5], [5, 6], [7, 7])

    assert judge.drifted == ()


def test_a_layout_that_is_gone_leaves_no_rank_behind_that_has_drifted() -> None:
    judge, _ = judged([5, 5], [5, 6])
    drifted = [
        judge.drifted
        for step in (EVERY, 3 * ALL_STEPS)
        for rank in (0, 1)
        if judge.take(rank, Fingerprint(step, 2, (0, 1), 7)) is None
    ]

    assert drifted == [(1,), (1,), (1,), ()]


def test_ranks_that_never_were_equal_are_no_replicas_and_that_is_told_once() -> None:
    judge, told = judged([1, 2, 3], [4, 5, 6])

    assert (judge.drifted, judge.has_compared) == ((), False)
    assert len(told) == 1
    assert "no replicas" in told[0]


def test_ranks_without_a_parameter_in_common_are_told_once_all_was_sampled() -> None:
    stages = [
        iter(fingerprints_over(2 * ALL_STEPS + 1, torch.nn.ModuleDict({name: tiny_gpt()}), rank))
        for rank, name in enumerate(("first", "last"))
    ]
    judge = ReplicaJudge()
    told = [
        (one.step, said)
        for pair in zip(*stages, strict=True)
        for rank, one in enumerate(pair)
        if (said := judge.take(rank, one)) is not None
    ]

    assert [step for step, _ in told] == [ALL_STEPS]
    assert "layers that rank 0 does not hold are not measured" in told[0][1]


def test_a_rank_that_is_far_ahead_is_no_stage() -> None:
    judge = ReplicaJudge()
    ahead = fingerprints_over(2 * ALL_STEPS + 1, tiny_gpt(), 0)

    assert {judge.take(0, one) for one in ahead} == {None}
    assert {judge.take(1, one) for one in ahead} == {None}
