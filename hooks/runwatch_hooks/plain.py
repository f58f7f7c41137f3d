"""Watches programs without torch: JAX, Keras, numpy, or any loop that has a loss.

    with open_run("mnist-jax", config={"lr": 1e-3}, allow=("stop",)) as run:
        for batch in batches:
            params, loss, grads = train_one(params, batch)
            report = run.step(loss, gradients=grads, parameters=params)
            if report.stop:
                break

Rows are sent in the same way as with `attach`: queue, spool, sender. In a job of several processes,
only rank 0 is watched.
"""

import os
import secrets
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, SupportsFloat

from runwatch.commands import Command, CommandState, LowerLr, Receipt
from runwatch.frames import Event, Scalar
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import Phase, RunId
from runwatch_hooks.exit_causes import (
    EndsWithItsBlock,
    ProgramExit,
    Status,
    ending_of,
    fatal_of,
    reason_of,
    text_of,
)
from runwatch_hooks.faults import Attaching, Faults
from runwatch_hooks.loop import LoopCompliance, Part
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.phases import Phases
from runwatch_hooks.settings.arguments import config_of, step_if_usable, step_of, text_if_usable
from runwatch_hooks.settings.environment import override, read_environment
from runwatch_hooks.settings.machine_facts import describe_machine
from runwatch_hooks.settings.options import kinds_of
from runwatch_hooks.statistics.machine_memory import MachineMemory
from runwatch_hooks.statistics.totals import Arrays, ArrayStats, RunTotals
from runwatch_hooks.step.row import Jumps, LossSpacing, Row, StepTimer
from runwatch_hooks.step.user_numbers import UserNumbers, as_count, as_float
from runwatch_hooks.uplink import Uplink, UplinkSettings
from runwatch_hooks.watch import StepReport

log = OwnLog(__name__)

_NOTICES: Final[Mapping[Part, str]] = {
    "stop": (
        "the run was asked to stop, but its program trains on: a loop must end when "
        "`run.step(...).stop` is true"
    ),
    "lr_scale": (
        "the learning rate was to be lowered, but the program does not read by how much: it must "
        "train at its own rate times `run.step(...).lr_scale`"
    ),
}


