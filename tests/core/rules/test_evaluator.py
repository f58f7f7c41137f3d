"""The evaluator: the same data give the same transitions, whatever happens in between."""

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runwatch.frames import Frame
from runwatch.layouts import Layer, Layout
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules import Evaluator, Rows, Rule, Transition, load_rules

LAYERS = ("embed", "block", "head")
ABSENT = float(ABSENT_64)


def rules_of(*rules: Mapping[str, object]) -> tuple[Rule, ...]:
    return load_rules({"version": 1, "groups": [{"name": "tests", "rules": list(rules)}]})


def rows_of(
    loss: list[float], layers: list[list[float]] | None = None, *, first_step: int = 0
) -> Rows:
    num_rows = len(loss)
    stats = np.array(layers if layers else np.empty((num_rows, 0)), np.float32)
    return Rows(
        steps=np.arange(first_step, first_step + num_rows, dtype=np.int64),
        times=np.arange(first_step, first_step + num_rows, dtype=np.float64),
        metric_names=("loss",),
        metrics=np.array(loss, np.float64).reshape(-1, 1),
        layer_names=LAYERS if layers else (),
        stat_names=("grad_norm",) if layers else (),
        stats=stats.reshape(num_rows, 1 if layers else 0, -1 if layers else 0),
    )


def told(transitions: list[Transition]) -> list[tuple[str, str, int]]:
    return [(t.rule, t.state.value, t.step) for t in transitions]


SPIKE: dict[str, object] = {
    "alert": "Spike",
    "when": "loss > 3 * median(loss, 8)",
    "min_history": 4,
    "baseline": "clean",
    "relearn_after": 5,
    "for": {"steps": 1},
    "keep_firing_for": {"steps": 2},
}
LAYER_SPIKE: dict[str, object] = {
    "alert": "LayerSpike",
    "scope": "layer",
    "when": "grad_norm > 3 * mean(grad_norm, 6) and robust_z(grad_norm, 6) > 4",
    "min_history": 3,
    "baseline": "clean",
    "relearn_after": 3,
    "keep_firing_for": {"steps": 1},
    "annotations": {"summary": "{value:.2f} {worst_layer} {layers}"},
}
TREND: dict[str, object] = {
    "alert": "Trend",
    "when": "slope(loss, 5) > 0.5 or age(loss) > 3 or count(loss > 2, 4) >= 3",
}
ACROSS: dict[str, object] = {
    "alert": "Across",
    "scope": "layer",
    "when": "rank_of(grad_norm) == 1 and grad_norm > 4 * median_layers(grad_norm)",
    "for": {"seconds": 2},
}
BESIDE: dict[str, object] = {
    "alert": "Beside",
    "when": "loss > 1.5 * median(loss, 8)",
    "min_history": 2,
    "inhibited_by": [
        {"rules": ["NonFinite"], "within": {"steps": 1}},
        {"rules": ["LayerSpike", "Spike"], "within": {"steps": 3}, "scope": "run"},
    ],
}
BENEATH: dict[str, object] = {
    "alert": "Beneath",
    "scope": "layer",
    "when": "grad_norm > 2 * mean(grad_norm, 6)",
    "min_history": 2,
    "keep_firing_for": {"steps": 2},
    "inhibited_by": [{"rules": ["LayerSpike"], "within": {"steps": 2}, "scope": "layer"}],
}
RULES_ALONE = rules_of(SPIKE, LAYER_SPIKE, TREND, ACROSS)
RULES = rules_of(SPIKE, LAYER_SPIKE, TREND, ACROSS, BESIDE, BENEATH)

sample = st.sampled_from([0.5, 1.0, 1.0, 1.0, 1.25, 2.0, 9.0, math.nan, math.inf, ABSENT])


@st.composite
def runs(draw: st.DrawFn) -> Rows:
    num_rows = draw(st.integers(1, 40))
    loss = draw(st.lists(sample, min_size=num_rows, max_size=num_rows))
    layer = st.lists(sample, min_size=3, max_size=3)
    return rows_of(loss, draw(st.lists(layer, min_size=num_rows, max_size=num_rows)))


