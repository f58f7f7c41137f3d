"""The hook's own metrics of a step: its time, what was read of it, how this rank compares."""

import time

from runwatch_hooks.faults import Faults
from runwatch_hooks.measuring.machine_memory import MachineMemory
from runwatch_hooks.recording.instruments import Instruments
from runwatch_hooks.recording.restored_weights import RestoredWeights
from runwatch_hooks.recording.row_output import RowOutput
from runwatch_hooks.rows.user_numbers import UserNumbers
from runwatch_hooks.seeing.numbers import Number, count
from runwatch_hooks.seeing.step_reading import Reading


class OwnNumbers:
    """Those of one rank. Used by the training thread."""

    def __init__(
        self,
        instruments: Instruments,
        output: RowOutput,
        weights: RestoredWeights,
        given: UserNumbers,
        faults: Faults,
        *,
        is_leader: bool,
    ) -> None:
        """Only the leader records what is the same on all ranks. `given` are the program's
        metrics."""
        self._guard = instruments.guard
        self._governor = instruments.governor
        self._sensors = instruments.sensors
        self._output = output
        self._weights = weights
        self._given = given
        self._faults = faults
        self._is_leader = is_leader
        self._machine_memory = MachineMemory()

    def take(
        self, reading: Reading, step_time_s: float | None, tokens: int | None, lr_scale: float
    ) -> dict[str, Number]:
        """The metrics of the step that has ended."""
        numbers = self._pace(step_time_s, tokens) | self._output.numbers()
        if self._governor is not None:
            numbers |= self._governor.numbers()
        if self._sensors is not None:
            numbers |= self._sensors.take()
        with self._faults.guard("machine memory"):
            numbers |= self._machine_memory.take(time.monotonic())
        guarded = {} if self._guard is None else self._guard.take()
        if self._is_leader:
            numbers |= {"lr_scale": lr_scale, **reading.numbers, **guarded}
            if self._given.has_moving_target:
                numbers["alternating"] = 1.0
            if (num_other := self._weights.number()) is not None:
                numbers["unrestored_layers"] = num_other
        return numbers

    def _pace(self, step_time_s: float | None, tokens: int | None) -> dict[str, Number]:
        """The step's time in seconds, and tokens per second."""
        if step_time_s is None:
            return {}
        numbers: dict[str, Number] = {"step_time": step_time_s}
        counted = self._given.take_tokens(tokens, count)
        if counted is not None and step_time_s > 0:
            numbers["tokens_per_s"] = counted / step_time_s
        return numbers
