"""Samples that are read once a step: what lies between two steps is not taken for an update."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.hooks.statistics.one_pass_here import one_pass_here
from torch import Tensor, nn

from runwatch_hooks.statistics.cpu import samples_on_host
from runwatch_hooks.statistics.gradient_sums import OnePass
from runwatch_hooks.statistics.samples import SampledUpdates, Samples

Watching = Callable[[list[Tensor]], SampledUpdates[Samples]]


def compiled() -> OnePass:
    return one_pass_here()


@pytest.fixture(params=["numpy", "compiled"])
def watching(request: pytest.FixtureRequest) -> Watching:
    one_pass = compiled() if request.param == "compiled" else None
    return lambda tensors: SampledUpdates(tensors, samples_on_host(one_pass))


def squares_of(
    updates: SampledUpdates[Samples], change: Callable[[], object], num_tensors: int = 1
) -> list[float]:
    """Squared lengths of the updates of a step that does this."""
    updates.before(range(num_tensors))
    with torch.no_grad():
        change()
    found = updates.after()
    assert found is not None
    return floats(found[1])


def floats(lengths: Tensor) -> list[float]:
    return [one.item() for one in lengths]


def test_each_step_is_compared_with_what_the_one_before_left(watching: Watching) -> None:
    tensor = torch.zeros(10)
    updates = watching([tensor])

    assert squares_of(updates, lambda: tensor.add_(1.0)) == [10.0]
    assert squares_of(updates, lambda: tensor.add_(2.0)) == [40.0]
    assert squares_of(updates, lambda: None) == [0.0]
    assert squares_of(updates, lambda: tensor.sub_(1.0)) == [10.0]


def test_a_change_between_two_steps_is_no_update(watching: Watching) -> None:
    layer = nn.Linear(3, 3, bias=False)
    updates = watching([layer.weight])
    squares_of(updates, lambda: layer.weight.fill_(1.0))
    layer.load_state_dict({"weight": torch.full((3, 3), 7.0)})

    assert squares_of(updates, lambda: layer.weight.add_(1.0)) == [9.0]


def test_a_change_of_one_element_between_two_steps_is_no_update(watching: Watching) -> None:
    tensor = torch.zeros(10)
    updates = watching([tensor])
    squares_of(updates, lambda: tensor.add_(1.0))
    tensor[3] = 9.0  # where no look falls: torch has counted it

    assert squares_of(updates, lambda: tensor[4:].add_(1.0)) == [6.0]


def test_a_change_through_a_view_of_the_same_memory_is_no_update(watching: Watching) -> None:
    whole = torch.zeros(2, 50)
    updates = watching([whole[0], whole[1]])
    squares_of(updates, lambda: whole.add_(1.0), 2)
    whole.mul_(5.0)

    assert squares_of(updates, lambda: whole[1].add_(1.0), 2) == [0.0, 50.0]


def zero(parameter: nn.Parameter) -> None:
    parameter.data.zero_()


def clip(parameter: nn.Parameter) -> None:
    parameter.data.clamp_(max=0.5)


def grow(parameter: nn.Parameter) -> None:
    parameter.detach().numpy()[...] *= 1.03


@pytest.mark.parametrize("change", [zero, clip, grow])
@pytest.mark.parametrize("shape", [(4,), (64, 64), (130, 70), (300, 200)])
def test_a_change_that_torch_does_not_count_is_no_update(
    watching: Watching, change: Callable[[nn.Parameter], None], shape: tuple[int, ...]
) -> None:
    parameter = nn.Parameter(torch.zeros(shape))
    updates = watching([parameter])
    squares_of(updates, lambda: parameter.add_(1.0))
    version = parameter._version  # pyright: ignore[reportPrivateUsage]
    change(parameter)

    assert parameter._version == version  # pyright: ignore[reportPrivateUsage]
    assert squares_of(updates, lambda: parameter.add_(1.0)) == [parameter.numel()]


def test_a_part_that_changed_without_a_count_is_found_by_a_look(watching: Watching) -> None:
    parameter = nn.Parameter(torch.zeros(512, 128))
    updates = watching([parameter])
    squares_of(updates, lambda: parameter.add_(1.0))
    parameter.data[100:200] = 9.0

    assert squares_of(updates, lambda: None) == [0.0]


def test_sets_of_tensors_that_overlap_do_not_mix(watching: Watching) -> None:
    first, second = torch.zeros(2), torch.zeros(3)
    updates = watching([first, second])
    squares_of(updates, lambda: [one.add_(1.0) for one in (first, second)], 2)

    assert squares_of(updates, lambda: first.add_(3.0)) == [18.0]
    assert squares_of(updates, lambda: second.add_(1.0), 2) == [0.0, 3.0]


def test_a_tensor_put_elsewhere_is_followed_there(watching: Watching) -> None:
    parameter = nn.Parameter(torch.zeros(5000))
    updates = watching([parameter])
    squares_of(updates, lambda: parameter.add_(1.0))
    parameter.data = torch.full((300,), 2.0)

    assert squares_of(updates, lambda: parameter.add_(1.0)) == [300.0]


def test_memory_that_was_freed_gives_no_sample_until_it_is_there_again(watching: Watching) -> None:
    parameter, other = torch.ones(1000), torch.ones(2)
    storage = parameter.untyped_storage()
    num_bytes = storage.nbytes()
    updates = watching([parameter, other])
    squares_of(updates, lambda: other.add_(1.0), 2)
    storage.resize_(0)
    lengths = squares_of(updates, lambda: other.add_(1.0), 2)
    storage.resize_(num_bytes)
    parameter.zero_()

    assert np.isnan(lengths).tolist() == [True, False]
    assert squares_of(updates, lambda: parameter.add_(1.0), 2) == [1000.0, 0.0]


def test_memory_that_is_freed_within_a_step_is_not_read(watching: Watching) -> None:
    parameter = torch.ones(1000)  # FSDP frees what is not needed for the time being
    updates = watching([parameter])
    updates.before([0])
    parameter.untyped_storage().resize_(0)

    assert updates.after() is None


def test_what_is_not_finite_is_no_length(watching: Watching) -> None:
    tensors = [torch.zeros(2), torch.zeros(5000), torch.zeros(0), torch.zeros(2)]
    updates = watching(tensors)
    lengths = squares_of(
        updates, lambda: [tensors[0][1:].fill_(torch.nan), tensors[1].fill_(torch.inf)], 4
    )

    assert np.isnan(lengths).tolist() == [True, False, True, False]
    assert lengths[1::2] == [np.inf, 0.0]


@given(
    shapes=st.lists(st.lists(st.integers(0, 90), max_size=3).map(tuple), min_size=1, max_size=6),
    turned=st.booleans(),
    steps=st.integers(1, 3),
    seed=st.integers(0, 1000),
)
def test_both_ways_of_comparing_find_the_same(
    shapes: list[tuple[int, ...]], turned: bool, steps: int, seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(shape, generator=generator) for shape in shapes]
    if turned and len(shapes[0]) > 1:
        tensors[0] = tensors[0].transpose(0, -1)[1:]  # leaves gaps, or is dense in another order
    ways = [SampledUpdates(tensors, samples_on_host(one)) for one in (compiled(), None)]
    for _ in range(steps):
        for way in ways:
            way.before(range(len(tensors)))
        for tensor in tensors:
            tensor.add_(torch.randn(tensor.shape, generator=generator), alpha=1e-2)
        (_, one), (_, other) = (way.after() or ([], torch.empty(0)) for way in ways)

        assert len(one) == len(tensors)
        assert floats(one) == pytest.approx(floats(other), rel=1e-4, nan_ok=True)
