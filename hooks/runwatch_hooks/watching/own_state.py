"""A watch's own state, which the program saves in its checkpoints."""

from collections.abc import Mapping
from typing import cast

from msgspec import MsgspecError

from runwatch.errors import InvalidInputError
from runwatch.vocabulary import RunId
from runwatch_hooks.guard import Guard
from runwatch_hooks.reporting.progress import Progress
from runwatch_hooks.state import ActionError, Actor
from runwatch_hooks.step.observer import Observers

# Of msgspec, an error of validation is a ValueError since 0.21 only.
_UNLOADABLE = (KeyError, TypeError, ValueError, RuntimeError, MsgspecError, ActionError)


class OwnState:
    """The next step, the actor's journal and LR scale, the guard's past, the observers' states."""

    def __init__(
        self,
        run_id: RunId,
        progress: Progress,
        actor: Actor,
        guard: Guard | None,
        observers: Observers,
    ) -> None:
        self._run_id = run_id
        self._progress = progress
        self._actor = actor
        self._guard = guard
        self._observers = observers

    def save(self, *, does_device_hang: bool) -> dict[str, object]:
        """The state as JSON values. The guard's lies on the device: if that hangs, it is left out,
        as reading it would hang too."""
        guard = None if does_device_hang else self._guard
        return {
            "run_id": self._run_id,
            "next_step": self._progress.next_step,
            "actor": self._actor.state_dict(),
            "guard": {} if guard is None else guard.state_dict(),
            **self._observers.state_dict(),
        }

    def load(self, saved: Mapping[str, object]) -> None:
        """Raises InvalidInputError, with nothing changed, if it is not what `save` returned."""
        next_step, actor = saved.get("next_step"), saved.get("actor")
        past = saved.get("guard", {})
        is_whole = isinstance(actor, dict | None) and isinstance(past, dict)
        if not isinstance(next_step, int) or not is_whole:
            raise InvalidInputError(
                f"state_dict: found the keys {sorted(saved)}, wanted what a watch returned"
            )
        try:
            self._load(cast("dict[str, object] | None", actor), cast("dict[str, object]", past))
        except _UNLOADABLE as error:
            found = f"{type(error).__name__}: {error}"
            raise InvalidInputError(
                f"state_dict: found {found}, wanted what a watch returned"
            ) from error
        self._progress.next_step = next_step
        self._observers.load_state_dict(saved, next_step)

    def _load(self, actor: dict[str, object] | None, past: dict[str, object]) -> None:
        """Load both states, or neither if one of them does not fit."""
        if actor is not None:  # None: the state comes from a run that was not watched
            self._actor.check_state_dict(actor)
        if self._guard is not None:
            self._guard.load_state_dict(past)
        if actor is not None:
            self._actor.load_state_dict(actor)
