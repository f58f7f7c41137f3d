"""The arithmetic of the accelerator's path without our kernel, on tensors of a CPU."""

import math
from collections.abc import Iterator, Sequence

import pytest
import torch
from torch import Tensor

from runwatch.nonfinite import is_absent
from runwatch_hooks.statistics.cpu import NORM_TURNS, CpuStatistics
from runwatch_hooks.statistics.gpu import DeviceStatistics
from runwatch_hooks.statistics.gpu_reading import ForeachReader
from runwatch_hooks.statistics.readback import Readback
from runwatch_hooks.statistics.totals import (
    GRAD_ABSMAX,
    GRAD_NORM,
    NONFINITE,
    PARAM_NORM,
    STATS,
    UPDATE_RATIO,
    ZERO_FRAC,
)

CPU = torch.device("cpu")


def tensors() -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(size, generator=generator) for size in (3, 50, 2000)]


def on_device(parameters: Sequence[Tensor]) -> DeviceStatistics:
    return DeviceStatistics(parameters, CPU, ForeachReader())


def step(
    statistics: CpuStatistics | DeviceStatistics,
    parameters: Sequence[Tensor],
    grads: Sequence[Tensor],
    scale: Tensor | None = None,
) -> Tensor:
    slots = range(len(parameters))
    statistics.read_gradients(slots, grads, scale)
    statistics.before_step(slots)
    for parameter, grad in zip(parameters, grads, strict=True):
        parameter.sub_(grad, alpha=0.1)
    statistics.after_step()
    return statistics.take()


@pytest.mark.parametrize("scale", [None, torch.tensor(1024.0)])
def test_both_paths_agree_on_what_is_finite(scale: Tensor | None) -> None:
    grads = [tensor.clone() for tensor in tensors()]
    grads[1][:10] = 0.0
    here, there = tensors(), tensors()
    expected = step(CpuStatistics(here), here, grads, scale)
    found = step(on_device(there), there, grads, scale)

    assert found.shape == (len(STATS), 3)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=0.0)


