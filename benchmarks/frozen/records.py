"""A run as one flat record: a line for each value, event, alert and receipt.

Left out is what another execution of the same code would record differently: clocks, times and
what follows from them, ids, paths, memory, how rows were cut into frames, the order of names.
"""

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.commands import Receipt
from runwatch.frames import Frame
from runwatch.layouts import Layout
from runwatch.messages import AttemptClose
from runwatch.nonfinite import is_absent
from runwatch.rules import Evaluator, Rows, Rule, Transition

Record = dict[str, Any]
"""By what it is, in words: a number, or a small JSON value."""

VARIES: Final = frozenset(
    {
        "gpu_mem", "gpu_mem_share", "gpu_temp", "gpu_util", "hook_share", "host_mem",
        "host_mem_share", "loss_gap", "own_time", "rank_lag", "replica_drift", "sampling_interval",
        "step_time", "tokens_per_s",
    }
)  # fmt: skip
"""Metrics that clocks and the machine decide, or whose row depends on when ranks met."""
VARYING_ENDS: Final = ("_runtime", "_per_second")
"""Of the metrics of frameworks."""
VARYING_KINDS: Final = frozenset({"clock", "host", "stall"})
"""Events about the machine."""
LATE_KINDS: Final = frozenset({"checkpoint", "checkpoint_good"})
"""Events of a step, `of_step`, that come once the disk has it."""
VARYING_DETAILS: Final = frozenset({"path", "error", "seconds", "duration_s", "took_s", "at"})
START: Final = 1_000_000_000.0
"""Unix seconds of the first row as the rules get it."""
Values = NDArray[np.float32] | NDArray[np.float64]
RELATIVE: Final = 1e-5
"""Floats of one program on two machines, or under two versions of PyTorch, agree within this."""


def record_of(
    frames: Sequence[Frame],
    layouts: Mapping[str, Layout],
    rules: Sequence[Rule],
    receipts: Sequence[Receipt] = (),
    closings: Sequence[AttemptClose] = (),
    *,
    layers_every: int = 1,
) -> Record:
    """One run's record. Its frames come in any order, its receipts and closings as they came.

    With `layers_every`, values by layer only at each so many steps: alerts depend on all of them.
    """
    pieces = _pieces(frames)
    record: Record = {}
    for hash_of_layout in {frame.layout_hash for frame in frames if frame.layout_hash}:
        record |= _layers(layouts[hash_of_layout])
    for frame in pieces:
        record |= _metrics(frame)
        if frame.layout_hash and frame.first_step % layers_every == 0:
            record |= _layer_values(frame, layouts[frame.layout_hash])
    record |= _events(pieces) | _histograms(pieces)
    record |= _alerts(pieces, layouts, rules)
    record |= {
        f"receipt of {one.command_id} attempt {one.attempt} rank {one.rank} {one.state}": {
            "step": one.step,
            "detail": _steady(one.detail),
        }
        for one in receipts
    }
    record |= {
        f"closing {number}": [closing.status, closing.last_step, closing.reason]
        for number, closing in enumerate(closings, 1)
    }
    return record


def _pieces(frames: Sequence[Frame]) -> list[Frame]:
    """Frames of one row each, in the order of attempts, segments, steps and ranks, at times that
    count them: however the rows were cut into frames, and whenever they came."""
    ordered = sorted(frames, key=lambda one: (one.attempt, one.rank, one.seq))
    pieces = [piece for frame in ordered for piece in _cut(frame)]
    pieces.sort(key=lambda one: (one.attempt, one.segment, one.first_step, one.rank))
    return [_at(piece, START + place) for place, piece in enumerate(pieces)]


def _cut(frame: Frame) -> Iterator[Frame]:
    steady = [i for i, name in enumerate(frame.metric_names) if _is_steady(name)]
    frame = replace(
        frame,
        metric_names=tuple(frame.metric_names[i] for i in steady),
        metrics=frame.metrics.reshape(frame.num_steps, len(frame.metric_names))[:, steady],
        events=tuple(event for event in frame.events if event.kind not in VARYING_KINDS),
    )
    if not frame.num_steps:
        if frame.events or frame.histograms:
            yield frame
        return
    for row in range(frame.num_steps):
        step = frame.first_step + row
        yield replace(
            frame,
            first_step=step,
            times=frame.times[row : row + 1],
            metrics=frame.metrics[row : row + 1],
            stats=frame.stats[row : row + 1],
            events=tuple(one for one in frame.events if _nearest(one.step, frame) == step),
            histograms=tuple(one for one in frame.histograms if _nearest(one.step, frame) == step),
        )


def _is_steady(metric: str) -> bool:
    return metric not in VARIES and not metric.endswith(VARYING_ENDS)


def _nearest(step: int, frame: Frame) -> int:
    return min(max(step, frame.first_step), frame.last_step)


def _at(piece: Frame, at: float) -> Frame:
    events = tuple(msgspec.structs.replace(event, at=at) for event in piece.events)
    return replace(piece, times=np.full(piece.num_steps, at), events=events)


