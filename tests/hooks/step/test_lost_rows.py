"""Rows whose numbers found no room on their way from a device: what is not known is not told."""

import pytest
import torch
from torch import Tensor

from runwatch.layouts import Layer, Layout
from runwatch_hooks.statistics.readback import Readback
from runwatch_hooks.statistics.totals import STATS
from runwatch_hooks.step import open_rows
from runwatch_hooks.step.open_rows import RowAssembly
from runwatch_hooks.step.row import Row, is_broken, is_healthy
from runwatch_hooks.step.step_reading import Reading, Stage

LAYOUT = Layout(layers=(Layer("a"), Layer("b")), stats=STATS)
CARDS = torch.device("cuda", 0), torch.device("cuda", 1)


class Distant(Tensor):
    """Says that it lies on a card, of which the test needs none."""

    card = CARDS[0]

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.card


class OnSecond(Distant):
    card = CARDS[1]


@pytest.fixture
def assembly(monkeypatch: pytest.MonkeyPatch) -> RowAssembly:
    def open_ring(num_values: int, device: torch.device) -> Readback:
        return Readback(num_values, torch.device("cpu"), depth=2)

    monkeypatch.setattr(open_rows, "Readback", open_ring)
    return RowAssembly()


def reading(*kinds: type[Distant]) -> Reading:
    num_layers = len(LAYOUT.layers) // len(kinds)
    stats = {
        tuple(range(place * num_layers, (place + 1) * num_layers)): torch.ones(
            len(STATS), num_layers
        ).as_subclass(kind)
        for place, kind in enumerate(kinds)
    }
    return Reading(LAYOUT, stats, {}, Stage.PRESTEP)


def rows_of(assembly: RowAssembly, *kinds: type[Distant]) -> list[Row]:
    for step in range(3):  # one more than there is room for
        loss = torch.tensor(2.0).as_subclass(kinds[0])
        assembly.add(step, 0, 1.0, {"loss": loss, "step_time": 0.1}, reading(*kinds))
    return assembly.finished()


def test_a_row_without_its_numbers_does_not_say_that_all_layers_are_finite(
    assembly: RowAssembly,
) -> None:
    whole, _, lost = rows_of(assembly, Distant)

    assert whole.metrics["nonfinite"] == 2.0
    assert whole.metrics["layers_with_grad"] == 2.0
    assert lost.metrics == {"step_time": 0.1}


def test_a_row_without_its_numbers_vouches_for_no_state_and_is_no_fault_either(
    assembly: RowAssembly,
) -> None:
    lost = rows_of(assembly, Distant)[-1]

    assert not is_healthy(lost)
    assert not is_broken(lost)


def test_a_number_logged_and_lost_says_nothing_of_the_step(assembly: RowAssembly) -> None:
    for _ in range(3):
        loss = torch.tensor(2.0).as_subclass(Distant)
        assembly.add(0, 0, 1.0, {"val_loss": loss}, Reading(None, {}, {}, None))

    assert all(map(is_healthy, assembly.finished()))


def test_a_row_that_lost_numbers_of_two_devices_is_one_row_lost(assembly: RowAssembly) -> None:
    rows_of(assembly, Distant, OnSecond)

    assert assembly.num_lost == 1


def test_what_is_logged_takes_no_room_of_the_steps(assembly: RowAssembly) -> None:
    nothing = Reading(None, {}, {}, None)
    for step in range(2):
        loss = torch.tensor(2.0).as_subclass(Distant)
        assembly.add(step, 0, 1.0, {"loss": loss}, reading(Distant))
        assembly.add(step, 0, 1.0, {"val_loss": loss}, nothing)
    rows = assembly.finished()

    assert assembly.num_lost == 0
    assert [next(iter(row.metrics)) for row in rows] == ["loss", "val_loss"] * 2
