"""Recognises a file's format by its content, and reads the run in it."""

import codecs
import json
import re
from pathlib import Path
from typing import Final

from runwatch.terminal_text import encodable
from runwatch_server.importing.building import build
from runwatch_server.importing.csv_log import read_csv
from runwatch_server.importing.errors import LogError
from runwatch_server.importing.json_lines import object_of, read_json_lines, read_objects
from runwatch_server.importing.json_table import is_table, read_cut_list, read_table
from runwatch_server.importing.leveldb_log import is_wandb
from runwatch_server.importing.long_table import named_by_file
from runwatch_server.importing.mlflow_run import metric_files, read_mlflow
from runwatch_server.importing.numbers import number_of
from runwatch_server.importing.run_log import RawLog, RunLog
from runwatch_server.importing.series_names import map_names
from runwatch_server.importing.tensorboard import read_events
from runwatch_server.importing.text_log import read_text_log
from runwatch_server.importing.tfrecord import is_tfrecord
from runwatch_server.importing.trainer_state import is_trainer_state, read_trainer_state
from runwatch_server.importing.wandb_run import read_wandb

MAX_FILE_BYTES: Final = 2 * 2**30
_NO_NAMES: Final = frozenset(("trainer_state", "metrics", "log", "history"))
_WANTED: Final = (
    "a trainer_state.json (or checkpoint-N folders with one), event files of TensorBoard, "
    "a .wandb file, a metrics.csv or the metrics of an MLflow run"
)
_NEITHER: Final = (
    "found neither a table nor lines that a trainer printed about its training, three at least of "
    "each form; wanted a log of a training"
)


def read_run_log(path: Path) -> RunLog:
    """The run in a file, or in a folder that a training left. Raises LogError or OSError."""
    try:
        return build(encodable(_name(path)), _raw(path))
    except RecursionError as error:
        raise LogError("", "found objects within objects, deeper than any log's") from error


def _raw(path: Path) -> RawLog:
    metrics = metric_files(path) if path.is_dir() else {}
    if metrics:
        return read_mlflow({encodable(name): _content(file) for name, file in metrics.items()})
    files = _files_of(path) if path.is_dir() else [path]
    return named_by_file(_read([_content(file) for file in files]), encodable(path.stem))


def _name(path: Path) -> str:
    """The run's name. Some programs give every run's file the same name."""
    whole = path.resolve()
    if path.is_dir():
        return whole.name
    return whole.parent.name if whole.stem in _NO_NAMES else whole.stem


def _read(contents: list[bytes]) -> RawLog:
    first = contents[0]
    if is_tfrecord(first):
        return read_events(contents)
    if is_wandb(first):
        return read_wandb(first)
    try:
        text = _text(first)
    except LogError:
        # A line in an encoding other than UTF-8, as in a path or a warning, does not spoil a
        # printed log; a file that is not text contains zero bytes.
        told = (
            None
            if b"\0" in first.rstrip(b"\0")
            else read_text_log(first.decode("utf-8", "replace"))
        )
        if told is None:
            raise
        return told
    return _read_text(text)


def _read_text(text: str) -> RawLog:
    head = text.lstrip()[:1]
    if head not in ("{", "["):
        return _read_table_or_text(text)
    document: object
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):  # several objects or a broken one: reported by line
        if head == "{":
            return _read_objects_or_text(text)
        return read_cut_list(text) or _read_table_or_text(text)
    if is_trainer_state(document):
        return read_trainer_state(document)
    if is_table(document):
        return read_table(document)
    return read_objects([("line 1", object_of(document, "line 1"))])


def _read_table_or_text(text: str) -> RawLog:
    """The log as a table, unless it cannot be one and its lines look like those of a training."""
    try:
        table = read_csv(text)
    except LogError:
        told = read_text_log(text)
        if told is None and _has_no_columns(text):
            raise LogError("", _NEITHER) from None
        if told is None:
            raise
        return told
    names = dict.fromkeys(name for entry in table.entries for name in entry.values)
    # A comma within the numbers of printed lines makes a table of them, but not one of a training.
    if map_names(names).is_of_training or any(entry.step is not None for entry in table.entries):
        return table
    told = read_text_log(text)
    if told is None and table.entries and not names and not _names_a_series(text):
        raise LogError("", _NEITHER)
    return told or table


def _has_no_columns(text: str) -> bool:
    """Whether the first line of a text can be the header of no table of a training."""
    header = _first_line(text)
    is_one_cell = not any(delimiter in header for delimiter in ",;\t")
    are_numbers = all(number_of(word) is not None for word in header.split())
    return is_one_cell and not are_numbers and not map_names([header]).is_of_training


def _names_a_series(text: str) -> bool:
    return map_names(re.split("[,;\t]", _first_line(text))).is_of_training


def _first_line(text: str) -> str:
    return text.lstrip().split("\n", 1)[0].strip()


def _read_objects_or_text(text: str) -> RawLog:
    """The log as JSON lines, unless the first is not JSON, like the dictionaries that a Trainer
    prints."""
    try:
        json.loads(text.lstrip().split("\n", 1)[0])
    except (ValueError, RecursionError):
        told = read_text_log(text)
        if told is not None:
            return told
    return read_json_lines(text)


def _content(file: Path) -> bytes:
    if not file.is_file():
        raise LogError("", "found no such file")
    num_bytes = file.stat().st_size
    if num_bytes > MAX_FILE_BYTES:
        raise LogError("", f"found {num_bytes} bytes, wanted at most {MAX_FILE_BYTES}")
    content = file.read_bytes()
    if not content.strip():
        raise LogError("", "found nothing in it, wanted a log")
    return content


def _text(content: bytes) -> str:
    """The text without what a crashed machine leaves at a file's end: part of a character, and
    zeros."""
    is_utf16 = content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))  # PowerShell's `>`
    encoding = "utf-16" if is_utf16 else "utf-8-sig"
    written = content if is_utf16 else content.rstrip(b"\0")
    try:
        return codecs.getincrementaldecoder(encoding)().decode(written).rstrip("\0")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise LogError(
            f"line {line}",
            "found neither text in UTF-8 nor an event file or a W&B run; wanted one of them",
        ) from error


def _files_of(folder: Path) -> list[Path]:
    """The files that hold a folder's run; of several trainer states, that of the newest
    checkpoint."""
    state = folder / "trainer_state.json"
    if state.is_file():
        return [state]
    states = sorted(folder.glob("checkpoint-*/trainer_state.json"), key=_checkpoint_step)
    if states:
        return [states[-1]]
    events = sorted(folder.glob("*tfevents*"), key=lambda file: file.name)
    if events:
        return events
    files = [*sorted(folder.glob("*.wandb")), folder / "metrics.csv"]
    found = next((file for file in files if file.is_file()), None)
    if found is None:
        raise LogError("", f"found a folder without a log, wanted {_WANTED}")
    return [found]


def _checkpoint_step(state: Path) -> int:
    match = re.fullmatch(r"checkpoint-([0-9]+)", state.parent.name)
    return int(match[1]) if match else -1
