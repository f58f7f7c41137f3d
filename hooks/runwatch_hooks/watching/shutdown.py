"""Sends what is left when a run ends: rows, receipts, a checkpoint or bundle being written."""

import time
from typing import Final

from runwatch_hooks.bundles import Witness
from runwatch_hooks.faults import Faults
from runwatch_hooks.lifecycle.run_end import Fatal, Status
from runwatch_hooks.reporting.reports import Reports
from runwatch_hooks.state import Notes
from runwatch_hooks.step.open_rows import RowOutput
from runwatch_hooks.step.row_builder import RowMaker
from runwatch_hooks.watching.boundary import Boundary

_CLOSE_TIMEOUT_S: Final = 10.0
DEVICE_TIMEOUT_S: Final = 10.0
"""How long to wait for a device to finish the last steps."""
_HANGS_TIMEOUT_S: Final = 1.0
_LEAVE_TIMEOUT_S: Final[dict[Status, float]] = {"finished": 5.0, "stopped": 5.0, "failed": 1.0}
"""How long to wait for the other ranks' last rows. A rank that failed cannot count on them."""


class Shutdown:
    """The shutdown of one watch. No method raises."""

    def __init__(
        self,
        rows: RowMaker,
        boundary: Boundary,
        output: RowOutput,
        reports: Reports,
        faults: Faults,
        witness: Witness | None,
    ) -> None:
        self._rows = rows
        self._boundary = boundary
        self._output = output
        self._reports = reports
        self._faults = faults
        self._witness = witness
        self._is_device_lost = False
        """A collective has failed, and a device may wait for it forever."""
        self.does_device_hang = False
        """A device did not answer when the run ended."""

    def note_fatal(self, fatal: Fatal, step: int, reason: str) -> None:
        """Report an error that ends the training after `step`."""
        self._is_device_lost = fatal is Fatal.COLLECTIVE_ERROR
        with self._faults.guard("fatal"):
            self._reports.tell_event(step, fatal, time.time(), {"error": reason})

    def note_broken_off(self, step: int, segment: int) -> None:
        """The training has failed, in or before this step."""
        with self._faults.guard("broken step"):
            self._rows.record_broken_off(step, segment)

    def send(self, status: Status, reason: str, *, next_step: int) -> None:
        """Send everything that is left. Waits for the network, for other ranks and for devices."""
        self._send_what_is_open(next_step)
        with self._faults.guard("ranks"):
            self._output.close(_LEAVE_TIMEOUT_S[status])
        with self._faults.guard("finish"):
            last_step = max(next_step - 1, 0)
            self._reports.tell_faults(last_step, time.time(), num_lost=self._rows.num_lost)
            if status == "finished" and self._boundary.is_stopping:
                status = "stopped"
            self._reports.close(status, _CLOSE_TIMEOUT_S, reason=reason)

    def send_at_exit(self, status: Status, reason: str) -> None:
        """The process ends: send the end only. A device is not waited for; it may be the cause."""
        with self._faults.guard("exit"):
            self._reports.close(status, _CLOSE_TIMEOUT_S, reason=reason)

    @property
    def _patience_s(self) -> float:
        """How long to wait for files being written. Short if a device hangs: their contents would
        have to come from it."""
        return _HANGS_TIMEOUT_S if self.does_device_hang else _CLOSE_TIMEOUT_S

    def _send_what_is_open(self, next_step: int) -> None:
        """Finish what is in progress: commands, rows, a checkpoint, a bundle."""
        with self._faults.guard("last commands"):
            self._boundary.close()
        with self._faults.guard("last rows"):
            all_came = self._rows.send_last(0.0 if self._is_device_lost else DEVICE_TIMEOUT_S)
            self.does_device_hang = not all_came
        with self._faults.guard("last checkpoint"):
            closed = self._boundary.actor.close(
                next_step=next_step, now=time.time(), timeout_s=self._patience_s
            )
            self._reports.tell(closed)
        with self._faults.guard("last bundle"):
            if self._witness is not None:
                self._witness.close(self._patience_s)
                self._reports.tell(Notes(events=tuple(self._witness.events(time.time()))))