class PlainRun(EndsWithItsBlock):
    """One run, from `open_run` to `finish`. No method raises into the training. `finish` waits for
    the network, and `step` for arrays on an accelerator."""

    def __init__(
        self, run_id: RunId, uplink: Uplink | None, *, next_step: int, allow: Sequence[str]
    ) -> None:
        """With `uplink` None the run is not watched, and only its steps are counted."""
        self.run_id = run_id
        self._uplink = uplink
        self._next_step = next_step
        self._has_ended = False
        """Whether a step has ended in this life of the program."""
        self._allow = allow
        self._faults = Faults()
        self._given = UserNumbers(self._faults)
        self._stats = ArrayStats()
        self._totals = RunTotals()
        self._jumps = Jumps()
        self._timer = StepTimer()
        self._machine_memory = MachineMemory()
        self._loss_spacing = LossSpacing()
        self._phases = Phases()
        self._lr_scale = 1.0
        self._stop = False
        self._compliance = LoopCompliance(_NOTICES)
        self._program_exit = ProgramExit(self._end_by, self._end_by)
        if uplink is not None:
            self._program_exit.install()

    @property
    def next_step(self) -> int:
        """The number of the step to train next."""
        return self._next_step

    @property
    def num_faults(self) -> int:
        """The number of the hook's faults that were kept from the training."""
        return self._faults.count

    def step(
        self,
        loss: SupportsFloat | None = None,
        *,
        gradients: Arrays | None = None,
        parameters: Arrays | None = None,
        layers: Mapping[str, Mapping[str, float]] | None = None,
        tokens: int | None = None,
        **metrics: SupportsFloat,
    ) -> StepReport:
        """Record the end of a step, and carry out pending commands.

        `gradients` and `parameters` are arrays in mappings and lists of any depth, or single
        arrays. They are read here, so arrays on an accelerator are waited for. `layers` are stats
        that the program has computed itself: layer's name -> stat's name -> value.
        """
        step, self._next_step = self._next_step, self._next_step + 1
        self._has_ended = True
        uplink = self._uplink
        if uplink is None:
            return StepReport(step)
        self._program_exit.go_on()
        with self._faults.guard("row"):
            # The loss goes first: if there are too many metrics, the last ones are left out.
            theirs = self._numbers(metrics if loss is None else {"loss": loss, **metrics})
            numbers = self._timed(tokens)
            with self._faults.guard("machine memory"):
                numbers |= self._machine_memory.take(time.monotonic())
            numbers |= theirs
            self._loss_spacing.note_in(numbers)
            if self._given.has_moving_target:
                numbers.setdefault("alternating", 1.0)
            self._put(uplink, step, numbers, gradients, parameters, layers)
        with self._faults.guard("boundary"):
            self._tell_unheeded(step)
            self._tell_faults(step)
            for command in uplink.take_commands():
                self._carry_out(uplink, command)
            self._phases.settle(Phase.TRAIN)
            self._tell_progress()
            self._timer.begin(time.monotonic())
        return self._compliance.observed(StepReport(step, lr_scale=self._lr_scale, stop=self._stop))

    def log(self, **metrics: SupportsFloat) -> None:
        """Record numbers for the step that ended last, such as `val_loss`; before the first step,
        for that one."""
        uplink = self._uplink  # a thread or a signal handler may end the run meanwhile
        if uplink is not None and (numbers := self._numbers(metrics)):
            step = self._next_step - self._has_ended
            uplink.put_row(Row(step, 0, time.time(), numbers, is_logged=True))

    @contextmanager
    def phase(self, name: str) -> Generator[None, None, None]:
        """A period in which no step is expected and step time does not count. `name` is `eval`,
        `checkpoint` or `compile`; any other is recorded as `idle`."""
        name = text_of(name)
        with self._faults.guard("phase"):
            self._phases.enter(name)
            self._timer.pause(time.monotonic())
            self._tell_phase(name, "begin")
        try:
            yield
        finally:
            with self._faults.guard("phase"):
                self._phases.leave()
                self._timer.go_on(time.monotonic())
                self._tell_phase(name, "end")

    def finish(self, status: Status = "finished", *, reason: str = "") -> None:
        """End the run, and send what is still queued (waiting 10 s at most)."""
        if self._uplink is None:
            return
        status, reason = ending_of(status, reason)
        self._tell_faults(self._last_step)
        self._program_exit.remove()
        uplink, self._uplink = self._uplink, None
        with self._faults.guard("finish"):
            uplink.close("stopped" if self._stop else status, reason=reason)

    def _note_fatal(self, error: BaseException) -> None:
        fatal = fatal_of(error)
        if fatal is not None:
            self._tell(self._last_step, fatal, {"error": reason_of(error)})

    @property
    def _last_step(self) -> int:
        """The step that ended last; 0 before any has."""
        return max(self._next_step - 1, 0)

    def _put(
        self,
        uplink: Uplink,
        step: int,
        numbers: dict[str, float],
        gradients: Arrays | None,
        parameters: Arrays | None,
        layers: Mapping[str, Mapping[str, float]] | None,
    ) -> None:
        layout, columns = None, None
        if any(one is not None for one in (gradients, parameters, layers)):
            with self._faults.guard("layers"):
                layout, stats = self._stats.read(gradients, parameters, layers or {})
                numbers = self._totals.over(layout, stats) | numbers
                columns = stats.reshape(-1)
        urgent = self._jumps.is_urgent(numbers)
        uplink.put_row(Row(step, 0, time.time(), numbers, layout, columns, urgent=urgent))

    def _timed(self, tokens: int | None) -> dict[str, float]:
        step_time_s = self._timer.lap(time.monotonic())
        if step_time_s is None:
            return {"lr_scale": self._lr_scale}
        numbers = {"lr_scale": self._lr_scale, "step_time": step_time_s}
        counted = self._given.take_tokens(tokens, as_count)
        if counted is not None and step_time_s > 0:
            numbers["tokens_per_s"] = counted / step_time_s
        return numbers

    def _numbers(self, metrics: Mapping[str, SupportsFloat]) -> dict[str, float]:
        """The user's metrics as numbers; what cannot be converted is left out."""
        return self._given.take(metrics, as_float)

    def _carry_out(self, uplink: Uplink, command: Command) -> None:
        action = command.action
        state = CommandState.APPLIED
        detail: dict[str, Scalar] = {}
        if action.kind not in self._allow:
            allowed = ", ".join(self._allow) or "nothing"
            state = CommandState.REJECTED
            detail = {"error": f"{action.kind}: the trainer allows {allowed}"}
        elif isinstance(action, LowerLr):
            detail = {"lr_scale": action.scale, "before": self._lr_scale}
            self._lr_scale = action.scale
            self._compliance.expect("lr_scale")
        else:
            self._stop = True
            self._compliance.expect("stop")
        step = self._next_step
        uplink.put_receipt(Receipt(command.id, command.attempt, 0, state, step, detail))
        if isinstance(action, LowerLr) and state is CommandState.APPLIED:
            self._tell(step, "lr_scale", detail)

    def _tell_unheeded(self, step: int) -> None:
        for notice in self._compliance.end_step():
            log.warning("step %d: %s", step, notice)
            self._tell(step, "unheeded", {"what": notice})

    def _tell_faults(self, step: int) -> None:
        for fault in self._faults.untold():
            self._tell(step, "hook_fault", {"error": fault})

    def _tell_phase(self, name: str, edge: str) -> None:
        self._tell(self._last_step, "phase", {"phase": name, "edge": edge})
        self._tell_progress()

    def _tell_progress(self) -> None:
        uplink = self._uplink
        if uplink is not None:
            last = self._next_step - 1 if self._next_step else None
            uplink.set_progress(last, self._phases.now, self._lr_scale)

    def _tell(self, step: int, kind: str, detail: Mapping[str, Scalar]) -> None:
        uplink = self._uplink
        if uplink is not None:
            uplink.put_event(Event(step, kind, time.time(), {**detail}))


