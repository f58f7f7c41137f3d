"""What curl can post means the same as what a trainer posts."""

import numpy as np
import pytest

from runwatch.errors import FrameError
from runwatch.frames import Frame
from runwatch.json_frames import from_json_frame, parse_json_frame
from runwatch.layouts import Layer, Layout
from runwatch.nonfinite import is_absent

LAYOUT = Layout((Layer("a"), Layer("b")), ("grad_norm", "nonfinite"))
STATS = b'"layout": "f00d", "stats": {"nonfinite": [[0, 1]], "grad_norm": [[0.5, "NaN"]]}'


def frame(body: bytes, layout: Layout | None = None) -> Frame:
    return from_json_frame(parse_json_frame(body), layout=layout, arrived_at=9.0)


def test_metrics_alone_make_a_frame() -> None:
    found = frame(b'{"attempt": 1, "seq": 1, "first_step": 4, "metrics": {"loss": [2, "-Inf"]}}')

    assert (found.metric_names, found.metrics.tolist()) == (("loss",), [[2.0], [-np.inf]])
    assert found.times.tolist() == [9.0, 9.0]


def test_null_is_not_recorded() -> None:
    found = frame(b'{"attempt": 1, "seq": 1, "first_step": 4, "metrics": {"loss": [null, "NaN"]}}')

    assert is_absent(found.metrics).tolist() == [[True], [False]]


def test_stats_stand_in_the_order_of_the_layout() -> None:
    found = frame(b'{"attempt": 1, "seq": 1, "first_step": 0, ' + STATS + b"}", LAYOUT)

    assert found.stat(LAYOUT, "nonfinite").tolist() == [[0.0, 1.0]]
    assert np.isnan(found.stat(LAYOUT, "grad_norm")[0, 1])


@pytest.mark.parametrize(
    ("rest", "message"),
    [
        (b'"metrics": {"loss": [1], "lr": [1, 2]}', "lists of different lengths"),
        (b'"metrics": {"loss": ["nan"]}', "metrics.loss: found 'nan', wanted a number"),
        (b'"metrics": {"loss": [1e999]}', "beyond float64|out of range"),
        (
            b'"metrics": {"loss": [1' + b"0" * 400 + b"]}",
            "metrics.loss: found a number beyond float64",
        ),
        (b'"metrics": {"loss": 1}', r"Expected `array`, got `int` - at `\$.metrics"),
        (b'"metrics": {}', "no step and no event"),
        (b'"loss": [1]', "unknown field `loss`"),
        (b'"metrics": {"loss": [1]}, "stats": {"grad_norm": [[1]]}', "found values but no layout"),
    ],
)
def test_a_slip_is_refused_with_its_place(rest: bytes, message: str) -> None:
    with pytest.raises(FrameError, match=message):
        frame(b'{"attempt": 1, "seq": 1, "first_step": 0, ' + rest + b"}")


def test_a_missing_layer_is_named() -> None:
    body = b'{"attempt": 1, "seq": 1, "first_step": 0, ' + STATS.replace(b"0, 1", b"0") + b"}"

    with pytest.raises(FrameError, match=r"stats.nonfinite\[0\]: found 1 values, wanted one for 2"):
        frame(body, LAYOUT)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(FrameError, match="frame: "):
        parse_json_frame(b"[" * 100_000)
