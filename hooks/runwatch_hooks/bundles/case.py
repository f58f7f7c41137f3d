"""The contents of a bundle, from the training thread, which copies them, to the disk."""

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
from torch import Tensor

from runwatch_hooks.bundles.facts import BundleFacts, Kept
from runwatch_hooks.bundles.folder import BATCH, GOOD, ROWS, STATE
from runwatch_hooks.bundles.memory import tensors_of
from runwatch_hooks.bundles.rows import rows_tree
from runwatch_hooks.state import Captured
from runwatch_hooks.state.outcomes import NotPlainError
from runwatch_hooks.state.tree import Mapped, to_plain
from runwatch_hooks.statistics.readback import set_mark, wait_for
from runwatch_hooks.step.row import Row


class Arrival:
    """Waits for copies that were queued on the current streams of the tensors' devices."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        self._marks = [set_mark(device) for device in {one.device for one in tensors}]

    def wait(self) -> None:
        """Never on the training thread."""
        for mark in self._marks:
            wait_for(mark)


@dataclass(frozen=True, slots=True, eq=False)
class FaultState:
    """A training state at the fault; it is the state after `step`."""

    captured: Captured
    step: int
    has_optimizers: bool
    is_before: bool
    """Captured before the optimizer stepped, so it is kept even if it is not finite."""


@dataclass(slots=True, eq=False)
class Case:
    """Everything to be written about a fault."""

    facts: BundleFacts
    batches: list[object]
    rngs: list[Mapped]
    rng: Mapped
    arrival: Arrival
    """Ready once copies of the batches from an accelerator have arrived."""
    rows: list[Row]
    state: FaultState | None
    good: tuple[int, Captured] | None


def content_of(
    case: Case, are_parts: bool, max_bytes: int
) -> tuple[BundleFacts, dict[str, object]]:
    """The contents in plain types. A state of the user's objects that cannot be written is left
    out, with a note."""
    case.arrival.wait()
    batch: Mapped = {"batches": case.batches, "rngs": case.rngs, "rng": case.rng}
    parts: dict[str, object] = {
        BATCH: to_plain(batch, "batch"),
        ROWS: to_plain(rows_tree(case.rows), "rows"),
    }
    notes = list(case.facts.notes)
    state = good = None
    room = max_bytes
    if (one := case.state) is not None:
        one.captured.wait()
        if one.is_before or one.captured.is_finite:
            state = _kept(STATE, one.step, one.captured, one.has_optimizers, are_parts)
            parts[STATE] = {"state": to_plain(one.captured.tree)}
            room -= _tree_bytes(one.captured.tree)
        else:
            notes.append("the state was broken by the update before the fault was known")
    if case.good is not None:
        step, captured = case.good
        try:
            if _tree_bytes(captured.tree) <= room:
                parts[GOOD] = {"state": to_plain(captured.tree)}
                good = _kept(GOOD, step, captured, True, are_parts)
            else:
                notes.append(f"no room for the good state after step {step}")
        except NotPlainError as error:
            notes.append(f"the good state after step {step} is left out: {error}")
    return _with(case.facts, state, good, notes), parts


def _kept(file: str, step: int, captured: Captured, has_optimizers: bool, are_parts: bool) -> Kept:
    return Kept(file, step, captured.is_finite, has_optimizers, are_parts)


def _tree_bytes(tree: object) -> int:
    seen: dict[int, Tensor] = {id(one): one for one in tensors_of(tree)}
    return sum(one.numel() * one.element_size() for one in seen.values())


def _with(
    facts: BundleFacts, state: Kept | None, good: Kept | None, notes: list[str]
) -> BundleFacts:
    return msgspec.structs.replace(facts, state=state, good=good, notes=notes)