@pytest.fixture
def other_defaults() -> Iterator[None]:
    """A program's own, as scripts set them: tensors of bfloat16, made elsewhere."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.bfloat16)
    try:
        with torch.device("meta"):
            yield
    finally:
        torch.set_default_dtype(before)


@pytest.mark.usefixtures("other_defaults")
def test_numbers_are_exact_whatever_the_programs_defaults_are() -> None:
    parameters = [torch.full((5000,), 1.0, dtype=torch.float32, device="cpu")]
    grads = [torch.full((5000,), 1.001, dtype=torch.float32, device="cpu")]
    found = step(on_device(parameters), parameters, grads)
    ticket = Readback(1, CPU).send(found[GRAD_ABSMAX])

    assert ticket is not None
    assert ticket.values().tolist() == pytest.approx([1.001], rel=1e-6)
    assert found[UPDATE_RATIO].item() == pytest.approx(0.1001, rel=1e-4)


def test_what_is_not_finite_is_flagged_and_travels_as_itself() -> None:
    parameters = tensors()
    grads = tensors()
    grads[1][7] = math.nan
    grads[2][7] = -math.inf
    found = step(on_device(parameters), parameters, grads)

    assert found[NONFINITE].tolist() == [0.0, 1.0, 1.0]
    assert math.isnan(found[GRAD_NORM][1].item())
    assert found[GRAD_ABSMAX][2].item() == math.inf


def test_what_was_not_measured_is_absent_in_the_next_step() -> None:
    parameters = tensors()
    statistics = on_device(parameters)
    step(statistics, parameters, tensors())
    statistics.read_gradients([1], [torch.empty(0)], None)
    found = statistics.take().numpy()

    for name in (GRAD_NORM, GRAD_ABSMAX, NONFINITE, ZERO_FRAC, UPDATE_RATIO):
        assert is_absent(found[name]).all()


def test_every_norm_is_read_at_first_and_then_in_turn() -> None:
    parameters = tensors()
    statistics = on_device(parameters)
    read = [~is_absent(statistics.take()[PARAM_NORM].numpy()) for _ in range(NORM_TURNS + 1)]

    assert read[0].all()
    assert [int(sum(turn[slot] for turn in read[1:])) for slot in range(3)] == [1, 1, 1]


def test_what_was_broken_before_the_step_is_told_from_what_the_step_broke() -> None:
    parameters = tensors()
    statistics = on_device(parameters)
    step(statistics, parameters, tensors())
    parameters[1][3] = math.inf
    norms = step(statistics, parameters, [one.fill_(math.nan) for one in tensors()])[PARAM_NORM]
    after = step(statistics, parameters, tensors())[PARAM_NORM]

    assert math.isnan(norms[1]) or norms[1] == math.inf
    assert not is_absent(norms[1:2].numpy()).any()
    assert all(is_absent(one.numpy()) or one.isfinite() for one in (norms[:1], norms[2:]))
    assert after.isnan().all()
    assert not is_absent(after.numpy()).any()


@pytest.mark.parametrize("way", ["host", "device"])
def test_what_a_program_has_put_elsewhere_is_left_alone(way: str) -> None:
    parameters = [torch.ones(3), torch.ones(3, device="meta")]
    host, device = CpuStatistics(parameters), on_device(parameters)
    statistics = host if way == "host" else device
    statistics.before_step([0, 1])
    parameters[0].add_(1.0)
    statistics.after_step()
    found = statistics.take().numpy()

    assert found[PARAM_NORM, 0] == pytest.approx(math.sqrt(3.0))
    assert found[UPDATE_RATIO, 0] == pytest.approx(1.0)
    assert is_absent(found[[PARAM_NORM, UPDATE_RATIO], 1]).all()


def test_memory_that_a_program_has_freed_is_not_read() -> None:
    parameters = tensors()
    statistics = on_device(parameters)
    step(statistics, parameters, tensors())
    for one in parameters:
        one.untyped_storage().resize_(0)
    for _ in range(NORM_TURNS):
        statistics.before_step(range(3))
        statistics.after_step()
        assert is_absent(statistics.take()[PARAM_NORM].numpy()).all()


def test_a_tensor_of_zeros_has_no_update_ratio() -> None:
    zeros = torch.zeros(3)
    statistics = on_device([zeros])
    found = step(statistics, [zeros], [torch.zeros(3)])

    assert is_absent(found[UPDATE_RATIO].numpy()).all()


def one_row_of(rows: int, moved: int) -> Tensor:
    """The gradient of an embedding of which a batch has used one row."""
    grad = torch.zeros(rows, 8)
    grad[moved] = 1.0
    return grad


@pytest.mark.parametrize("way", ["host", "device"])
def test_an_embedding_that_moved_where_no_sample_is_has_no_update_ratio(way: str) -> None:
    parameters = [torch.ones(20_000, 8), torch.ones(4, 8), torch.ones(20_000, 8)]
    grads = [one_row_of(20_000, 5), one_row_of(4, 2), torch.zeros(20_000, 8)]
    statistics = CpuStatistics(parameters) if way == "host" else on_device(parameters)
    found = step(statistics, parameters, grads)[UPDATE_RATIO]

    assert is_absent(found.numpy()).tolist() == [True, False, False]
    assert found[1].item() == pytest.approx(0.1 * math.sqrt(8) / math.sqrt(32))
    assert found[2] == 0.0


def test_of_several_steps_in_a_row_the_norm_is_that_before_the_first() -> None:
    parameters = tensors()
    norms = torch.stack([one.norm() for one in parameters])
    statistics = on_device(parameters)
    for _ in range(2):
        statistics.before_step(range(3))
        for one in parameters:
            one.mul_(2.0)
        statistics.after_step()

    torch.testing.assert_close(statistics.take()[PARAM_NORM], norms)


def test_numbers_come_back_in_order() -> None:
    readback = Readback(3, CPU, depth=2)
    for value in (1.0, 2.0, 3.0):
        ticket = readback.send(torch.full((3,), value))
        assert ticket is not None
        assert ticket.is_there()
        assert ticket.values().tolist() == [value] * 3


@pytest.mark.parametrize(("num_values", "depth"), [(1, 256), (4096, 64), (100_000, 16)])
def test_as_many_rows_may_be_on_their_way_as_there_is_room_for(num_values: int, depth: int) -> None:
    readback = Readback(num_values, CPU)
    sent = [readback.send(torch.zeros(num_values)) for _ in range(depth)]

    assert None not in sent
    assert readback.send(torch.zeros(num_values)) is None


def test_a_slot_is_not_used_again_before_its_numbers_were_taken() -> None:
    readback = Readback(1, CPU, depth=2)
    first = readback.send(torch.ones(1))
    second = readback.send(torch.ones(1) * 2)
    assert first is not None
    assert second is not None

    assert readback.send(torch.ones(1) * 3) is None
    assert first.values().tolist() == [1.0]
    assert readback.send(torch.ones(1) * 3) is not None
    assert second.values().tolist() == [2.0]


def test_a_ring_made_in_inference_mode_is_written_to_outside_of_it() -> None:
    with torch.inference_mode():
        readback = Readback(1, CPU)
    ticket = readback.send(torch.tensor([2.0]))

    assert ticket is not None
    assert ticket.values().tolist() == [2.0]
