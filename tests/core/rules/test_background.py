"""What rules know beside the rows: the end of the attempt before, and the configuration."""

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.core.rules.test_evaluator import rows_of, rules_of

from runwatch.frames import Event, Frame
from runwatch.rules import Evaluator, Rows
from runwatch.rules.background import known_from
from runwatch.rules.transitions import Transition

BEFORE = rules_of({"alert": "Before", "when": "loss > 2 * loss_before"})
CHANCE = rules_of({"alert": "Chance", "when": "loss > loss_of_chance"})


def second_attempt(losses: list[float]) -> Rows:
    return replace(rows_of(losses, first_step=10), attempt=2)


def test_an_attempt_knows_how_the_one_before_ended() -> None:
    evaluator = Evaluator(BEFORE)
    assert evaluator.observe(rows_of([9.0, *[1.0] * 8])) == []
    (told,) = evaluator.observe(second_attempt([1.5, 3.0]))

    assert (told.step, told.attempt) == (11, 2)


def test_the_first_attempt_knows_of_none_before_it() -> None:
    assert Evaluator(BEFORE).observe(rows_of([1.0, 99.0])) == []


def test_an_attempt_s_own_evaluator_is_given_what_the_last_one_knew() -> None:
    first = Evaluator(BEFORE)
    first.observe(rows_of([1.0] * 9))
    second = Evaluator(BEFORE, first.known_to_next)
    restored = Evaluator.restore(BEFORE, second.state())

    assert len(restored.observe(second_attempt([3.0]))) == 1


def test_what_is_not_finite_is_no_end_to_compare_with() -> None:
    evaluator = Evaluator(())
    evaluator.observe(rows_of([1.0, math.nan, math.inf]))

    assert evaluator.known_to_next["loss_before"] == 1.0


def test_an_attempt_knows_where_the_one_before_ended_and_how_its_loss_scattered() -> None:
    evaluator = Evaluator(())
    evaluator.observe(rows_of([50.0] * 8 + [1.0, 3.0] * 16))

    assert evaluator.known_to_next == {
        "step_before": 39.0,
        "loss_before": 2.0,
        "loss_mad_before": 1.0,  # of the last 32
    }


@pytest.mark.parametrize(
    ("config", "found"),
    [
        ({"num_classes": 10}, math.log(10)),
        ({"vocab_size": 50257.0}, math.log(50257)),
        ({"num_labels": 3, "vocab_size": 50257}, math.log(3)),
        ({"num_classes": 1}, None),
        ({"num_classes": "10"}, None),
        ({"num_classes": math.inf}, None),
        ({}, None),
    ],
)
def test_the_loss_of_chance_is_the_logarithm_of_the_number_of_classes(
    config: dict[str, object], found: float | None
) -> None:
    assert known_from(config).get("loss_of_chance") == found


def test_what_the_configuration_says_holds_for_every_attempt() -> None:
    evaluator = Evaluator(CHANCE, {"loss_of_chance": 2.0})
    evaluator.observe(rows_of([1.0]))

    assert [one.rule for one in evaluator.observe(second_attempt([3.0]))] == ["Chance"]


def first_losses(loss: float, sizes: tuple[int, ...]) -> list[Rows]:
    """Eight rows with a loss near that of guessing, and four after them; row by row."""
    rows = replace(rows_of([loss + 0.01] * 12), output_sizes=sizes)
    return [rows.between(row, row + 1) for row in range(rows.num_rows)]


@pytest.mark.parametrize(
    ("loss", "sizes", "chance"),
    [
        (1.9, (6,), math.log(6)),
        (6.9, (768, 1000), math.log(1000)),  # a norm, and an embedding that the head is tied to
        (1.9, (1,), None),
        (3.5, (6,), None),  # a regression's: six outputs, and another loss
        (1.9, (), None),
        (math.nan, (6,), None),
    ],
)
def test_the_size_of_the_head_tells_the_loss_of_chance_if_the_first_losses_agree(
    loss: float, sizes: tuple[int, ...], chance: float | None
) -> None:
    evaluator = Evaluator(())
    for rows in first_losses(loss, sizes):
        evaluator.observe(rows)

    assert evaluator.known_to_next.get("loss_of_chance") == chance


