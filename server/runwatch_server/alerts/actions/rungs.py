"""An alert's position on its ladder: what was tried, with what result, and what is next."""

from collections.abc import Sequence
from typing import Final

import msgspec

from runwatch.commands import CommandState
from runwatch.ladders import Page, words_of
from runwatch_server.alerts.records import AlertRecord, Recovery
from runwatch_server.commands.records import CommandRecord

FIRST_RUNG: Final = 100
"""Index of the first rung among an alert's actions; the rule's immediate actions have lower
ones."""

WAITS: Final = "rung_waits"
"""Kind of the event that says why the next rung was not taken yet."""


class RungView(msgspec.Struct, frozen=True):
    kind: str
    words: str
    standing: str
    """`next` and `later` while the alert goes on, `held` where a person has acknowledged it, `not
    needed` once it is over; `paged`, `passed over`; else what became of the command, or of the
    run after it: `did not help`, `recovered`."""
    command_id: str | None


def rungs_of(alert: AlertRecord, commands: Sequence[CommandRecord]) -> list[RungView]:
    """Every rung of the alert's ladder, first to last; empty where its rule has none."""
    ordered = {command.action_index: command for command in commands}
    views: list[RungView] = []
    for index, rung in enumerate(alert.facts.ladder):
        command = ordered.get(FIRST_RUNG + index)
        if index > _reached(alert):
            standing = _before_its_turn(alert, index)
        elif command is None:
            standing = "paged" if isinstance(rung, Page) else "passed over"
        else:
            standing = _after(alert, index, command)
        views.append(
            RungView(rung.kind, words_of(rung), standing, None if command is None else command.id)
        )
    return views


def recovery_after(alert: AlertRecord, command: CommandRecord) -> Recovery | None:
    """The verdict on one command of an alert. `alert.recovery` is the verdict on the last one, and
    the next rung is taken only after one that did not help."""
    index = command.action_index
    if index is not None and alert.rung is not None and index < FIRST_RUNG + alert.rung:
        return Recovery.NOT_RECOVERED
    return alert.recovery


def next_rung(alert: AlertRecord) -> int:
    """Index of the rung whose turn it is when the run does not recover."""
    return _reached(alert) + 1


def ladder_in_words(alert: AlertRecord, commands: Sequence[CommandRecord]) -> str:
    """The ladder as text for a message; empty if the rule has none."""
    return "; ".join(f"{one.words}: {one.standing}" for one in rungs_of(alert, commands))


def _reached(alert: AlertRecord) -> int:
    return -1 if alert.rung is None else alert.rung


def _before_its_turn(alert: AlertRecord, index: int) -> str:
    if not alert.state.is_open:
        return "not needed"
    if alert.acked_at is not None:
        return "held"
    return "next" if index == next_rung(alert) else "later"


def _after(alert: AlertRecord, index: int, command: CommandRecord) -> str:
    if command.state is not CommandState.APPLIED:
        return command.state.value
    if index < _reached(alert):
        return "did not help"
    return "applied" if alert.recovery is None else alert.recovery.replace("_", " ")