ALLOWED: Final = ("lower_lr", "stop")
"""The actions that such a program can carry out, by `lr_scale` and `stop` of the report."""


def open_run(
    run: str,
    *,
    project: str | None = None,
    group: str | None = None,
    config: Mapping[str, object] | None = None,
    run_id: str | None = None,
    url: str | None = None,
    token: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    next_step: int = 0,
    allow: Sequence[str] = (),
) -> PlainRun:
    """Start watching a run. Arguments and environment variables are those of `attach`.

    `next_step` is the step at which a resumed program continues. `allow` names the actions that may
    be carried out, of `lower_lr` and `stop`. Raises AttachError for an argument that cannot be
    used, and nothing else: where the hook itself fails, the program goes on unwatched.
    """
    environment = read_environment()
    if environment.disabled:  # arguments are not checked, so that nothing can be wrong
        return _unwatched(text_if_usable(run_id), step_if_usable(next_step) or 0)
    with Attaching():
        first_step = step_of("next_step", next_step)
        environment = override(
            environment,
            run=run,
            run_id=run_id,
            project=project,
            group=group,
            url=url,
            token=token,
            spool=spool,
        )
        if environment.rank != 0:
            return _unwatched(environment.run_id, first_step)
        found = RunId(environment.run_id or _new_ulid())
        kinds = kinds_of((allow,) if isinstance(allow, str) else allow, ALLOWED)
        settings = config_of(config)
        opened = RunOpen(
            run_id=found,
            name=run,
            project=environment.project,
            config=settings,
            group=environment.group,
        )
        uplink = Uplink(
            UplinkSettings(
                url=environment.url, token=environment.token, spool_dir=environment.spool_dir
            ),
            opened,
            _attempt(first_step, kinds, environment.job),
            0,
        )
        uplink.start()
        return PlainRun(found, uplink, next_step=first_step, allow=kinds)
    return _unwatched(text_if_usable(run_id), step_if_usable(next_step) or 0)


def _unwatched(run_id: str | None, next_step: int) -> PlainRun:
    return PlainRun(RunId(run_id or _new_ulid()), None, next_step=next_step, allow=())


def _new_ulid() -> str:
    return ulid(int(time.time() * 1000), os.urandom(10))


def _attempt(next_step: int, allow: tuple[str, ...], job: str | None) -> AttemptOpen:
    return AttemptOpen(
        token=secrets.token_urlsafe(32),
        started_at=time.time(),
        resume_step=next_step,
        world_size=1,
        allow=allow,
        host=describe_machine(job),
    )
