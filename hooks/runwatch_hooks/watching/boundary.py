"""What is done between two steps: confirm saved states, save new ones, carry out commands."""

import time
from collections.abc import Callable

from runwatch.commands import CommandState
from runwatch_hooks.reporting.reports import Reports
from runwatch_hooks.state import Actor
from runwatch_hooks.watching.command_execution import CommandExecutor


class Boundary:
    """The order of actions at a boundary. The actor carries them out."""

    def __init__(
        self,
        actor: Actor,
        executor: CommandExecutor,
        *,
        checkpoint: Callable[[int], None],
        checkpoint_every: int | None,
    ) -> None:
        """`checkpoint` saves the state after the given step; it is called every `checkpoint_every`
        steps, or never if that is None."""
        self.actor = actor
        self.is_stopping = False
        """A stop was requested."""
        self.checkpoint_asked = False
        """A checkpoint was requested at the last boundary."""
        self.fault_step: int | None = None
        """The step at which the trouble behind the last rollback began, if it is known."""
        self._interrupt: BaseException | None = None
        self._executor = executor
        self._checkpoint = checkpoint
        self._checkpoint_every = checkpoint_every

    def begin(self, next_step: int) -> None:
        """Before the first step."""
        self.actor.begin(next_step)
        self._executor.begin(next_step)

    def resume(self) -> int | None:
        """Load the newest checkpoint; returns the step to train next, or None without one."""
        return self._executor.resume()

    def act(self, step: int, reports: Reports, *, healthy: bool) -> int | None:
        """Do what is due after a step. Returns the step to train next after a rollback, else None.
        `healthy` says whether the rows sent since the last boundary were."""
        self.checkpoint_asked = False
        reports.tell(self.actor.note_step(step, healthy=healthy, now=time.time()))
        every = self._checkpoint_every
        if every is not None and (step + 1) % every == 0:
            self._checkpoint(step)
        rolled_back_to: int | None = None
        for outcome in self._executor.carry_out(step):
            reports.put_outcome(outcome)
            self.is_stopping = self.is_stopping or outcome.stop
            if outcome.receipt.state is CommandState.ACCEPTED:  # only checkpoints end later
                self.checkpoint_asked = True
            if outcome.rolled_back_to is not None:
                rolled_back_to = outcome.rolled_back_to
                self.fault_step = outcome.fault_step
                self._interrupt = outcome.interrupt
        return rolled_back_to

    def raise_interrupt(self) -> None:
        """Raise what interrupted the last rollback, such as Ctrl-C, once."""
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            raise interrupt

    def close(self) -> None:
        """Carry out no more commands."""
        self._executor.close()