@given(rows=runs(), cuts=st.lists(st.integers(1, 40), max_size=6))
@settings(max_examples=60, deadline=None)
def test_how_rows_are_cut_changes_nothing_nor_does_a_restart(rows: Rows, cuts: list[int]) -> None:
    whole = Evaluator(RULES).observe(rows)
    edges = [0, *sorted({cut for cut in cuts if cut < rows.num_rows}), rows.num_rows]

    evaluator = Evaluator(RULES)
    in_parts: list[Transition] = []
    for start, stop in pairwise(edges):
        in_parts += evaluator.observe(rows.between(start, stop))
        evaluator = Evaluator.restore(RULES, evaluator.state())

    assert repr(in_parts) == repr(whole)


@given(rows=runs())
@settings(max_examples=30, deadline=None)
def test_one_row_at_a_time_is_the_same_as_all_at_once(rows: Rows) -> None:
    evaluator = Evaluator(RULES)
    one_by_one = [
        transition
        for row in range(rows.num_rows)
        for transition in evaluator.observe(rows.between(row, row + 1))
    ]

    assert repr(one_by_one) == repr(Evaluator(RULES).observe(rows))


@given(rows=runs())
@settings(max_examples=20, deadline=None)
def test_a_saved_state_is_the_same_after_it_was_loaded(rows: Rows) -> None:
    evaluator = Evaluator(RULES)
    evaluator.observe(rows)
    state = evaluator.state()

    assert Evaluator.restore(RULES, state).state() == state


@pytest.mark.parametrize("state", [b"", b"\xc1", b"\x80", b"no state at all"])
def test_what_is_no_saved_state_is_refused(state: bytes) -> None:
    with pytest.raises(ValueError, match="evaluator state"):
        Evaluator.restore(RULES, state)


def test_a_spike_fires_after_it_has_held_and_resolves_after_it_was_kept() -> None:
    rows = rows_of([1.0] * 10 + [9.0] * 3 + [1.0] * 5)

    assert told(Evaluator(rules_of(SPIKE)).observe(rows)) == [
        ("Spike", "pending", 10),
        ("Spike", "firing", 11),
        ("Spike", "recovering", 13),
        ("Spike", "resolved", 15),
    ]


def test_failing_samples_stay_out_of_a_clean_window_until_the_level_lasts() -> None:
    clean = rules_of({**SPIKE, "for": {"steps": 0}})
    rows = rows_of([1.0] * 10 + [9.0] * 20)

    fired, recovered, *_ = Evaluator(clean).observe(rows)

    assert (fired.step, recovered.state.value, recovered.step) == (10, "recovering", 19)


def test_with_all_samples_in_the_window_a_spike_hides_itself_sooner() -> None:
    document = {**SPIKE, "for": {"steps": 0}, "baseline": "all"}
    document.pop("relearn_after")
    rows = rows_of([1.0] * 10 + [9.0] * 20)

    _, recovered, *_ = Evaluator(rules_of(document)).observe(rows)

    assert recovered.step == 14


def test_layers_give_one_alert_and_the_one_nearest_to_the_loss_is_blamed() -> None:
    layers = [[1.0, 1.0, 1.0]] * 8 + [[30.0, 20.0, 1.0]] + [[1.0, 1.0, 1.0]]
    (fired, *_) = Evaluator(rules_of(LAYER_SPIKE)).observe(rows_of([1.0] * 10, layers))

    assert (fired.first_layer, fired.worst_layer) == ("block", "embed")
    assert (fired.layers, fired.num_layers) == (("embed", "block"), 2)
    assert (fired.value, fired.summary) == (30.0, "30.00 embed embed, block")


def test_for_is_counted_for_each_layer() -> None:
    flicker = {"alert": "L", "scope": "layer", "when": "grad_norm > 5", "for": {"steps": 2}}
    layers = [[9.0, 1, 1], [1, 9.0, 1], [1, 1, 9.0], [1, 9.0, 1], [1, 9.0, 1], [1, 9.0, 1]]

    transitions = Evaluator(rules_of(flicker)).observe(rows_of([1.0] * 6, layers))

    assert [t.step for t in transitions if t.state.value == "firing"] == [5]


