"""Reads Hugging Face's trainer_state.json: the log history that a Trainer saves with its
checkpoints."""

from dataclasses import replace
from typing import Final

import msgspec

from runwatch_server.importing.errors import LogError
from runwatch_server.importing.json_lines import object_of, read_objects
from runwatch_server.importing.run_log import RawLog
from runwatch_server.importing.skipped_steps import mark_skipped

_HISTORY: Final = "log_history"
_OF_THE_WHOLE_RUN: Final = "train_runtime"
"""Only the last entry has it; its train_loss is the mean over all steps, not the loss of a step."""


def is_trainer_state(document: object) -> bool:
    return isinstance(document, dict) and _HISTORY in document


def read_trainer_state(document: object) -> RawLog:
    """The log in a parsed file. Raises LogError."""
    history = object_of(document, "file")[_HISTORY]
    try:
        entries = msgspec.convert(history, list[object])
    except msgspec.ValidationError as error:
        raise LogError(_HISTORY, f"found {history!r:.40}, wanted a list of objects") from error
    places = [f"{_HISTORY}[{index}]" for index in range(len(entries))]
    objects = [
        (place, object_of(entry, place)) for place, entry in zip(places, entries, strict=True)
    ]
    log = read_objects([pair for pair in objects if _OF_THE_WHOLE_RUN not in pair[1]])
    marked, notes = mark_skipped(log.entries)
    return replace(log, entries=marked, notes=(*log.notes, *notes))
