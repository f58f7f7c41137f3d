"""Reads a run's history from a service, in a notebook or script. Needs no torch.

    from runwatch_hooks.reading import connect

    run = connect().run("01JD3Y8K5W...")            # RUNWATCH_URL, RUNWATCH_TOKEN; scope `read`
    run.history("loss").to_pandas()
    run.history("grad_norm", layer="blocks.*").to_arrow()

It is part of this package because it uses the same HTTP client and the same light installation. The
core does no I/O, and the service must not be imported here.
"""

import importlib
import os
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final
from urllib.parse import quote, urlencode

import msgspec
import numpy as np
from numpy.typing import NDArray

from runwatch.addresses import fault_of
from runwatch.errors import InvalidInputError
from runwatch.key_texts import fault_of_key, trimmed
from runwatch.messages import Problem
from runwatch.nonfinite import JsonNumber
from runwatch_hooks.uplink.client import Client

MOST_POINTS: Final = 10_000
_DEFAULT_URL: Final = "http://127.0.0.1:8321"
_VALUES: Final = ("value", "min", "max", "mean")
_COUNTS: Final = ("count", "nonfinite")


class _Layout(msgspec.Struct):
    layers: list[str]
    stats: list[str]


class _Names(msgspec.Struct):
    metrics: list[str]
    layouts: list[_Layout]


class Gap(msgspec.Struct, frozen=True):
    """Stored steps that could not be read. They have no values in a history."""

    first_step: int
    last_step: int
    reason: str
    """lost: the stored object is gone. corrupt: it is damaged. late: the object store does not
    answer at the moment; try again."""


class _Series(msgspec.Struct):
    step_width: int
    steps: list[int]
    values: list[JsonNumber] | None = None
    min: list[JsonNumber] | None = None
    max: list[JsonNumber] | None = None
    mean: list[JsonNumber] | None = None
    count: list[int] | None = None
    nonfinite: list[int] | None = None
    left_out: list[int] = []
    gaps: list[Gap] = []


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """One series, or one stat of several layers one after another, in step order.

    `columns` has `step`; `layer` for a stat of layers; and `value` as recorded. If there are more
    steps than the requested number of points, it has instead of `value`, for each `step_width`
    steps: `min`, `max` and `mean` of the finite values, their `count`, and `nonfinite`, the number
    of NaN and infinite ones. A recorded NaN is NaN; steps without a recorded value are left out.

    A layer's `grad_norm` and the like are taken over finite elements. If any of these values leaves
    out others, there is also `nonfinite` beside `value`: 1 where it does or is not finite itself.
    """

    name: str
    step_width: int
    columns: dict[str, NDArray[Any]]
    gaps: tuple[Gap, ...] = ()
    """Gaps of any of the layers, in step order. Empty: everything stored was read."""

    def to_pandas(self) -> Any:
        """A `pandas.DataFrame`, with the gaps in its `attrs`. Needs `runwatch[arrow]`."""
        frame = importlib.import_module("pandas").DataFrame(self.columns)
        frame.attrs["gaps"] = [msgspec.to_builtins(gap) for gap in self.gaps]
        return frame

    def to_arrow(self) -> Any:
        """A `pyarrow.Table`, with the gaps as JSON in its metadata. Needs `runwatch[arrow]`."""
        table = importlib.import_module("pyarrow").table(self.columns)
        return table.replace_schema_metadata({"gaps": msgspec.json.encode(self.gaps)})


class RunReading:
    """The numbers of one run. Every method raises InvalidInputError with the service's message."""

    def __init__(self, client: Client, run_id: str) -> None:
        self._client = client
        self._path = f"/runs/{quote(run_id, safe='')}"

    def metrics(self) -> list[str]:
        """Names of the run's metrics."""
        return self._names().metrics

    def layers(self, pattern: str = "*") -> list[str]:
        """Names of the run's layers that match a glob pattern."""
        names = [name for layout in self._names().layouts for name in layout.layers]
        return [name for name in dict.fromkeys(names) if fnmatchcase(name, pattern)]

    def history(
        self,
        name: str,
        *,
        layer: str | None = None,
        first_step: int | None = None,
        last_step: int | None = None,
        points: int = MOST_POINTS,
        rank: int = 0,
    ) -> History:
        """A metric over steps or, with a glob pattern `layer`, a stat of all matching layers.

        `first_step` and `last_step` limit the range; `points` is the maximum number of points per
        series; `rank` selects whose numbers to read.
        """
        asked = {"from": first_step, "to": last_step, "points": points, "rank": rank}
        window = {key: value for key, value in asked.items() if value is not None}
        if layer is None:
            series = self._series({**window, "metric": name})
            return History(name, series.step_width, _columns(series), tuple(series.gaps))
        layers = self._layers_with(name, layer)
        found = [self._series({**window, "stat": name, "layer": one}) for one in layers]
        return _stacked(name, layers, found)

    def _layers_with(self, stat: str, pattern: str) -> list[str]:
        """Names of the layers that match and have this stat. A module whose activations are
        measured is a layer too, of a layout with other stats."""
        layouts = self._names().layouts
        every = dict.fromkeys(name for layout in layouts for name in layout.layers)
        matching = [name for name in every if fnmatchcase(name, pattern)]
        if not matching:
            raise InvalidInputError(f"layer: found {pattern!r}, which no layer of the run matches")
        having = {name for layout in layouts if stat in layout.stats for name in layout.layers}
        # Where none has it, the service says which stats there are.
        return [name for name in matching if name in having] or matching[:1]

    def _names(self) -> _Names:
        return msgspec.json.decode(_ask(self._client, f"{self._path}/metrics"), type=_Names)

    def _series(self, query: dict[str, object]) -> _Series:
        body = _ask(self._client, f"{self._path}/series?{urlencode(query)}")
        return msgspec.json.decode(body, type=_Series)


