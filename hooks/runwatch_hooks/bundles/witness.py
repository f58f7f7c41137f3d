"""Waits for the first non-finite step of each segment, and writes a bundle for it.

The training thread makes copies; a thread of its own writes them. Only one bundle is written per
segment, because later non-finite steps are consequences of the first.
"""

import queue
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from runwatch.frames import Event, Scalar
from runwatch.nonfinite import to_json
from runwatch_hooks.bundles.case import Arrival, Case, FaultState, content_of
from runwatch_hooks.bundles.errors import BundleError
from runwatch_hooks.bundles.facts import (
    BundleFacts,
    broken_before,
    order_of_onset,
    versions,
)
from runwatch_hooks.bundles.folder import BundleFolder
from runwatch_hooks.bundles.memory import (
    NO_LOADER,
    BatchMemory,
    StepMemory,
    plain_batch,
    tensors_of,
    torch_rng,
)
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.shards import is_sharded
from runwatch_hooks.state import SnapshotRing, TrainingState
from runwatch_hooks.state.checkpoints import Background
from runwatch_hooks.state.outcomes import NotPlainError
from runwatch_hooks.state.tree import HostCopies, to_plain
from runwatch_hooks.statistics.layer_names import named_parts
from runwatch_hooks.step.row import Row, is_broken

log = OwnLog(__name__)

_ROWS: Final = 64
_ROWS_BYTES: Final = 8 * 2**20
"""Limit on the stats of remembered rows."""


