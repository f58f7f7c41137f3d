"""How far the next loss is from one in half precision, as rows tell it to the rules."""

import pytest
import torch
from torch import Tensor

from runwatch_hooks.step.open_rows import RowAssembly
from runwatch_hooks.step.step_reading import Reading

NUM_ROWS = 64
FALLING = [10.8 - 0.1 * step for step in range(NUM_ROWS)]


def numbers(tensor: Tensor) -> list[float]:
    return [float(value) for value in tensor.double().numpy()]


def told(losses: list[float], *, theirs: float | None = None) -> list[float | None]:
    """The metric in the rows of these losses; `theirs` is a metric of that name of the program."""
    assembly = RowAssembly()
    nothing = Reading(layout=None, stats={}, numbers={}, stage=None)
    more = {} if theirs is None else {"loss_resolution": theirs}
    for step, loss in enumerate(losses):
        assembly.add(step, 0, 0.0, {"loss": loss, **more}, nothing)
    return [row.metrics.get("loss_resolution") for row in assembly.finished()]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_loss_in_half_precision_is_told_with_its_distance_to_the_next(
    dtype: torch.dtype,
) -> None:
    losses = torch.tensor(FALLING).to(dtype)
    higher = torch.nextafter(losses, torch.full_like(losses, torch.inf))
    distances = numbers(higher.double() - losses.double())

    assert told(numbers(losses))[16:] == distances[16:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_loss_in_a_wider_type_is_not(dtype: torch.dtype) -> None:
    assert told(numbers(torch.tensor(FALLING, dtype=dtype))) == [None] * NUM_ROWS


def test_losses_that_happen_to_be_short_are_not() -> None:
    assert told([0.5, 2.0, 1.0, 0.25] * 16) == [None] * NUM_ROWS


def test_a_loss_that_turns_out_to_be_wider_is_told_no_more() -> None:
    halves = numbers(torch.tensor(FALLING).bfloat16())

    assert told([*halves[:20], 0.1, *halves])[20:] == [None] * (NUM_ROWS + 1)


def test_zero_and_what_is_not_finite_say_nothing() -> None:
    halves = numbers(torch.tensor(FALLING).bfloat16())
    found = told([*halves, 0.0, float("nan"), float("inf"), *halves])

    assert found[NUM_ROWS : NUM_ROWS + 3] == [None] * 3
    assert None not in found[NUM_ROWS + 3 :]


def test_the_program_s_own_metric_of_that_name_is_kept() -> None:
    halves = numbers(torch.tensor(FALLING).bfloat16())

    assert set(told(halves, theirs=1.5)) == {1.5}
