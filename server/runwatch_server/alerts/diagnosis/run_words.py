"""Events and commands of a run, described in words."""

from collections.abc import Callable, Mapping
from typing import Final

from runwatch.number_texts import count, counted
from runwatch_server.alerts.records import RunEvent
from runwatch_server.commands.records import CommandRecord


def _step(detail: Mapping[str, object], name: str) -> str:
    """A step that a trainer wrote into its event, or whatever else it wrote there."""
    value = detail.get(name)
    return count(value) if isinstance(value, int) else str(value)


def _words_of_gap(detail: Mapping[str, object]) -> str:
    """A gap that the service found, that the trainer reports of its rows, or of their layers."""
    if "lost_rows" in detail:
        return f"the trainer lost {_lost(detail)} ({_reason(detail)})"
    if "rows_without_stats" in detail:
        return f"{detail['rows_without_stats']} rows came without their layers' numbers"
    return f"{detail.get('num_frames', 'some')} frames are missing"


def _lost(detail: Mapping[str, object]) -> str:
    """How many rows and events were lost. A damaged record does not say what it held."""
    numbers = {noun: detail.get(f"lost_{noun}s") for noun in ("row", "event")}
    told = [counted(num, noun) for noun, num in numbers.items() if isinstance(num, int) and num]
    return " and ".join(told) or "an unknown number of rows"


def _reason(detail: Mapping[str, object]) -> str:
    return str(detail.get("reason", "for no known reason")).replace("_", " ")


_WORDS: Final[Mapping[str, Callable[[Mapping[str, object]], str]]] = {
    "phase": lambda detail: f"{detail.get('phase', 'a phase')} {detail.get('edge', '')}".strip(),
    "rollback": lambda detail: f"rolled back to the state after step {_step(detail, 'to_step')}",
    "lr_scale": lambda detail: (
        f"learning rate scaled by {detail.get('lr_scale')}, before by {detail.get('before')}"
    ),
    "checkpoint": lambda _: "a checkpoint was written",
    "gap": _words_of_gap,
    "diagnostic_bundle": lambda detail: (
        f"a diagnostic bundle of step {_step(detail, 'of_step')} "
        + (f"failed: {detail['error']}" if "error" in detail else f"lies in {detail.get('path')}")
    ),
    "guarded": lambda detail: (
        "the guard kept a step by a gradient "
        + ("far outside its past" if detail.get("because") == "outside its past" else "not finite")
        + " from the weights"
    ),
    "guard_relearned": lambda _: "the guard took a lasting gradient norm for the new level",
    "sampling": lambda detail: (
        f"gradients are read every {detail.get('sampling_interval')} steps from here on, "
        f"weights every {detail.get('weights_interval')}"
    ),
}
"""Kinds of event whose detail is no sentence. An event that has one, as `what`, needs no words."""


def words_of_event(event: RunEvent) -> str:
    say = _WORDS.get(event.kind)
    if say is not None:
        return say(event.detail)
    return str(event.detail.get("what", event.kind.replace("_", " ")))


def words_of_command(command: CommandRecord) -> str:
    step = "" if command.ended_step is None else f" at step {count(command.ended_step)}"
    return f"{command.kind} {command.state}{step}"