def _place(frame: Frame, step: int | None = None) -> str:
    place = f"attempt {frame.attempt} rank {frame.rank} segment {frame.segment}"
    return f"{place} step {frame.first_step if step is None else step}"


def _metrics(frame: Frame) -> Record:
    return _values(_place(frame), frame.metric_names, frame.metrics)


def _layer_values(frame: Frame, layout: Layout) -> Record:
    names = [f"{stat} of {layer}" for stat in layout.stats for layer in layout.layer_names]
    return _values(_place(frame), names, frame.stats)


def _values(place: str, names: Sequence[str], values: Values) -> Record:
    """Of one row, without those that were not recorded."""
    present = ~is_absent(values).reshape(-1)
    return {
        f"{place}: {name}": _number(value)
        for name, value, is_there in zip(names, values.reshape(-1), present, strict=True)
        if is_there
    }


def _number(value: Any) -> float:
    """With as many digits as can be compared."""
    return float(f"{float(value):.8g}")


def _layers(layout: Layout) -> Record:
    return {
        f"layer {layer.name}": [list(layer.shape), layer.dtype, sorted(layer.aliases)]
        for layer in layout.layers
    }


def _events(pieces: Sequence[Frame]) -> Record:
    """Numbered where one kind comes several times at a step."""
    found: dict[str, list[str]] = {}
    for frame in pieces:
        for event in frame.events:
            step = event.detail["of_step"] if event.kind in LATE_KINDS else event.step
            place = f"attempt {frame.attempt} rank {frame.rank} step {step}"
            details = json.dumps(_steady(event.detail), sort_keys=True)
            found.setdefault(f"{place}: event {event.kind}", []).append(details)
    return {
        f"{name} {number}": json.loads(details)
        for name, all_details in found.items()
        for number, details in enumerate(sorted(all_details), 1)
    }


def _steady(detail: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in detail.items() if name not in VARYING_DETAILS}


def _histograms(pieces: Sequence[Frame]) -> Record:
    return {
        f"{_place(frame, one.step)}: histogram of {one.kind} of {name}": {
            str(place): int(count) for place, count in enumerate(counts) if count
        }
        for frame in pieces
        for one in frame.histograms
        for name, counts in zip(one.names, one.counts(), strict=True)
    }


def _alerts(
    pieces: Sequence[Frame], layouts: Mapping[str, Layout], rules: Sequence[Rule]
) -> Record:
    evaluator = Evaluator(rules)
    found: Counter[str] = Counter()
    record: Record = {}
    for frame in pieces:
        rows = Rows.from_frame(frame, layouts.get(frame.layout_hash))
        for change in evaluator.observe(rows):
            name = f"alert {change.rule} {json.dumps(dict(change.labels), sort_keys=True)}"
            found[name] += 1
            record[f"{name} change {found[name]}"] = _change(change)
    return record


def _change(change: Transition) -> Record:
    return {
        "state": str(change.state),
        "reason": str(change.reason),
        "severity": str(change.severity),
        "attempt": change.attempt,
        "segment": change.segment,
        "step": change.step,
        "onset_step": change.onset_step,
        "value": _number(change.value),
        "first_layer": change.first_layer,
        "worst_layer": change.worst_layer,
        "layers": list(change.layers),
        "num_layers": change.num_layers,
        "inhibited_by": change.inhibited_by,
        "shadow": change.shadow,
        "actions": [msgspec.to_builtins(action) for action in change.actions],
    }


def write(record: Record, file: Path) -> None:
    """A line each, in order, so that any tool shows the differences of two."""
    lines = (f"{json.dumps(name)}: {json.dumps(record[name])}" for name in sorted(record))
    file.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def read(file: Path) -> Record:
    return cast(Record, json.loads(file.read_text(encoding="utf-8")))


def differences(before: Record, now: Record) -> list[str]:
    """A line for each entry that is missing, new or another."""
    lines: list[str] = []
    for name in sorted({*before, *now}):
        if name not in now:
            lines.append(f"- {name} = {json.dumps(before[name])}")
        elif name not in before:
            lines.append(f"+ {name} = {json.dumps(now[name])}")
        elif not agree(before[name], now[name]):
            lines.append(f"! {name}: {json.dumps(before[name])} -> {json.dumps(now[name])}")
    return lines


def agree(one: object, other: object) -> bool:
    """Whether two JSON values are the same, floats within `RELATIVE`; NaN is itself."""
    match one, other:
        case (bool() | None, _) | (_, bool() | None):
            return one is other
        case (int() | float(), int() | float()):
            return _close(float(one), float(other))
        case (list(), list()):
            ones, others = cast(list[object], one), cast(list[object], other)
            return len(ones) == len(others) and all(map(agree, ones, others))
        case (dict(), dict()):
            named, also = cast(Record, one), cast(Record, other)
            return named.keys() == also.keys() and all(agree(named[k], also[k]) for k in named)
        case _:
            return one == other


def _close(one: float, other: float) -> bool:
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=1e-12)
