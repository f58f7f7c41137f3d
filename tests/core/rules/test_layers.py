"""What a rule sees across layers, and whom the built-in non-finite rule names."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules import Evaluator, Rows, Transition, load_rules

ABSENT = float(ABSENT_32)
LAYERS = ("embed", "block", "head")


def rows_of(stats: Mapping[str, list[list[float]]], metrics: Mapping[str, list[float]]) -> Rows:
    series: list[Sequence[object]] = [*metrics.values(), *stats.values()]
    num_rows = len(series[0])
    return Rows(
        steps=np.arange(num_rows, dtype=np.int64),
        times=np.arange(num_rows, dtype=np.float64),
        metric_names=tuple(metrics),
        metrics=np.array(list(metrics.values()), np.float64).reshape(len(metrics), num_rows).T,
        layer_names=LAYERS if stats else (),
        stat_names=tuple(stats),
        stats=np.array(list(stats.values()), np.float32)
        .reshape(len(stats), num_rows, -1 if stats else 0)
        .transpose(1, 0, 2),
    )


def judge(when: str, norms: list[float], scope: str) -> list[Transition]:
    document = {"alert": "A", "scope": scope, "when": when}
    rules = load_rules({"version": 1, "groups": [{"name": "g", "rules": [document]}]})
    transitions = Evaluator(rules).observe(rows_of({"grad_norm": [norms]}, {}))
    return [told for told in transitions if told.rule == "A"]


@pytest.mark.parametrize(
    ("when", "norms", "fires"),
    [
        ("max_layers(grad_norm) == 9", [1, 9, 3], True),
        ("max_layers(grad_norm) == 9", [math.nan, 9, ABSENT], True),
        ("max_layers(grad_norm) == max_layers(grad_norm)", [ABSENT] * 3, False),
        ("median_layers(grad_norm) == 3", [1, 9, 3], True),
        ("median_layers(grad_norm) == 5", [1, 9, math.nan], True),
        ("isinf(max_layers(grad_norm))", [1, math.inf, 3], True),
    ],
)
def test_a_run_looks_at_all_its_layers(when: str, norms: list[float], fires: bool) -> None:
    assert bool(judge(when, norms, "run")) is fires


@pytest.mark.parametrize(
    ("when", "norms", "layers"),
    [
        ("rank_of(grad_norm) == 1", [1, 9, 3], ("block",)),
        ("rank_of(grad_norm) == 2", [1, 9, 3], ("head",)),
        ("rank_of(grad_norm) == 1", [math.nan, 2, ABSENT], ("block",)),
        ("grad_norm > 2 * median_layers(grad_norm)", [1, 9, 3], ("block",)),
        ("grad_norm < 0.5 * max_layers(grad_norm)", [1, 9, 3], ("embed", "head")),
    ],
)
def test_a_layer_is_seen_among_the_others(
    when: str, norms: list[float], layers: tuple[str, ...]
) -> None:
    (told,) = judge(when, norms, "layer")

    assert told.layers == layers


def non_finite(
    stats: Mapping[str, list[list[float]]], metrics: Mapping[str, list[float]]
) -> list[Transition]:
    return Evaluator(()).observe(rows_of(stats, metrics))


def test_gradients_break_from_the_loss_backwards_so_the_deepest_layer_is_first() -> None:
    (told,) = non_finite({"nonfinite": [[4, 2, 0]]}, {"loss": [1.0]})

    assert (told.first_layer, told.num_layers, told.value) == ("block", 2, 4.0)


def test_a_broken_parameter_is_first_though_every_gradient_is_broken_by_it() -> None:
    stats = {"nonfinite": [[4.0, 4, 4]], "param_norm": [[1, math.nan, math.inf]]}
    (told,) = non_finite(stats, {"loss": [math.nan]})

    assert (told.first_layer, told.num_layers) == ("block", 3)
    assert told.summary == "block: parameter NaN at step 0, 2 more layers with it"


@pytest.mark.parametrize(
    ("norms", "words"),
    [
        ([1, 1, 1], "no parameter was broken before it, so an activation or the data"),
        ([1, ABSENT, 1], "an activation, the data, or a parameter whose norm was not recorded"),
        ([ABSENT] * 3, "an activation, the data, or a parameter whose norm was not recorded"),
    ],
)
def test_of_a_broken_loss_no_layer_is_first(norms: list[float], words: str) -> None:
    stats = {"grad_norm": [[1.0, 1, 1]], "nonfinite": [[4.0, 4, 4]], "param_norm": [norms]}
    (told,) = non_finite(stats, {"loss": [math.inf]})

    assert (told.first_layer, told.num_layers) == (None, 3)
    assert told.summary == f"loss infinite at step 0, 3 layers with it; {words}"


@pytest.mark.parametrize(
    ("losses", "words"),
    [
        (
            {"g_loss": math.nan, "d_loss": 1.0},
            "g_loss NaN at step 0, 3 layers with it; an activation, the data, or",
        ),
        (
            {"g_loss": math.nan, "d_loss": math.nan},
            "g_loss and d_loss NaN at step 0, 3 layers with it; one may have broken the other: an",
        ),
        ({"{g}_loss": math.nan}, "{g}_loss NaN at step 0, 3 layers with it; an activation"),
    ],
)
def test_of_optimizers_that_take_turns_none_is_blamed_for_the_other(
    losses: dict[str, float], words: str
) -> None:
    stats = {"grad_norm": [[1.0, 1, 1]], "nonfinite": [[4.0, 4, 4]], "param_norm": [[1.0, 1, 1]]}
    turns = {"alternating": 1.0, "optimizer_steps": 2.0}
    metrics = {name: [value] for name, value in (losses | turns).items()}
    (told,) = non_finite(stats, metrics)

    assert words in told.summary
    assert told.summary.endswith("or an optimizer's step earlier in this row")
    assert told.first_layer is None


def test_a_single_step_with_a_reward_is_no_turn() -> None:
    stats = {"grad_norm": [[1.0, 1, 1]], "nonfinite": [[4.0, 4, 4]], "param_norm": [[1.0, 1, 1]]}
    metrics = {"loss": [math.nan], "alternating": [1.0], "optimizer_steps": [1.0]}
    (told,) = non_finite(stats, metrics)

    assert "no parameter was broken before it" in told.summary


def test_where_no_layer_is_known_to_be_broken_none_is_counted() -> None:
    (told,) = non_finite({"grad_norm": [[1.0, 1, 1]]}, {"loss": [math.nan]})

    words = "an activation, the data, or a parameter whose norm was not recorded"
    assert told.summary == f"loss NaN at step 0; {words}"


@pytest.mark.parametrize(
    ("greatest", "norm", "num", "words"),
    [
        (math.nan, 0.5, 1, "NaN (1 of 8 values)"),
        (math.inf, 0.5, 2, "infinite (2 of 8 values)"),
        (ABSENT, math.nan, 1, "NaN"),  # a reader that counts none says 1 for any number
        (math.inf, math.inf, 1, "infinite"),
        (ABSENT, 0.0, 8, "NaN or infinite (8 of 8 values)"),
        (ABSENT, 0.0, 9, "NaN or infinite (9 values)"),
        (math.nan, 0.5, math.nan, "NaN"),
    ],
)
def test_a_gradient_that_broke_is_named_with_its_kind_and_its_share(
    greatest: float, norm: float, num: float, words: str
) -> None:
    stats = {
        "grad_absmax": [[1.0, greatest, 1.0]],
        "grad_norm": [[1.0, norm, 1.0]],
        "nonfinite": [[0.0, num, 0.0]],
    }
    rows = replace(rows_of(stats, {"loss": [1.0]}), layer_sizes={"block": 8})
    (told,) = Evaluator(()).observe(rows)

    assert told.summary == f"block: gradient {words} at step 0"


def test_what_followed_the_first_layer_is_said_with_its_step() -> None:
    counts = [[0.0, 1, 0], [4.0, 4, 4], [4.0, 4, 4]]
    losses = [1.0, math.nan, math.nan]
    told = non_finite({"nonfinite": counts}, {"loss": losses})

    first = "block: gradient NaN or infinite (1 value) at step 0"
    assert [one.summary for one in told] == [first, f"{first}, then 2 more layers at step 1"]
    assert {one.first_layer for one in told} == {"block"}


def test_layers_that_broke_at_the_first_step_are_told_from_those_that_followed() -> None:
    told = non_finite({"nonfinite": [[0.0, 1, 1], [4.0, 4, 4]]}, {"loss": [1.0, math.nan]})

    assert told[0].summary == (
        "head: gradient NaN or infinite (1 value) at step 0, 1 more layer with it"
    )


def test_another_rank_s_broken_loss_is_said_to_be_on_that_rank() -> None:
    rows = replace(rows_of({}, {"loss": [math.nan]}), rank=3)
    (told,) = Evaluator(()).observe(rows)

    assert told.summary.startswith("loss NaN on rank 3 at step 0; ")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("grad_norm", math.nan, "gradient norm NaN at step 0"),
        ("grad_norm", math.inf, "gradient norm infinite at step 0"),
        ("nonfinite", 5.0, "gradient NaN or infinite (5 values) at step 0"),
        ("param_norm", math.inf, "parameter norm infinite at step 0"),
        ("eval/loss", math.nan, "eval/loss NaN at step 0, in an evaluation"),
    ],
)
def test_a_run_without_layers_says_which_number_broke(name: str, value: float, words: str) -> None:
    (told,) = non_finite({}, {name: [value]})

    assert told.summary == words


def test_gradients_that_another_rank_s_loss_broke_name_that_rank() -> None:
    stats = {"nonfinite": [[4.0, 4, 4]]}
    (told,) = non_finite(stats, {"loss": [1.0], "loss_broken_on": [3.0]})

    assert told.first_layer is None
    assert told.summary == (
        "loss of rank 3 NaN or infinite at step 0, 3 layers with it; "
        "an activation or the data there"
    )


def test_what_breaks_after_the_loss_is_not_called_the_first() -> None:
    evaluator = Evaluator(())
    stats = {"nonfinite": [[0.0] * 3, [4.0] * 3, *[[0.0] * 3] * 30]}
    told = evaluator.observe(rows_of(stats, {"loss": [math.nan, math.nan, *[1.0] * 30]}))
    restored = Evaluator.restore((), evaluator.state())

    assert [(one.first_layer, one.state.value) for one in told] == [
        (None, "firing"), (None, "firing"), (None, "recovering"), (None, "resolved"),
    ]  # fmt: skip
    assert [one.summary.partition(";")[0] for one in told] == [
        "loss NaN at step 0", *["loss NaN at step 0, then 3 layers at step 1"] * 3,
    ]  # fmt: skip
    assert restored.state() == evaluator.state()


def test_a_count_that_is_nan_itself_is_an_alarm() -> None:
    (told,) = non_finite({"nonfinite": [[0, 0, math.nan]]}, {"loss": [1.0]})

    assert told.first_layer == "head"


@pytest.mark.parametrize(
    ("name", "value"),
    [("loss", math.nan), ("aux/loss", -math.inf), ("grad_norm", math.nan),
     ("param_norm", math.inf), ("nonfinite", 1.0)],
)  # fmt: skip
def test_a_number_of_the_run_that_breaks_fires_at_once(name: str, value: float) -> None:
    (told,) = non_finite({}, {name: [value]})

    assert (told.rule, told.state.value, told.step) == ("NonFinite", "firing", 0)


def test_an_evaluation_that_breaks_beside_sound_gradients_is_no_broken_loss() -> None:
    told = non_finite({"nonfinite": [[0, 4, 0]]}, {"loss": [1.0], "val_loss": [math.nan]})

    assert {one.rule: one.first_layer for one in told} == {
        "NonFinite": "block",
        "NonFiniteEvaluation": None,
    }


@pytest.mark.parametrize(
    ("name", "value"),
    [("reward", math.nan), ("loss", float(ABSENT_64)), ("loss", 1e300), ("nonfinite", 0.0)],
)
def test_what_is_no_failure_is_left_alone(name: str, value: float) -> None:
    assert non_finite({}, {name: [value]}) == []


def test_a_skipped_step_excuses_gradients_but_not_the_loss_nor_the_parameters() -> None:
    skipped = {"skipped": [1.0]}

    assert non_finite({"grad_norm": [[1, math.inf, 1]]}, skipped) == []
    assert non_finite({"param_norm": [[1, math.inf, 1]]}, skipped)[0].layers == ("block",)
    assert non_finite({}, {**skipped, "loss": [math.nan]})[0].rule == "NonFinite"


def test_nobody_can_replace_the_rules_in_code() -> None:
    evaluator = Evaluator(())

    assert [rule.name for rule in evaluator.rules] == ["NonFinite", "NonFiniteEvaluation"]
    assert Evaluator(evaluator.rules).rules == evaluator.rules
