"""The contract of all that observes a run's steps, and the one loop that calls the observers.

An observer never changes the training. Whatever it does, a fault of it costs that observer alone.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Concatenate, Final, Generic, ParamSpec, TypeVar

from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch.frames import Event
from runwatch.omissions import Omission
from runwatch_hooks.faults import Faults
from runwatch_hooks.ranks.team import World
from runwatch_hooks.signals import is_of_a_signal
from runwatch_hooks.statistics.layer_names import NamedTensor
from runwatch_hooks.step.layers import KnownOptimizer
from runwatch_hooks.step.numbers import Number
from runwatch_hooks.step.row import Row

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What an observer may know of its run when it is made."""

    modules: Mapping[str, nn.Module]
    schedulers: Sequence[object]
    world: World
    faults: Faults
    """For the observer's own hooks in torch; the calls below are guarded already."""


@dataclass(frozen=True, slots=True)
class Layers:
    """The run's layers, as they are at the moment. A slot is a layer's index in the layout."""

    gradient_at: Callable[[int], Tensor | None]
    slots_of_all: Callable[[], Iterable[Sequence[int]]]
    """The slots of each living optimizer."""


@dataclass(frozen=True, slots=True)
class OptimizerStep:
    """A step of one of the run's optimizers. Filtered: rehearsals, inner calls of one step, other
    threads and forked children are not reported."""

    optimizer: Optimizer
    slots: Sequence[int]
    """Of the run's layers that it steps: their indices in the layout."""
    has_closure: bool
    """Whether its gradients are computed within the step, as of LBFGS."""


@dataclass(frozen=True, slots=True)
class Clip:
    """A clip of gradients by their norm."""

    slots: Sequence[int]
    max_norm: float
    has_scaler: bool
    """Whether a gradient scaler was seen in the run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEnd:
    """A step that has ended; its row is still open."""

    step: int
    segment: int
    now: float
    """Seconds, by a monotonic clock."""
    saw_gradients: bool
    named: Sequence[NamedTensor]
    """All trained tensors."""
    is_sharded: bool
    """Whether tensors are split over ranks; this one holds parts of them."""
    optimizers: Sequence[KnownOptimizer]
    """Those given to `attach`, and those that were seen to step since."""


@dataclass(frozen=True, slots=True)
class StepNotes:
    """What an observer adds to the row of a step, and what it reports."""

    numbers: Mapping[str, Number] = field(default_factory=dict[str, Number])
    """A number that lies on an accelerator stays there, as a tensor without dimensions."""
    notices: tuple[str, ...] = ()
    """Sentences about what is not watched, each reported once."""
    omissions: tuple[Omission, ...] = ()
    """What is new about layers that the program leaves out."""


_NO_NOTES: Final = StepNotes()


class StepObserver:
    """Observes one run. Every method does nothing here; one that is not overridden costs nothing.

    No method may convert a tensor of an accelerator to a number or a bool, which is a sync, or look
    at all tensors at each step. The events of a step come one at a time, though not always in one
    thread. `on_row` may come in any thread, also within an event of a step.
    """

    name: ClassVar[str]
    """As the log and the event `hook_fault` show it."""

    @classmethod
    def make(cls, run: RunContext) -> "StepObserver | None":
        """The observer of a run; None if there is nothing to observe. On rank 0 only, unless
        overridden: that rank reports what is the same on all."""
        return cls() if run.world.is_leader else None

    def attach(self, layers: Layers) -> None:
        """The layers can be looked at from here on."""

    def on_backward(self, *, accumulates: bool) -> None:
        """A backward pass begins in the training thread, or one within another. `accumulates`: it
        adds to the gradients, as `backward` does and `torch.autograd.grad` does not."""

    def on_unscale(self, slots: Sequence[int]) -> None:
        """A scaler has unscaled the gradients of these layers."""

    def on_clip(self, clip: Clip) -> None:
        """Gradients are about to be clipped."""

    def before_optimizer(self, step: OptimizerStep) -> None:
        """An optimizer is about to step; its state and rates are as the program left them."""

    def on_gradients(self, step: OptimizerStep) -> None:
        """All gradients of an optimizer's step are complete: before the step or, if a closure
        computes them, after it."""

    def after_optimizer(self, step: OptimizerStep) -> None:
        """An optimizer has stepped. Not called if its step raised or was skipped by a scaler."""

    def end_step(self, end: StepEnd) -> StepNotes | None:
        """A step has ended. Its row may have had no optimizer step, or several."""

    def on_row(self, row: Row) -> Sequence[Event]:
        """All numbers of a row have arrived. Rows of one rank, in the order of their steps."""
        return ()

    def state_dict(self) -> Mapping[str, object]:
        """Entries of the watch's state, which the program saves, as JSON values."""
        return {}

    def load_state_dict(self, saved: Mapping[str, object], next_step: int) -> None:
        """Continue from an earlier watch's state, which may lack entries or hold anything."""

    def detach(self) -> None:
        """Remove all hooks from torch and from the model, at once: the run ends, or the observer
        has failed, or it follows optimizers and they can be followed no more. May be called
        repeatedly, from any thread, and within another event. Finished rows may still come."""


