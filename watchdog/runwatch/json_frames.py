"""Frames as JSON, so that any language can post them, with curl if need be.

    {"attempt": 1, "seq": 7, "first_step": 42,
     "metrics": {"loss": [2.31, "NaN"], "lr": [0.001, null]},
     "layout": "<hash>", "stats": {"grad_norm": [[0.1, 0.2], [0.1, "+Inf"]]}}

A list holds one value a step; a stat holds one list of layers a step. `rank` and `segment`
default to 0; `times` (Unix seconds, one a step) to the moment of arrival.
"""

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.errors import FrameError
from runwatch.frames import Event, Frame, check_event_time
from runwatch.layouts import Layout
from runwatch.nonfinite import from_json

_Number = float | int | str | None


class JsonFrame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A parsed JSON frame, its numbers still as JSON writes them."""

    attempt: int
    """The number that opening the attempt returned."""
    seq: int
    """The rank's frames count from 1; one that was stored already changes nothing."""
    first_step: int
    """Each list begins with this step, and goes on step by step."""
    rank: int = 0
    segment: int = 0
    """How many rollbacks the attempt has been through."""
    times: list[float] | None = None
    """When each step ended, Unix seconds; null: as the frame arrives."""
    metrics: dict[str, list[_Number]] = {}
    """A number a step, by the metric's name; null: not recorded."""
    layout: str = ""
    """Hash of the layout that names the layers; empty: no stats."""
    stats: dict[str, list[list[_Number]]] = {}
    """By the stat's name a list a step, with a number a layer of the layout."""
    events: tuple[Event, ...] = ()
    """What happened at these steps."""
    lost: int = 0
    """How many frames right before this one will never come; nobody waits for them then."""


def parse_json_frame(body: bytes) -> JsonFrame:
    """The JSON frame in a body. Raises FrameError that names the place."""
    try:
        return msgspec.json.decode(body, type=JsonFrame)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise FrameError(f"frame: {error}") from error


def from_json_frame(parsed: JsonFrame, *, layout: Layout | None, arrived_at: float) -> Frame:
    """The frame with its numbers as arrays.

    `layout` is the one that `parsed.layout` names, None where it names none. `arrived_at` is in
    Unix seconds. Raises FrameError.
    """
    num_steps = _num_steps(parsed)
    for event in parsed.events:
        check_event_time(event)
    frame = Frame(
        attempt=parsed.attempt,
        rank=parsed.rank,
        seq=parsed.seq,
        segment=parsed.segment,
        first_step=parsed.first_step,
        times=np.array([arrived_at] * num_steps if parsed.times is None else parsed.times, float),
        metric_names=tuple(parsed.metrics),
        metrics=_metrics(parsed.metrics, num_steps),
        layout_hash=parsed.layout if layout is not None and num_steps else "",
        stats=_stats(parsed.stats, layout, num_steps),
        events=parsed.events,
        lost=parsed.lost,
    )
    frame.check_not_empty()
    return frame


def _num_steps(parsed: JsonFrame) -> int:
    lengths = {f"metrics.{name}": len(values) for name, values in parsed.metrics.items()}
    lengths |= {f"stats.{name}": len(rows) for name, rows in parsed.stats.items()}
    if parsed.times is not None:
        lengths["times"] = len(parsed.times)
    if len(set(lengths.values())) > 1:
        found = ", ".join(f"{place}: {length}" for place, length in lengths.items())
        raise FrameError(f"frame: found lists of different lengths ({found}), wanted one a step")
    return next(iter(lengths.values()), 0)


def _metrics(metrics: dict[str, list[_Number]], num_steps: int) -> NDArray[np.float64]:
    matrix = np.empty((num_steps, len(metrics)), np.float64)
    for column, (name, values) in enumerate(metrics.items()):
        matrix[:, column] = _numbers(f"metrics.{name}", values)
    return matrix


def _stats(
    stats: dict[str, list[list[_Number]]], layout: Layout | None, num_steps: int
) -> NDArray[np.float32]:
    if layout is None:
        if stats:
            raise FrameError("stats: found values but no layout, wanted the hash of one")
        return np.empty((num_steps, 0), np.float32)
    if set(stats) != set(layout.stats):
        raise FrameError(f"stats: found {sorted(stats)}, wanted {sorted(layout.stats)}")
    return np.concatenate(
        [_stat_matrix(name, stats[name], len(layout.layers)) for name in layout.stats], axis=1
    )


def _stat_matrix(name: str, rows: list[list[_Number]], num_layers: int) -> NDArray[np.float32]:
    matrix = np.empty((len(rows), num_layers), np.float32)
    for index, row in enumerate(rows):
        place = f"stats.{name}[{index}]"
        if len(row) != num_layers:
            raise FrameError(
                f"{place}: found {len(row)} values, wanted one for {num_layers} layers"
            )
        with np.errstate(over="ignore"):  # beyond float32 is infinite, as it is on a trainer
            matrix[index] = _numbers(place, row)
    return matrix


def _numbers(place: str, values: Sequence[_Number]) -> NDArray[np.float64]:
    try:
        return np.array([_number(value) for value in values], np.float64)
    except ValueError as error:
        raise FrameError(f"{place}: {error}") from error
    except OverflowError as error:  # whole numbers have no end in JSON
        raise FrameError(
            f'{place}: found a number beyond float64, wanted "+Inf" or "-Inf" for infinity'
        ) from error


def _number(value: _Number) -> float:
    number = from_json(value)
    if isinstance(value, float) and math.isinf(number):  # 1e999 is a slip, "+Inf" is a statement
        raise ValueError('found a number beyond float64, wanted "+Inf" or "-Inf" for infinity')
    return number
