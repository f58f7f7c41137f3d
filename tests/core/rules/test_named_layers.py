"""What only an event says is said by the alert of the rule that counts it."""

from dataclasses import replace

import numpy as np
from tests.core.rules.test_evaluator import rows_of, rules_of

from runwatch.frames import Event, Frame
from runwatch.omissions import MAX_LAYERS, OMISSION, Omission, Why
from runwatch.rules import Evaluator, Rows
from runwatch.rules.transitions import Transition

COUNTED: dict[str, object] = {
    "alert": "NotTrained",
    "when": "untrained_layers > 0",
    "for": {"steps": 2},
    "annotations": {"summary": "not trained: {value:.0f}{named}"},
}
RULES = rules_of(COUNTED)
HEAD = ("head.weight", "head.bias")


def omission(
    *layers: str, why: Why = Why.NO_OPTIMIZER, metric: str = "untrained_layers"
) -> Omission:
    return Omission.of("left out", layers, metric=metric, why=why)


def frame_of(counts: list[float], first_step: int, *told: Omission) -> Frame:
    events = tuple(Event(first_step, OMISSION, 1.0, one.to_detail()) for one in told)
    return Frame(
        attempt=1,
        rank=0,
        seq=1,
        segment=0,
        first_step=first_step,
        times=np.arange(len(counts), dtype=np.float64),
        metric_names=("untrained_layers",) if counts else (),
        metrics=np.array(counts).reshape(len(counts), 1 if counts else 0),
        events=events,
    )


def rows(counts: list[float], first_step: int, *told: Omission) -> Rows:
    return Rows.from_frame(frame_of(counts, first_step, *told), None)


def fired(transitions: list[Transition]) -> Transition:
    (found,) = [one for one in transitions if one.state.value == "firing"]
    return found


def test_an_alert_names_the_layers_of_the_event_and_why() -> None:
    alert = fired(Evaluator(RULES).observe(rows([2.0] * 4, 64, omission(*HEAD))))

    assert alert.summary == "not trained: 2 (head.weight, head.bias: no optimizer steps them)"
    assert (alert.first_layer, alert.layers, alert.num_layers) == ("head.weight", HEAD, 2)


def test_an_event_that_came_without_rows_is_remembered_through_a_restart() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows([], 64, omission(*HEAD)))
    evaluator = Evaluator.restore(RULES, evaluator.state())

    assert fired(evaluator.observe(rows([2.0] * 4, 64))).layers == HEAD


def test_a_rollback_forgets_no_layer_and_another_attempt_forgets_all() -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows([2.0], 64, omission(*HEAD)))
    back = replace(rows([2.0] * 4, 30), segment=1)
    assert fired(evaluator.observe(back)).layers == HEAD

    again = replace(rows([2.0] * 4, 30), attempt=2)
    assert fired(evaluator.observe(again)).layers == ()


def test_reasons_are_told_apart_and_a_newer_event_stands_for_an_older_one() -> None:
    told = (
        omission("head.weight"),
        omission("body.weight", why=Why.NO_GRADIENT),
        omission(*HEAD),
        omission("norm.weight", metric="unreached_layers"),
    )

    alert = fired(Evaluator(RULES).observe(rows([3.0] * 4, 64, *told)))

    assert alert.summary == (
        "not trained: 3 (head.weight, head.bias: no optimizer steps them; "
        "body.weight: no gradient reaches them)"
    )


def test_an_alert_says_nothing_that_is_told_later() -> None:
    later = replace(rows([2.0] * 4, 64, omission(*HEAD)), steps=np.arange(60, 64))

    assert fired(Evaluator(RULES).observe(later)).summary == "not trained: 2"


def test_of_many_layers_a_few_are_named() -> None:
    names = [f"experts.{number}" for number in range(40)]

    alert = fired(Evaluator(RULES).observe(rows([40.0] * 4, 64, omission(*names))))

    assert alert.summary.endswith("experts.3 and 36 more: no optimizer steps them)")
    assert (len(alert.layers), alert.num_layers) == (MAX_LAYERS, 40)


def test_an_event_of_a_hook_that_names_no_layers_changes_nothing() -> None:
    frame = frame_of([2.0] * 4, 64)
    old = Event(64, OMISSION, 1.0, {"what": "these layers have gradients: head.weight"})
    arrived = Rows.from_frame(replace(frame, events=(old,)), None)

    assert fired(Evaluator(RULES).observe(arrived)).summary == "not trained: 2"


def test_a_rule_about_something_else_names_none_of_them() -> None:
    spike = rules_of({"alert": "Loss", "when": "loss > 5", "annotations": {"summary": "up{named}"}})
    told = replace(rows_of([9.0] * 4), named=rows([], 0, omission(*HEAD)).named)

    assert fired(Evaluator(spike).observe(told)).summary == "up"


def unwatched(first_step: int, num_rows: int, *sentences: str) -> Rows:
    events = tuple(Event(9, "unwatched", 1.0, {"what": one}) for one in sentences)
    frame = replace(frame_of([0.0] * num_rows, first_step), events=events)
    return Rows.from_frame(frame, None)


UNWATCHED = rules_of(
    {
        "alert": "Unwatched",
        "when": "unwatched > 0",
        "annotations": {"summary": "not watched{named}"},
    }
)


def test_an_alert_says_what_an_event_does_though_its_step_is_in_no_frame() -> None:
    """A hook tells at once what belongs to a step whose row it sends later."""
    nearest = Evaluator(UNWATCHED).observe(unwatched(5, 3, "no gradient was seen"))
    after = Evaluator(UNWATCHED)
    after.observe(unwatched(8, 0, "no gradient was seen"))
    after = Evaluator.restore(UNWATCHED, after.state())

    assert fired(nearest).summary == "not watched (no gradient was seen)"
    assert fired(after.observe(unwatched(20, 2))).summary == "not watched (no gradient was seen)"


def test_an_alert_says_what_happened_at_its_step_and_not_what_came_before() -> None:
    evaluator = Evaluator(UNWATCHED)
    evaluator.observe(unwatched(5, 3, "one"))
    evaluator.observe(unwatched(30, 2))

    again = fired(evaluator.observe(unwatched(50, 1, "two", "three", "four")))

    assert again.summary == "not watched (two; three; and 1 more)"


def test_a_sentence_of_any_length_is_cut() -> None:
    alert = fired(Evaluator(UNWATCHED).observe(unwatched(5, 1, "x" * 10_000)))

    assert len(alert.summary) < 400
