"""The length of an update, by a sample."""

import itertools
import math
from collections.abc import Sequence
from typing import Final
from weakref import ref

import numpy as np
import pytest
import torch

from runwatch.nonfinite import is_absent
from runwatch_hooks.statistics.cpu import samples_on_host
from runwatch_hooks.statistics.samples import (
    OpenSamples,
    SampledUpdates,
    Samples,
    TorchSamples,
    sample,
)

WAYS: Final = (
    pytest.param(samples_on_host(None), id="host"),
    pytest.param(TorchSamples, id="torch"),
)
Open = OpenSamples[Samples]


@pytest.mark.parametrize("open_samples", WAYS)
def test_an_update_of_small_tensors_is_exact(open_samples: Open) -> None:
    tensors = [torch.zeros(3), torch.zeros(10, 10)]
    updates = SampledUpdates(tensors, open_samples)
    updates.before([0, 1])
    tensors[0].add_(2.0)
    tensors[1].sub_(1.0)
    found = updates.after()
    assert found is not None
    slots, squares = found

    assert slots == [0, 1]
    assert squares.tolist() == [12.0, 100.0]


@pytest.mark.parametrize("open_samples", WAYS)
def test_an_update_of_a_large_tensor_is_near_the_truth(open_samples: Open) -> None:
    generator = torch.Generator().manual_seed(5)
    tensor = torch.randn(400, 600, generator=generator)
    update = torch.randn(400, 600, generator=generator) * 1e-3
    updates = SampledUpdates([tensor], open_samples)
    updates.before([0])
    tensor.add_(update)
    found = updates.after()
    assert found is not None

    length = update.square().sum().sqrt().item()

    assert math.sqrt(found[1].item()) == pytest.approx(length, rel=0.1)


@pytest.mark.parametrize("shape", [(20, 3), (4000, 5)])
def test_of_complex_weights_both_parts_count(shape: tuple[int, int]) -> None:
    tensor = torch.zeros(shape, dtype=torch.complex64)
    updates = SampledUpdates([tensor], samples_on_host(None))
    updates.before([0])
    tensor.add_(3.0 + 4.0j)
    found = updates.after()

    assert found is not None
    assert found[1].item() == pytest.approx(25.0 * tensor.numel(), rel=0.01)


def test_a_complex_tensor_without_a_sample_costs_the_others_nothing() -> None:
    empty, in_gaps = torch.zeros(0, dtype=torch.cfloat), torch.zeros(4, 4, dtype=torch.cfloat)[:, 1]
    tensors = [empty, in_gaps, torch.zeros(2, dtype=torch.cfloat)]
    updates = SampledUpdates(tensors, samples_on_host(None))
    updates.before([0, 1, 2])
    tensors[2].add_(3.0 + 4.0j)
    found = updates.after()

    assert found is not None
    assert found[1].tolist() == pytest.approx([math.nan, math.nan, 50.0], nan_ok=True)


def test_weights_in_fp8_beside_others_are_compared() -> None:
    tensors = [torch.ones(3).to(torch.float8_e4m3fn), torch.ones(2)]
    updates = SampledUpdates(tensors, samples_on_host(None))
    updates.before([0, 1])
    tensors[0].copy_(torch.full((3,), 2.0))
    tensors[1].mul_(3.0)
    found = updates.after()

    assert found is not None
    assert found[1].tolist() == [3.0, 8.0]


def test_a_sample_of_a_matrix_comes_from_all_its_columns() -> None:
    columns = torch.arange(384.0).expand(384, 384).contiguous()

    assert np.unique(sample(columns).numpy()).size > 300


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_float_types_are_compared_too(dtype: torch.dtype) -> None:
    tensor = torch.zeros(4, dtype=dtype)
    updates = SampledUpdates([tensor], samples_on_host(None))
    updates.before([0])
    tensor.add_(0.5)
    found = updates.after()
    assert found is not None

    assert found[1].tolist() == [1.0]


@pytest.mark.parametrize("open_samples", WAYS)
def test_a_step_that_puts_tensors_elsewhere_is_followed(open_samples: Open) -> None:
    tensors = [torch.nn.Parameter(torch.zeros(4)), torch.zeros(2)]
    updates = SampledUpdates(tensors, open_samples)
    found: list[torch.Tensor] = []
    for _ in range(3):
        updates.before([0, 1])
        tensors[0].data = tensors[0].data + 2.0
        tensors[1].add_(1.0)
        told = updates.after()
        assert told is not None
        found.append(told[1])

    assert [one.tolist() for one in found] == [[16.0, 2.0]] * 3


@pytest.mark.parametrize("open_samples", WAYS)
@pytest.mark.parametrize(
    "now", [torch.ones(5), torch.ones(2, 2), torch.ones(4, dtype=torch.float64), torch.ones(8)[::2]]
)
def test_what_is_something_else_in_a_tensors_place_is_no_update(
    open_samples: Open, now: torch.Tensor
) -> None:
    tensor = torch.zeros(4)
    updates = SampledUpdates([tensor], open_samples)
    updates.before([0])
    tensor.data = now

    assert updates.after() is None


@pytest.mark.parametrize("open_samples", WAYS)
def test_nothing_is_compared_that_was_not_remembered(open_samples: Open) -> None:
    assert SampledUpdates([torch.zeros(1)], open_samples).after() is None


@pytest.mark.parametrize("open_samples", WAYS)
def test_a_tensor_that_lies_elsewhere_by_now_gives_no_sample(open_samples: Open) -> None:
    kept = torch.zeros(4)
    updates = SampledUpdates([kept, torch.zeros(4, device="meta")], open_samples)
    updates.before([0, 1])
    kept.add_(1.0)
    found = updates.after()
    assert found is not None

    assert found[1].tolist() == pytest.approx([4.0, math.nan], nan_ok=True)


def test_samples_of_optimizers_that_come_and_go_are_let_go() -> None:
    tensors = [torch.zeros(8) for _ in range(8)]
    opened: list[ref[Samples]] = []

    def open_samples(tensors: Sequence[torch.Tensor], samples: Sequence[torch.Tensor]) -> Samples:
        made = TorchSamples(tensors, samples)
        opened.append(ref(made))
        return made

    updates = SampledUpdates(tensors, open_samples)
    for slots in itertools.combinations(range(8), 4):
        updates.before(slots)
        updates.after()

    assert len(opened) == 70
    assert sum(one() is not None for one in opened) == 8


def test_of_what_is_remembered_it_is_known_what_is_not_finite() -> None:
    tensors = [torch.zeros(3), torch.tensor([1.0, math.inf]), torch.zeros(0)]
    samples = TorchSamples(tensors, [sample(one) for one in tensors])
    samples.remember()
    found = samples.broken().numpy()

    assert np.isnan(found).all()
    assert is_absent(found).tolist() == [True, False, True]