class Witness:
    """The witness of one process. Called by the training thread; its methods may raise."""

    def __init__(
        self,
        folder: BundleFolder,
        state: TrainingState,
        snapshots: SnapshotRing,
        *,
        run_id: str,
        rank: int,
        max_bytes: int,
    ) -> None:
        """`max_bytes` is the limit on the states in one bundle."""
        self._folder = folder
        self._state = state
        self._snapshots = snapshots
        self._run_id = run_id
        self._rank = rank
        self._max_bytes = max_bytes
        self._background = Background()
        self._written: queue.SimpleQueue[tuple[BundleFacts, Path | BundleError]]
        self._written = queue.SimpleQueue()
        self._memory = BatchMemory()
        self._rows: deque[Row] = deque(maxlen=_ROWS)
        self._before: FaultState | None = None
        self._step = 0
        self._segment: int | None = None
        self._is_full = folder.is_full
        """Updated by the disk thread from now on: the training thread does not access the disk."""
        self._is_on = not self._is_full
        self._is_disabled = False

    def begin_step(self, step: int, segment: int) -> None:
        """A step is about to be trained, for the first time or, after a rollback, again."""
        self._step, self._before = step, None
        if segment != self._segment:
            self._segment = segment
            self._is_on = not (self._is_full or self._is_disabled)
        if self._is_on:
            self._memory.begin_step(step)

    def disable(self) -> None:
        """Write no bundle any more, whatever segment begins."""
        self._is_disabled = True
        self._is_on = False
        self._memory.clear()
        self._rows.clear()

    def note_batch(self, batch: object) -> None:
        """The loop was given this batch."""
        if self._is_on:
            self._memory.add(batch)

    def note_broken(self) -> None:
        """An optimizer is about to step with gradients known to be non-finite: the last moment at
        which the parameters are still those that produced them."""
        if self._is_on and self._before is None:
            self._before = self._capture(self._step - 1, is_before=True)

    def look(self, rows: Iterable[Row]) -> None:
        """Look at rows whose numbers have arrived, in step order."""
        for row in rows if self._is_on else ():
            self._rows.append(row)
            size = 0 if row.stats is None else row.stats.nbytes
            while len(self._rows) > 4 and len(self._rows) * size > _ROWS_BYTES:
                self._rows.popleft()
            if self._is_on and row.segment == self._segment and is_broken(row):
                self._keep(row)

    def events(self, now: float) -> list[Event]:
        """Events about bundles written since the last call, each at the step of its fault."""
        events: list[Event] = []
        while not self._written.empty():
            facts, result = self._written.get()
            if isinstance(result, Path):
                detail: dict[str, Scalar | list[str]] = {
                    "path": str(result),
                    "of_step": facts.step,
                    "first_layer": facts.order[0].layer if facts.order else None,
                    "batches": facts.num_batches,
                    "state": "none" if facts.state is None else f"after step {facts.state.step}",
                }
            else:
                detail = {"of_step": facts.step, "error": str(result)}
            events.append(Event(facts.step, "diagnostic_bundle", now, detail))
        return events

    def close(self, timeout_s: float) -> None:
        """Wait up to `timeout_s` for a bundle being written, and forget everything else."""
        self.disable()
        if not self._background.close(timeout_s):
            log.warning("a diagnostic bundle is still being written after %.0f s", timeout_s)

    def _capture(self, step: int, *, is_before: bool) -> FaultState | None:
        modules, optimizers = self._state.num_bytes()
        if modules > self._max_bytes:
            return None
        # Other ranks' optimizers are usually the same as rank 0's, and a replay does not use them.
        fits = self._rank == 0 and modules + optimizers <= self._max_bytes
        return FaultState(self._state.capture_bare(with_optimizers=fits), step, fits, is_before)

    def _keep(self, row: Row) -> None:
        """Copy what is needed and submit it for writing. Ends the watch for this segment."""
        self._is_on = False
        memory = self._memory.find(row.step) or StepMemory(torch_rng())
        state = self._before if row.step == self._step else None
        state = state or self._capture(self._step, is_before=False)
        good = self._snapshots.lend_newest_good()
        copies = HostCopies()
        batches, note = _plain_batches(memory, copies)
        facts = self._facts(row, len(batches), note, has_state=state is not None)
        case = Case(
            facts,
            batches,
            memory.rngs if batches else [],
            memory.rng,
            Arrival(tensors_of(memory.batches)),
            list(self._rows),
            state,
            None if good is None else (good.step, good.captured),
        )
        self._memory.clear()
        self._rows.clear()
        self._before = None
        are_parts = _are_sharded(self._state)
        self._background.submit(lambda: self._write(case, are_parts))

    def _facts(
        self, row: Row, num_batches: int, batch_note: str, *, has_state: bool
    ) -> BundleFacts:
        return BundleFacts(
            run_id=self._run_id,
            rank=self._rank,
            step=row.step,
            noticed_step=self._step,
            segment=row.segment,
            at=row.at,
            metrics={name: to_json(value) for name, value in row.metrics.items()},
            order=order_of_onset(self._rows),
            broken_before=broken_before(row),
            num_batches=num_batches,
            batch_note=batch_note,
            rng_at="batch" if num_batches else "boundary",
            eval_modules=_eval_modules(self._state),
            state=None,
            good=None,
            notes=[] if has_state else [f"the model has more than {self._max_bytes >> 20} MiB"],
            versions=versions(),
        )

    def _write(self, case: Case, are_parts: bool) -> None:
        """Runs in the disk thread."""
        result: Path | BundleError
        facts = case.facts
        try:
            self._is_full = self._folder.is_full
            if self._is_full:  # the previous segment's bundle has filled it
                return
            facts, parts = content_of(case, are_parts, self._max_bytes)
            result = self._folder.write(facts, parts)
            log.warning("step %d was not finite: see %s", facts.step, result)
        except BundleError as error:
            result = error
        except Exception as error:  # the thread must survive: another segment may break too
            log.exception("a diagnostic bundle failed")
            result = BundleError(f"bundle: {error!r}")
        self._written.put((facts, result))


def _plain_batches(memory: StepMemory, copies: HostCopies) -> tuple[list[object], str]:
    """Copies of the batches, and a note on them."""
    note = memory.note
    if note == NO_LOADER or memory.refusal:
        return [], note
    try:  # the loop may have put other things into a batch since it was checked
        plain = [to_plain(plain_batch(one), "batch") for one in memory.batches]
    except NotPlainError as error:
        return [], str(error)
    return [copies.copy(one) for one in plain], note


def _eval_modules(state: TrainingState) -> list[str]:
    """Paths of modules in evaluation mode, with the prefix `MODEL:` if there are several models."""
    return [
        f"{name}:{path}" if name else path
        for name, module in state.modules.items()
        for path, part in named_parts(module)
        if not part.training
    ]


def _are_sharded(state: TrainingState) -> bool:
    return any(
        is_sharded(parameter)
        for module in state.modules.values()
        for parameter in module.parameters()
    )
