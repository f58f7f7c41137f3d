"""Computes the loss of detectors whose logs hold only its parts, as every `results.csv` of YOLO
does."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from runwatch_server.importing.run_log import Entry
from runwatch_server.importing.series_names import map_names

_PARTS: Final = frozenset((
    "box", "cls", "obj", "dfl", "seg", "sem", "pose", "kobj", "rle", "giou", "l1", "angle",
))  # fmt: skip
"""Ultralytics logs them multiplied by their weights, so the loss is their sum. Parts with other
names are left alone: the losses of an actor and a critic add up to nothing useful."""
_PART: Final = re.compile(r"(?P<section>train|val)/(?P<part>[a-z0-9]+)(?:_loss)", re.IGNORECASE)


def add_up(entries: list[Entry]) -> tuple[list[Entry], tuple[str, ...]]:
    """The entries with the losses computed from their parts, and notes on what was added."""
    names = list(dict.fromkeys(name for entry in entries for name in entry.values))
    known = set(map_names(names).metrics.values())
    sums = {
        f"{section}/loss": parts
        for section, metric in (("train", "loss"), ("val", "val_loss"))
        if metric not in known and len(parts := _parts(names, section)) > 1
    }
    if not sums:
        return entries, ()
    added = list(_with_sums(entries, sums))
    notes = (f"{name} is {' + '.join(parts)}" for name, parts in sums.items())
    return added, tuple(notes)


def _parts(names: list[str], section: str) -> list[str]:
    """The parts of one section, or none if one of them is not a known part."""
    found = [
        (name, match["part"].lower())
        for name in names
        if (match := _PART.fullmatch(name.strip())) and match["section"].lower() == section
    ]
    return [name for name, _ in found] if all(part in _PARTS for _, part in found) else []


def _with_sums(entries: list[Entry], sums: Mapping[str, list[str]]) -> Iterator[Entry]:
    """The entries with sums. If each part has an entry of its own, as in TensorBoard's files, the
    sum is added to the last entry of a step."""
    step: int | None = None
    of_step: dict[str, float] = {}
    for entry in entries:
        if entry.step is None or entry.step != step:
            step, of_step = entry.step, {}
        of_step |= entry.values
        whole = {
            name: sum(of_step[part] for part in parts)
            for name, parts in sums.items()
            if not entry.values.keys().isdisjoint(parts) and of_step.keys() >= set(parts)
        }
        yield replace(entry, values={**entry.values, **whole}) if whole else entry