def test_what_was_not_recorded_leaves_a_verdict_open() -> None:
    rows = rows_of([1.0] * 10 + [9.0, ABSENT, ABSENT, 9.0])

    assert told(Evaluator(rules_of(SPIKE)).observe(rows)) == [
        ("Spike", "pending", 10),
        ("Spike", "firing", 13),
    ]


def test_a_comparison_with_nan_is_false_and_the_built_in_rule_speaks() -> None:
    rows = rows_of([1.0, math.nan])
    either = rules_of({"alert": "Either", "when": "loss > 5 or loss <= 5", "for": {"steps": 99}})

    assert told(Evaluator(either).observe(rows)) == [
        ("Either", "pending", 0),
        ("NonFinite", "firing", 1),
        ("Either", "inactive", 1),
    ]


@pytest.mark.parametrize("operator", ["<", "<=", ">", ">=", "==", "!="])
def test_every_comparison_with_nan_is_false(operator: str) -> None:
    rules = rules_of({"alert": "Compared", "when": f"loss {operator} loss + 0"})

    assert "Compared" not in [t.rule for t in Evaluator(rules).observe(rows_of([math.nan]))]


def test_after_a_rollback_windows_forget_what_was_undone_and_alerts_recover() -> None:
    evaluator = Evaluator(rules_of({**SPIKE, "baseline": "all", "relearn_after": None}))
    evaluator.observe(rows_of([1.0] * 10 + [9.0] * 3))

    again = evaluator.observe(replace(rows_of([1.0] * 6, first_step=8), segment=1))
    spike = evaluator.observe(replace(rows_of([9.0, 9.0], first_step=14), segment=1))

    assert told(again) == [("Spike", "recovering", 8), ("Spike", "resolved", 10)]
    assert [(t.state.value, t.segment) for t in spike] == [("pending", 1), ("firing", 1)]


def test_what_was_pending_in_the_undone_steps_never_happened() -> None:
    evaluator = Evaluator(rules_of({**SPIKE, "for": {"steps": 50}}))
    evaluator.observe(rows_of([1.0] * 10 + [9.0] * 3))

    (undone,) = evaluator.observe(replace(rows_of([9.0], first_step=5), segment=1))[:1]

    assert (undone.state.value, undone.reason.value) == ("inactive", "undone")


def test_a_rollback_is_as_if_the_undone_steps_had_never_been_seen() -> None:
    straight = Evaluator(RULES_ALONE)
    straight.observe(rows_of([1.0, 1.25, 0.5, 1.0, 2.0]))
    detour = Evaluator(RULES_ALONE)
    detour.observe(rows_of([1.0, 1.25, 0.5, 1.0, 2.0, 1.0, 1.0]))
    rest = replace(rows_of([2.0, 9.0, 9.0, 1.0], first_step=5), segment=1)

    assert told(detour.observe(rest)) == told(straight.observe(rest))


def test_a_new_attempt_ends_the_alerts_of_the_old_and_starts_cold() -> None:
    evaluator = Evaluator(rules_of(SPIKE))
    evaluator.observe(rows_of([1.0] * 10 + [9.0] * 2))

    ended, *others = evaluator.observe(replace(rows_of([9.0] * 3, first_step=8), attempt=2))

    assert (ended.state.value, ended.reason.value, ended.attempt) == ("resolved", "ended", 1)
    assert others == []


def test_a_gap_in_the_steps_passes_for_in_one_row() -> None:
    evaluator = Evaluator(rules_of({**SPIKE, "for": {"steps": 40}}))
    evaluator.observe(rows_of([1.0] * 10 + [9.0]))

    (fired,) = evaluator.observe(rows_of([9.0], first_step=200))

    assert (fired.state.value, fired.onset_step) == ("firing", 10)


def test_a_metric_that_comes_alone_does_not_judge_other_rules_again() -> None:
    twice = {"alert": "Often", "when": "count(loss > 2, 3) >= 1", "for": {"steps": 1}}
    evaluator = Evaluator(rules_of(twice))
    evaluator.observe(rows_of([3.0, 3.0]))
    alone = replace(rows_of([0.1], first_step=5), metric_names=("val_loss",))

    assert evaluator.observe(alone) == []


