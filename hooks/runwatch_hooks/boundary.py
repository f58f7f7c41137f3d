"""What is done between two steps: confirm saved states, save new ones, carry out commands."""

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from runwatch.commands import Command, CommandState
from runwatch_hooks.ranks import RankStore, StoreError, Team
from runwatch_hooks.ranks.agreement import Agreement, Meeting
from runwatch_hooks.ranks.ballots import Proposal
from runwatch_hooks.reports import Reports
from runwatch_hooks.state import ActionError, Actor, Outcome


class CommandExecutor(Protocol):
    """Receives commands and decides at which boundary each is carried out."""

    def begin(self, next_step: int) -> None:
        """Accept commands from now on."""
        ...

    def carry_out(self, step: int) -> Iterator[Outcome]:
        """Carry out the commands due after a step, up to and including one that rolls back."""
        ...

    def close(self) -> None:
        """Carry out no more commands."""
        ...

    def resume(self) -> int | None:
        """Before the first step: load the newest checkpoint, the same one on all ranks. Returns
        the step to train next, or None without a checkpoint."""
        ...


class LocalExecutor:
    """The commands of a single process: each is carried out at the next boundary."""

    def __init__(self, actor: Actor, reports: Reports) -> None:
        self._actor = actor
        self._reports = reports
        self._waiting: list[Command] = []
        """Commands not yet carried out: what follows a rollback waits for the next boundary."""

    def begin(self, next_step: int) -> None:
        pass

    def carry_out(self, step: int) -> Iterator[Outcome]:
        self._waiting.extend(self._reports.take_commands())
        while self._waiting:
            command = self._waiting.pop(0)
            outcome = self._actor.apply(
                command,
                attempt=command.attempt,  # the uplink refuses commands for other attempts
                next_step=step + 1,
                now=self._reports.service_time(),
            )
            yield outcome
            if outcome.rolled_back_to is not None:
                return

    def close(self) -> None:
        pass

    def resume(self) -> int | None:
        return self._actor.resume()


class AgreedExecutor:
    """The commands of one of several ranks: those that all ranks agreed on for this boundary."""

    def __init__(self, actor: Actor, reports: Reports, team: Team) -> None:
        self._actor = actor
        self._reports = reports
        self._team = team
        self._told_loss = False
        self._agreement = Agreement(
            lambda: _opened(team, "agreement"),
            rank=team.world.rank,
            world_size=team.world.world_size,
            take=self._take if team.world.is_leader else None,
            objection=actor.objection,
        )

    def begin(self, next_step: int) -> None:
        self._agreement.start(next_step)

    def carry_out(self, step: int) -> Iterator[Outcome]:
        ended = self._agreement.reach(step + 1, self._actor.prepare)
        now = self._reports.service_time()
        for one in ended:  # at most one is carried out, with all ranks waiting at this boundary
            yield self._actor.end(one, next_step=step + 1, now=now)
        self._keep_pace()
        loss = self._agreement.loss
        if loss is not None and not self._told_loss:
            self._told_loss = True
            self._reports.tell_unwatched([f"no command is carried out any more: {loss}"], step, now)

    def _keep_pace(self) -> None:
        """Make all ranks take their snapshots at the same steps: a rollback needs one that they
        all have."""
        if self._team.world.is_leader:
            self._agreement.tell(self._actor.pace.every)
        elif self._agreement.told is not None:
            self._actor.pace.follow(self._agreement.told)

    def close(self) -> None:
        self._agreement.close()

    def resume(self) -> int | None:
        world = self._team.world
        try:
            meeting = Meeting(
                _opened(self._team, "resume"), rank=world.rank, world_size=world.world_size
            )
            return self._actor.resume(meeting)
        except StoreError as error:
            raise ActionError(
                f"resume: the ranks cannot agree on a checkpoint ({error})"
            ) from error

    def _take(self) -> list[Proposal]:
        now = self._reports.service_time()
        return [
            Proposal(command, command.expires_at - now) for command in self._reports.take_commands()
        ]


def executor_for(actor: Actor, reports: Reports, team: Team) -> CommandExecutor:
    if team.world.is_alone or not team.is_whole:
        return LocalExecutor(actor, reports)
    return AgreedExecutor(actor, reports, team)


def _opened(team: Team, purpose: str) -> RankStore:
    """Raises StoreLostError."""
    store = team.open_store(purpose)
    assert store is not None  # the team is whole
    return store


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
