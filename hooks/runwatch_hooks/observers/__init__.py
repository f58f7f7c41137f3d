"""All observers of a run's steps. The order in which they are listed is that of their reports."""

from collections.abc import Iterator
from typing import Final

from runwatch_hooks.observers.alternation import Alternation
from runwatch_hooks.observers.machine_memory import MachineMemoryObserver
from runwatch_hooks.observers.mistakes.eval_mode import EvalMode
from runwatch_hooks.observers.mistakes.no_gradients import NoGradients
from runwatch_hooks.observers.mistakes.not_restored import NotRestored
from runwatch_hooks.observers.mistakes.other_weights import OtherWeights
from runwatch_hooks.observers.mistakes.scaled_clip import ScaledClip
from runwatch_hooks.observers.mistakes.untrained import Untrained
from runwatch_hooks.observers.mistakes.zero_grad import ZeroGrad
from runwatch_hooks.step.observer import Observers, RunContext, StepObserver

OBSERVERS: Final[tuple[type[StepObserver], ...]] = (
    MachineMemoryObserver,
    Alternation,
    EvalMode,
    NoGradients,
    NotRestored,
    OtherWeights,
    ScaledClip,
    Untrained,
    ZeroGrad,
)


def observers_of(run: RunContext) -> Observers:
    """Those that have something to observe in this run."""
    return Observers(_made(run), run.faults)


def _made(run: RunContext) -> Iterator[StepObserver]:
    for kind in OBSERVERS:
        made: StepObserver | None = None
        with run.faults.guard(kind.name):
            made = kind.make(run)
        if made is not None:
            yield made
