"""The hook's own metrics of a step: its time, what was read of it, how this rank compares."""

from runwatch_hooks.recording.instruments import Instruments
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
        given: UserNumbers,
        *,
        is_leader: bool,
    ) -> None:
        """Only the leader records what is the same on all ranks. `given` are the program's
        metrics."""
        self._guard = instruments.guard
        self._governor = instruments.governor
        self._sensors = instruments.sensors
        self._output = output
        self._given = given
        self._is_leader = is_leader

    def take(
        self, reading: Reading, step_time_s: float | None, tokens: int | None, lr_scale: float
    ) -> dict[str, Number]:
        """The metrics of the step that has ended."""
        numbers = self._pace(step_time_s, tokens) | self._output.numbers()
        if self._governor is not None:
            numbers |= self._governor.numbers()
        if self._sensors is not None:
            numbers |= self._sensors.take()
        guarded = {} if self._guard is None else self._guard.take()
        if self._is_leader:
            numbers |= {"lr_scale": lr_scale, **reading.numbers, **guarded}
            if self._given.has_moving_target:
                numbers["alternating"] = 1.0
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