def test_what_the_configuration_says_goes_before_the_size_of_the_head() -> None:
    evaluator = Evaluator((), {"loss_of_chance": 1.0})
    for rows in first_losses(1.9, (6,)):
        evaluator.observe(rows)

    assert evaluator.known_to_next["loss_of_chance"] == 1.0


@pytest.mark.parametrize("height", [1, 5, 12])
def test_the_loss_of_chance_is_known_from_the_eighth_loss_on_however_rows_are_cut(
    height: int,
) -> None:
    whole = replace(rows_of([1.9] * 12), output_sizes=(6,))
    evaluator = Evaluator(CHANCE)
    told: list[Transition] = []
    for start in range(0, whole.num_rows, height):
        told += evaluator.observe(whole.between(start, min(start + height, whole.num_rows)))
        evaluator = Evaluator.restore(CHANCE, evaluator.state())

    assert [(one.rule, one.step) for one in told] == [("Chance", 7)]


def rows_with_events(num_rows: int, *kinds: str, attempt: int = 1) -> Rows:
    """Rows of step 3 and on, and events at step 3."""
    frame = Frame(
        attempt=attempt, rank=0, seq=1, segment=0, first_step=3, times=np.zeros(num_rows),
        metric_names=("loss",), metrics=np.ones((num_rows, 1)),
        events=tuple(Event(3, kind, 0.0, {}) for kind in kinds),
    )  # fmt: skip
    return Rows.from_frame(frame, None)


UNWATCHED = rules_of({"alert": "Unwatched", "when": "unwatched > 1"})


@pytest.mark.parametrize("is_restored", [False, True])
def test_events_that_come_without_a_row_are_counted_in_the_next(is_restored: bool) -> None:
    evaluator = Evaluator(UNWATCHED)
    evaluator.observe(rows_with_events(0, "unwatched", "phase"))
    evaluator.observe(rows_with_events(0))
    if is_restored:
        evaluator = Evaluator.restore(UNWATCHED, evaluator.state())

    (told,) = evaluator.observe(rows_with_events(2, "unwatched"))

    assert (told.rule, told.step, told.value) == ("Unwatched", 3, 2.0)
    assert evaluator.observe(rows_with_events(1)) == []


def test_events_of_an_attempt_that_is_over_are_not_counted_in_the_next() -> None:
    evaluator = Evaluator(UNWATCHED)
    evaluator.observe(rows_with_events(1))
    evaluator.observe(rows_with_events(0, "unwatched", "unwatched"))

    assert evaluator.observe(rows_with_events(1, attempt=2)) == []


@pytest.mark.parametrize(
    ("lost_rows", "lost_events", "names"),
    [(0, 2, ("loss",)), (1, 2, ("loss", "rows_lost")), (0, 0, ("loss", "rows_lost"))],
    ids=["events", "rows and events", "a damaged record"],
)
def test_a_gap_of_events_alone_is_no_lost_row(
    lost_rows: int, lost_events: int, names: tuple[str, ...]
) -> None:
    gap = Event(3, "gap", 0.0, {"lost_rows": lost_rows, "lost_events": lost_events})
    frame = Frame(
        attempt=1, rank=0, seq=1, segment=0, first_step=3, times=np.zeros(1),
        metric_names=("loss",), metrics=np.ones((1, 1)), events=(gap,),
    )  # fmt: skip

    assert Rows.from_frame(frame, None).metric_names == names


@pytest.mark.parametrize(("kind", "series"), [("unwatched", "unwatched"), ("gap", "rows_lost")])
def test_events_are_counted_in_the_row_of_their_step(kind: str, series: str) -> None:
    events = [Event(step, kind, 0.0, {}) for step in (3, 4, 4, 99)]
    frame = Frame(
        attempt=1,
        rank=0,
        seq=1,
        segment=0,
        first_step=3,
        times=np.zeros(3),
        metric_names=("loss",),
        metrics=np.ones((3, 1)),
        layout_hash="",
        stats=np.empty((3, 0), np.float32),
        events=tuple(events),
    )
    rows = Rows.from_frame(frame, None)

    assert rows.metric_names == ("loss", series)
    assert rows.metrics[:, 1].tolist() == [1.0, 2.0, 1.0]
