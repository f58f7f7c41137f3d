"""What is done between two steps: judge saved states, keep new ones, obey commands."""

import time
from collections.abc import Callable

from runwatch.commands import CommandState
from runwatch_hooks.actions import Actor
from runwatch_hooks.reporting.reports import Reports
from runwatch_hooks.watching.command_execution import Orders


class Boundary:
    """The acting part of a watch; the actor does it, and this says when."""

    def __init__(
        self,
        actor: Actor,
        orders: Orders,
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
        self.fault_step: int | None = None
        """Where what the last rollback went back from began, if anybody knows."""
        self._orders = orders
        self._checkpoint = checkpoint
        self._checkpoint_every = checkpoint_every

    def begin(self, next_step: int) -> None:
        """Before the first step."""
        self.actor.begin(next_step)
        self._orders.begin(next_step)

    def resume(self) -> int | None:
        """The step to train next, where there is a checkpoint to go on from."""
        return self._orders.resume()

    def act(self, step: int, reports: Reports, *, healthy: bool) -> int | None:
        """Do what is due after a step; the step to train next, where the run went back."""
        self.checkpoint_asked = False
        reports.tell(self.actor.note_step(step, healthy=healthy, now=time.time()))
        every = self._checkpoint_every
        if every is not None and (step + 1) % every == 0:
            self._checkpoint(step)
        rolled_back_to: int | None = None
        for outcome in self._orders.carry_out(step):
            reports.put_outcome(outcome)
            self.is_stopping = self.is_stopping or outcome.stop
            if outcome.receipt.state is CommandState.ACCEPTED:  # only a checkpoint takes time
                self.checkpoint_asked = True
            if outcome.rolled_back_to is not None:
                rolled_back_to = outcome.rolled_back_to
                self.fault_step = outcome.fault_step
        return rolled_back_to

    def close(self) -> None:
        """No command is obeyed any more."""
        self._orders.close()