class _Calls(Generic[_P, _R]):
    """One event, and the observers that listen to it."""

    __slots__ = ("_on_fault", "observers")

    def __init__(
        self,
        observers: Iterable[tuple[StepObserver, Callable[_P, _R]]],
        on_fault: Callable[[StepObserver, Exception], None],
    ) -> None:
        self.observers = tuple(observers)
        self._on_fault = on_fault

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> list[_R]:
        """Call all, and return what those return that do not fail."""
        returned: list[_R] = []
        for observer, call in self.observers:
            try:
                returned.append(call(*args, **kwargs))
            except Exception as fault:
                if is_of_a_signal(fault):
                    raise
                self._on_fault(observer, fault)
        return returned


class Observers:
    """The observers of one run. Of each event, only those that override its method are called."""

    def __init__(self, observers: Iterable[StepObserver], faults: Faults) -> None:
        self._faults = faults
        self._all = tuple(observers)
        self._calls: list[_Calls[..., Any]] = []
        self.attach = self._of(StepObserver.attach)
        self.on_backward = self._of(StepObserver.on_backward)
        self.on_unscale = self._of(StepObserver.on_unscale)
        self.on_clip = self._of(StepObserver.on_clip)
        self.before_optimizer = self._of(StepObserver.before_optimizer)
        self.on_gradients = self._of(StepObserver.on_gradients)
        self.after_optimizer = self._of(StepObserver.after_optimizer)
        self._end_step = self._of(StepObserver.end_step)
        self._on_row = self._of(StepObserver.on_row)
        self._state_dict = self._of(StepObserver.state_dict)
        self.load_state_dict = self._of(StepObserver.load_state_dict)
        self.detach = self._of(StepObserver.detach)
        of_steps = (self.before_optimizer, self.on_gradients, self.after_optimizer)
        followers = {one for calls in of_steps for one, _ in calls.observers}
        self.lose_steps = self._of(StepObserver.detach, among=followers)
        """No optimizer step is seen any more: what follows them detaches."""

    def end_step(self, end: StepEnd) -> StepNotes:
        """What all observers add to the row."""
        found = [notes for notes in self._end_step(end) if notes is not None]
        if not found:
            return _NO_NOTES
        numbers: dict[str, Number] = {}
        notices: list[str] = []
        omissions: list[Omission] = []
        for notes in found:
            numbers |= notes.numbers
            notices += notes.notices
            omissions += notes.omissions
        return StepNotes(numbers, tuple(notices), tuple(omissions))

    def on_row(self, row: Row) -> list[Event]:
        return [event for events in self._on_row(row) for event in events]

    def state_dict(self) -> dict[str, object]:
        return {name: state for entries in self._state_dict() for name, state in entries.items()}

    def _of(
        self,
        method: Callable[Concatenate[StepObserver, _P], _R],
        among: Collection[StepObserver] | None = None,
    ) -> _Calls[_P, _R]:
        name = method.__name__
        asked = self._all if among is None else [one for one in self._all if one in among]
        overriding = [one for one in asked if getattr(type(one), name) is not method]
        calls: _Calls[_P, _R] = _Calls([(one, getattr(one, name)) for one in overriding], self._off)
        self._calls.append(calls)
        return calls

    def _off(self, observer: StepObserver, fault: Exception) -> None:
        """Switch an observer off for the rest of the run. Its hooks are removed."""
        for calls in self._calls:
            calls.observers = tuple(one for one in calls.observers if one[0] is not observer)
        self._faults.switch_off(observer.name, fault, observer.detach)