class Reading:
    """A service to read from."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def run(self, run_id: str) -> RunReading:
        return RunReading(self._client, run_id)


def connect(url: str | None = None, token: str | None = None) -> Reading:
    """Connect to a service; by default the one in RUNWATCH_URL, with the key in RUNWATCH_TOKEN.
    Raises InvalidInputError for an invalid address or key."""
    url = url or os.environ.get("RUNWATCH_URL") or _DEFAULT_URL
    if fault := fault_of(url):
        raise InvalidInputError(f"url: {fault}")
    key = trimmed(token) or trimmed(os.environ.get("RUNWATCH_TOKEN"))
    if fault := fault_of_key(key):
        raise InvalidInputError(f"token: {fault}")
    return Reading(Client(url, key or None, connect_timeout_s=10.0, read_timeout_s=60.0))


def _ask(client: Client, path: str) -> bytes:
    reply = client.request("GET", path)
    if reply.status == 200:
        return reply.body
    try:
        problem = msgspec.json.decode(reply.body, type=Problem)
    except (msgspec.DecodeError, msgspec.ValidationError):
        problem = Problem(title="", status=reply.status, code="")
    raise InvalidInputError(f"{path}: {reply.status} {problem.code} {problem.detail}".rstrip())


def _columns(series: _Series) -> dict[str, NDArray[Any]]:
    lists: dict[str, list[JsonNumber] | list[int] | None] = {
        "value": series.values,
        **{name: getattr(series, name) for name in (*_VALUES[1:], *_COUNTS)},
    }
    given = {name: numbers for name, numbers in lists.items() if numbers is not None}
    recorded = [
        index
        for index in range(len(series.steps))
        if "value" not in given or given["value"][index] is not None
    ]
    columns: dict[str, NDArray[Any]] = {"step": np.array(series.steps, np.int64)[recorded]}
    for name, numbers in given.items():
        kind = np.int64 if name in _COUNTS else np.float64
        # `float` accepts the service's "NaN", "+Inf" and "-Inf". null means no finite value.
        floats = [float("nan") if number is None else float(number) for number in numbers]
        columns[name] = np.array(floats)[recorded].astype(kind)
    if "value" in columns and series.left_out:
        columns["nonfinite"] = _nonfinite(columns, series.left_out)
    return columns


def _nonfinite(columns: dict[str, NDArray[Any]], left_out: list[int]) -> NDArray[np.int64]:
    """1 at each value that leaves out elements, or is not finite itself."""
    is_told = np.isin(columns["step"], left_out) | ~np.isfinite(columns["value"])
    return np.asarray(is_told, np.int64)


def _stacked(name: str, layers: list[str], found: list[_Series]) -> History:
    """Layers one after another. Raises InvalidInputError if their step widths differ."""
    widths = {series.step_width for series in found}
    if len(widths) > 1:
        raise InvalidInputError(
            f"history: found layers summed up over {sorted(widths)} steps, wanted one width; ask "
            "for fewer steps (first_step, last_step), or for fewer points"
        )
    parts = [(one, _columns(series)) for one, series in zip(layers, found, strict=True)]
    _mark_all([part for _, part in parts])
    columns: dict[str, NDArray[Any]] = {
        "step": np.concatenate([part["step"] for _, part in parts]),
        "layer": np.repeat([one for one, _ in parts], [len(part["step"]) for _, part in parts]),
    }
    for column in [name for name in parts[0][1] if name != "step"]:
        columns[column] = np.concatenate([part[column] for _, part in parts])
    gaps = {(gap.first_step, gap.last_step, gap.reason) for one in found for gap in one.gaps}
    return History(name, widths.pop(), columns, tuple(Gap(*gap) for gap in sorted(gaps)))


def _mark_all(parts: list[dict[str, NDArray[Any]]]) -> None:
    """Give each layer a column `nonfinite` if one of them has it."""
    if any("nonfinite" in part for part in parts):
        for part in parts:
            if "nonfinite" not in part:
                part["nonfinite"] = _nonfinite(part, [])
