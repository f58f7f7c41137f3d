"""What is done between two steps: judge saved states, keep new ones, obey commands."""

import time
from collections.abc import Callable

from runwatch.commands import Command, CommandState
from runwatch_hooks.actions import Actor
from runwatch_hooks.reports import Reports


class Boundary:
    """The acting part of a watch; the actor does it, and this says when."""

    def __init__(
        self,
        actor: Actor,
        *,
        checkpoint: Callable[[int], None],
        checkpoint_every: int | None,
    ) -> None:
        """`checkpoint` saves the state after a step, unasked; due every so many steps, or never."""
        self.actor = actor
        self.is_stopping = False
        """Somebody has asked the run to end."""
        self.checkpoint_asked = False
        """Somebody has asked for a checkpoint at the boundary last acted at."""
        self._checkpoint = checkpoint
        self._checkpoint_every = checkpoint_every
        self._waiting: list[Command] = []
        """Of what arrived together, the commands that a rollback has put off by a step."""

    def act(self, step: int, reports: Reports, *, healthy: bool) -> int | None:
        """Do what is due after a step; the step to train next, where the run went back."""
        self.checkpoint_asked = False
        reports.tell(self.actor.note_step(step, healthy=healthy, now=time.time()))
        every = self._checkpoint_every
        if every is not None and (step + 1) % every == 0:
            self._checkpoint(step)
        self._waiting.extend(reports.take_commands())
        while self._waiting:
            rolled_back_to = self._apply(self._waiting.pop(0), step + 1, reports)
            if rolled_back_to is not None:
                return rolled_back_to
        return None

    def _apply(self, command: Command, next_step: int, reports: Reports) -> int | None:
        outcome = self.actor.apply(
            command,
            attempt=command.attempt,  # the transport has refused those of other attempts
            next_step=next_step,
            now=time.time() + reports.service_clock_offset_s,
        )
        reports.put_outcome(outcome)
        self.is_stopping = self.is_stopping or outcome.stop
        if outcome.receipt.state is CommandState.ACCEPTED:  # only a checkpoint takes time
            self.checkpoint_asked = True
        return outcome.rolled_back_to
