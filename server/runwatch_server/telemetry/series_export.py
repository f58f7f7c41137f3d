"""Exports a series as a table for other programs: CSV, Arrow's stream format, Parquet."""

import csv
import importlib
import io
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Any, Final

from runwatch.extras import pip_install
from runwatch.nonfinite import JsonNumber
from runwatch_server.errors import UnprocessableError
from runwatch_server.telemetry.gaps import Gap

Columns = Mapping[str, Sequence[JsonNumber] | Sequence[int]]
"""`step`, and `value` or `min`, `max`, `mean`, `count` and `nonfinite`; all of the same length. If
some values leave out elements that are not finite, also `nonfinite` beside `value`. If some steps
could not be read, also `gap`: see `with_gaps`."""

_WHOLE_NUMBERS: Final = ("step", "count", "nonfinite")


class SeriesFormat(StrEnum):
    JSON = "json"
    CSV = "csv"
    ARROW = "arrow"
    PARQUET = "parquet"


MEDIA_TYPES: Final[Mapping[SeriesFormat, str]] = {
    SeriesFormat.JSON: "application/json",
    SeriesFormat.CSV: "text/csv",
    SeriesFormat.ARROW: "application/vnd.apache.arrow.stream",
    SeriesFormat.PARQUET: "application/vnd.apache.parquet",
}


def format_asked_for(named: SeriesFormat | None, accept: str) -> SeriesFormat:
    """The format that is named, else the first known one in the `Accept` header, else JSON."""
    if named is not None:
        return named
    kinds = {media_type: kind for kind, media_type in MEDIA_TYPES.items()}
    listed = (part.partition(";")[0].strip().lower() for part in accept.split(","))
    return next((kinds[one] for one in listed if one in kinds), SeriesFormat.JSON)


def with_gaps(columns: Columns, gaps: Sequence[Gap]) -> Columns:
    """Add a row without numbers at the first and last step of each gap, and a column `gap` with the
    reason in these rows, so that whoever plots the table sees that something is missing. Without
    gaps the table stays as it is."""
    if not gaps:
        return columns
    num_numbers = len(columns) - 1
    recorded = [(*row, None) for row in zip(*columns.values(), strict=True)]
    edges = [
        (step, *[None] * num_numbers, gap.reason.value)
        for gap in gaps
        for step in sorted({gap.first_step, gap.last_step})
    ]
    rows = sorted([*recorded, *edges], key=_step_of)
    return dict(zip([*columns, "gap"], zip(*rows, strict=True), strict=True))


def exported(columns: Columns, kind: SeriesFormat) -> bytes:
    """The table as bytes, in any format but JSON. Raises UnprocessableError if Arrow is not
    installed."""
    makers: dict[SeriesFormat, Callable[[Columns], bytes]] = {
        SeriesFormat.CSV: _csv,
        SeriesFormat.ARROW: _arrow,
        SeriesFormat.PARQUET: _parquet,
    }
    return makers[kind](columns)


def _csv(columns: Columns) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    return text.getvalue().encode()


def _arrow(columns: Columns) -> bytes:
    table = _table(columns)
    sink = io.BytesIO()
    with _module("pyarrow.ipc").new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _parquet(columns: Columns) -> bytes:
    sink = io.BytesIO()
    _module("pyarrow.parquet").write_table(_table(columns), sink, compression="zstd")
    return sink.getvalue()


def _table(columns: Columns) -> Any:
    """An Arrow table. NaN and infinities stay as they are; null where nothing (finite) was
    recorded."""
    arrow = _module("pyarrow")
    kinds = {"gap": arrow.string(), **dict.fromkeys(_WHOLE_NUMBERS, arrow.int64())}
    return arrow.table(
        {
            name: arrow.array(numbers, kinds[name])
            if name in kinds
            else arrow.array([_float(number) for number in numbers], arrow.float64())
            for name, numbers in columns.items()
        }
    )


def _step_of(row: tuple[Any, ...]) -> int:
    step: int = row[0]
    return step


def _float(number: JsonNumber | int) -> float | None:
    return None if number is None else float(number)


def _module(name: str) -> Any:
    """Import a module by its name, because Arrow is an optional part of the installation."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise UnprocessableError(
            "format_not_installed",
            f"Arrow is not installed at the service; install it with: {pip_install('arrow')}",
        ) from error
