"""Records the program's host memory; see `measuring.machine_memory`, which needs no torch."""

from runwatch_hooks.statistics.machine_memory import MachineMemory
from runwatch_hooks.step.observer import RunContext, StepEnd, StepNotes, StepObserver


class MachineMemoryObserver(StepObserver):
    """On each rank, which has a process of its own."""

    name = "machine memory"

    def __init__(self) -> None:
        self._memory = MachineMemory()

    @classmethod
    def make(cls, run: RunContext) -> StepObserver:
        return cls()

    def end_step(self, end: StepEnd) -> StepNotes | None:
        numbers = self._memory.take(end.now)
        return StepNotes(numbers) if numbers else None
