"""Reads W&B's offline runs: the history items of a run-*.wandb file.

Field numbers: wandb/proto/wandb_internal.proto.
"""

import json
from typing import Final

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.json_lines import read_objects
from runwatch_server.importing.leveldb_log import records
from runwatch_server.importing.protobuf import WireError, as_bytes, as_int, as_text, fields, signed
from runwatch_server.importing.run_log import RawLog

_HISTORY = 2  # of Record
_ITEM, _STEP = 1, 2  # of HistoryRecord
_NUMBER = 1  # of HistoryStep
_KEY, _NESTED_KEY, _VALUE_JSON = 1, 2, 16  # of HistoryItem
_OWN_NAMES: Final = ("_runtime", "_wandb")
"""Names that W&B adds to each row."""


def read_wandb(content: bytes) -> RawLog:
    """The log in a .wandb file. Raises LogError."""
    rows: list[tuple[str, dict[str, object]]] = []
    for offset, record in records(content):
        place = f"byte {offset}"
        try:
            rows += [
                (place, _row(as_bytes(value), place))
                for number, value in fields(record)
                if number == _HISTORY
            ]
        except WireError as error:
            raise LogError(place, f"found no record of W&B: {error}") from error
    return read_objects(rows)


def _row(history: bytes, place: str) -> dict[str, object]:
    row: dict[str, object] = {}
    for number, value in fields(history):
        if number == _ITEM:
            name, found = _item(as_bytes(value), place)
            if not name.startswith(_OWN_NAMES):
                row[name] = found
        elif number == _STEP:
            steps = [signed(as_int(n)) for field, n in fields(as_bytes(value)) if field == _NUMBER]
            row.setdefault("_step", steps[-1] if steps else 0)
    return row


def _item(message: bytes, place: str) -> tuple[str, object]:
    keys: list[str] = []
    text = "null"
    for number, value in fields(message):
        if number in (_KEY, _NESTED_KEY):
            keys.append(as_text(value))
        elif number == _VALUE_JSON:
            text = as_text(value)
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise LogError(place, f"{'/'.join(keys)}: found no JSON ({error})") from error
    return "/".join(keys), found