def test_every_judges_only_where_its_metric_came() -> None:
    rule = {"alert": "Val", "when": "last(loss) > 2 and val_loss > 1", "every": "val_loss"}
    rows = replace(
        rows_of([3.0, 3.0]),
        metric_names=("loss", "val_loss"),
        metrics=np.array([[3.0, ABSENT], [ABSENT, 5.0]]),
    )

    assert told(Evaluator(rules_of(rule)).observe(rows)) == [("Val", "firing", 1)]


def test_layers_in_another_order_keep_their_past() -> None:
    evaluator = Evaluator(rules_of(LAYER_SPIKE))
    evaluator.observe(rows_of([1.0] * 6, [[1.0, 10.0, 100.0]] * 6))
    turned = replace(
        rows_of([1.0], [[100.0, 1.0, 90.0]], first_step=6), layer_names=("head", "embed", "block")
    )

    (fired,) = evaluator.observe(turned)

    assert fired.layers == ("block",)


def test_a_changed_rule_starts_cold_and_the_others_go_on() -> None:
    evaluator = Evaluator(rules_of(SPIKE, TREND))
    evaluator.observe(rows_of([1.0] * 10))
    changed = rules_of({**SPIKE, "severity": "critical"}, TREND)
    restored = Evaluator.restore(changed, evaluator.state())

    transitions = restored.observe(rows_of([3.0, 4.5, 6.0, 9.0], first_step=10))

    assert {t.rule for t in transitions} == {"Trend"}


def test_a_stranger_rank_is_named_in_the_labels() -> None:
    (fired,) = Evaluator(()).observe(replace(rows_of([math.nan]), rank=3))

    assert (fired.labels, fired.summary[:18]) == ({"rank": "3"}, "loss NaN on rank 3")


def test_an_episode_has_one_name_through_its_life_and_in_every_replay() -> None:
    rows = rows_of([1.0] * 10 + [9.0] * 3 + [1.0] * 5)

    episodes = {t.episode for _ in range(2) for t in Evaluator(rules_of(SPIKE)).observe(rows)}

    assert len(episodes) == 1


def test_the_same_fault_after_a_rollback_is_another_episode() -> None:
    evaluator = Evaluator(rules_of({**SPIKE, "keep_firing_for": {"steps": 0}}))
    first = evaluator.observe(rows_of([1.0] * 10 + [9.0] * 2))
    again = evaluator.observe(replace(rows_of([1.0] * 4 + [9.0] * 2, first_step=6), segment=1))

    assert [(t.state.value, t.onset_step, t.segment) for t in first[:1] + again] == [
        ("pending", 10, 0),
        ("resolved", 10, 0),
        ("pending", 10, 1),
        ("firing", 10, 1),
    ]
    assert first[0].episode == again[0].episode != again[1].episode


def test_the_median_step_time_is_of_steps_and_not_of_rows() -> None:
    evaluator = Evaluator(())
    evaluator.observe(replace(rows_of([1.0] * 10), times=np.linspace(0.0, 22.5, 10)))

    assert evaluator.median_step_s == 2.5


def test_rows_come_from_a_frame_stat_by_stat() -> None:
    layout = Layout(layers=(Layer("a"), Layer("b")), stats=("grad_norm", "nonfinite"))
    frame = Frame(
        attempt=2, rank=1, seq=1, segment=3, first_step=7, times=np.array([5.0]),
        metric_names=("eval/loss",), metrics=np.array([[0.5]]), layout_hash=layout.hash,
        stats=np.array([[1, 2, 0, ABSENT_32]], np.float32),
    )  # fmt: skip

    rows = Rows.from_frame(frame, layout)

    assert (rows.attempt, rows.rank, rows.segment, rows.steps.tolist()) == (2, 1, 3, [7])
    assert rows.stats[0, 0].tolist() == [1, 2]
    assert rows.metric_columns["eval_loss"] == 0
