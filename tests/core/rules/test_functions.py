"""Each function of the rule language, against a recomputation from all that came before."""

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from runwatch.nonfinite import ABSENT_64, is_absent
from runwatch.rules.block import Block, Level
from runwatch.rules.evaluation import Evaluation
from runwatch.rules.expressions import Comparison
from runwatch.rules.observations import Rows
from runwatch.rules.parsing import parse_condition
from runwatch.rules.window_keys import Reader
from runwatch.vocabulary import Scope

Samples = list[float]

ABSENT = float(ABSENT_64)


def rows_of(loss: Samples) -> Rows:
    return Rows(
        steps=np.arange(len(loss), dtype=np.int64),
        times=np.arange(len(loss), dtype=np.float64),
        metric_names=("loss",),
        metrics=np.array(loss, np.float64).reshape(-1, 1),
        layer_names=(),
        stat_names=(),
        stats=np.empty((len(loss), 0, 0), np.float32),
    )


def values(text: str, loss: Samples, min_history: int | None = 1) -> list[float | None]:
    """What an expression is worth at each row; None where it is unknown."""
    condition = parse_condition(f"{text} > 0", place="", scope=Scope.RUN).condition
    assert isinstance(condition, Comparison)
    reading = Evaluation(Block(rows_of(loss), 0), Reader(min_history, ""), {}, {}, range(len(loss)))
    with np.errstate(all="ignore"):
        numbers = reading.numbers(condition.left, reading.grid(Level.RUN))
    return [
        value if known else None
        for value, known in zip(numbers.values.tolist(), numbers.known.tolist(), strict=True)
    ]


def naive(
    function: Callable[[NDArray[np.float64]], float], loss: Samples, size: int, needed: int
) -> list[float | None]:
    found: list[float | None] = []
    window: Samples = []
    for value in loss:
        held = window[-size:]
        found.append(float(function(np.array(held))) if len(held) >= needed else None)
        if math.isfinite(value):
            window.append(value)
    return found


def mad(window: NDArray[np.float64]) -> float:
    return float(np.median(np.abs(window - np.median(window))))


def ewma(window: NDArray[np.float64]) -> float:
    weights = (1 - 2 / (len(window) + 1)) ** np.arange(len(window) - 1, -1, -1)
    return float(np.average(window, weights=weights))


def line(window: NDArray[np.float64]) -> float:
    return float(np.polyfit(np.arange(len(window)), window, 1)[0])


def ninth(window: NDArray[np.float64]) -> float:
    return float(np.quantile(window, 0.9))


def deviation(window: NDArray[np.float64]) -> float:
    return float(np.std(window, ddof=1))


NAIVE: list[tuple[str, Callable[[NDArray[np.float64]], float], int]] = [
    ("median(loss, 5)", lambda w: float(np.median(w)), 1),
    ("mean(loss, 5)", lambda w: float(np.mean(w)), 1),
    ("min(loss, 5)", lambda w: float(np.min(w)), 1),
    ("max(loss, 5)", lambda w: float(np.max(w)), 1),
    ("std(loss, 5)", deviation, 2),
    ("mad(loss, 5)", mad, 2),
    ("ewma(loss, 5)", ewma, 1),
    ("slope(loss, 5)", line, 2),
    ("quantile(loss, 0.9, 5)", ninth, 1),
]

series = st.lists(
    st.one_of(
        st.floats(-1e6, 1e6, width=32), st.sampled_from([math.nan, math.inf, -math.inf, ABSENT])
    ),
    min_size=1,
    max_size=40,
)


@pytest.mark.parametrize(("text", "function", "needed"), NAIVE, ids=[text for text, *_ in NAIVE])
@given(loss=series)
@settings(max_examples=40, deadline=None)
def test_a_window_is_worth_what_a_recomputation_says(
    text: str, function: Callable[[NDArray[np.float64]], float], needed: int, loss: Samples
) -> None:
    expected = naive(function, loss, 5, needed)

    assert values(text, loss) == [
        None if value is None else pytest.approx(value, rel=1e-6, abs=1e-6) for value in expected
    ]


@given(loss=series, lag=st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_prev_is_the_finite_sample_so_many_before(loss: Samples, lag: int) -> None:
    expected = naive(lambda window: float(window[0]), loss, lag, lag)

    assert values(f"prev(loss, {lag})", loss) == expected


@given(loss=series)
@settings(max_examples=40, deadline=None)
def test_count_tells_how_many_of_the_last_recorded_held(loss: Samples) -> None:
    recorded = [value for value in loss if not is_absent(np.array([value]))[0]]
    found = [
        value
        for value, sample in zip(values("count(loss > 0, 4)", loss), loss, strict=True)
        if not is_absent(np.array([sample]))[0]
    ]

    assert found == [
        sum(value > 0 for value in recorded[max(0, index - 4) : index])
        for index in range(len(recorded))
    ]


@pytest.mark.parametrize(
    ("text", "loss", "expected"),
    [
        ("delta(loss)", [1, 4, 9], [None, 3, 5]),
        ("last(loss)", [1, ABSENT, 3], [1, 1, 3]),
        ("age(loss)", [ABSENT, 1, ABSENT, math.nan, 2], [None, 0, 1, 2, 0]),
        ("abs(loss)", [-2, math.inf], [2, math.inf]),
        ("log10(loss)", [100, 0], [2, -math.inf]),
        ("where(loss > 2, loss, 0 - loss)", [1, 3, ABSENT], [-1, 3, None]),
        ("zscore(loss, 4)", [1, 1, 1, 3, 1], [None, None, 0, math.inf, -0.5]),
        ("robust_z(loss, 4)", [1, 1, 1, 1.05], [None, None, 0, pytest.approx(5)]),
        ("loss / 0", [1, ABSENT], [math.inf, None]),
        ("mean(abs(delta(loss)), 2)", [1, 3, 4, 8], [None, None, 2, 1.5]),
    ],
)
def test_a_function_is_worth(text: str, loss: Samples, expected: list[float | None]) -> None:
    assert values(text, loss) == expected


def test_a_window_speaks_from_half_its_size_on_unless_told_otherwise() -> None:
    loss = [1.0] * 6

    assert values("median(loss, 5)", loss, None) == [None, None, None, 1, 1, 1]
    assert values("median(loss, 5)", loss, 5) == [None, None, None, None, None, 1]
    assert values("median(loss, 5)", loss, 64) == [None, None, None, None, None, 1]
