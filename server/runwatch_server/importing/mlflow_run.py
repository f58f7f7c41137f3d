"""Reads the folder in which MLflow keeps a run: a file per metric, of lines `time value step`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.numbers import number_of, unix_time, whole_step
from runwatch_server.importing.run_log import Entry, RawLog

_FIELDS: Final = 3
"""Of a line; MLflow 3 adds more behind them, about data sets and models."""
_OF_THE_MACHINE: Final = "system/"
"""What MLflow measures of the machine: its steps count these samples, not those of the training."""


def metric_files(folder: Path) -> dict[str, Path]:
    """The files by their metrics' names; none if MLflow did not write the folder. A name with a
    slash is a path below it."""
    if not (folder / "meta.yaml").is_file():
        return {}
    metrics = folder / "metrics"
    files = sorted(file for file in metrics.rglob("*") if file.is_file())
    return {file.relative_to(metrics).as_posix(): file for file in files}


def read_mlflow(contents: dict[str, bytes]) -> RawLog:
    """The log in the contents of metrics' files, by their names. Raises LogError."""
    ours = {name: found for name, found in contents.items() if not name.startswith(_OF_THE_MACHINE)}
    entries = [entry for name, found in ours.items() for entry in _entries(name, found)]
    # As they were logged, since only that shows where a job went back to an earlier step.
    entries.sort(key=lambda entry: entry.at or 0.0)
    notes = [f"{len(ours)} metrics of a run of MLflow"]
    if num_left_out := len(contents) - len(ours):
        notes.append(f"series of the machine, with steps of their own: left out ({num_left_out})")
    return RawLog(entries, tuple(notes))


def _entries(name: str, content: bytes) -> Iterator[Entry]:
    lines = content.decode("utf-8", "replace").split("\n")
    for number, line in enumerate(lines, start=1):
        place = f"{name}, line {number}"
        fields = line.split()
        if not fields or (len(fields) < _FIELDS and number == len(lines)):
            continue  # a killed job leaves a line cut off
        time, value, step = (*map(number_of, fields), None, None, None)[:_FIELDS]
        if time is None or value is None or step is None:
            raise LogError(place, f"found {line[:40]!r}, wanted a time, a value and a step")
        yield Entry(place, whole_step(step, place), unix_time(time), {name: value})
