"""Checkpoints during training: written in the background, and marked good as steps stay healthy."""

import queue
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from runwatch.commands import Command
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.agreement import Meeting
from runwatch_hooks.state.checkpoint_files import Checkpoint, CheckpointFacts
from runwatch_hooks.state.checkpoints import Background, CheckpointStore, Loaded
from runwatch_hooks.state.outcomes import ActionError, CheckpointError
from runwatch_hooks.state.probation import Probation
from runwatch_hooks.state.tree import Captured

log = OwnLog(__name__)

DRAIN_S: Final = 120.0
"""How long a rollback waits for a checkpoint being written, which may be the one it needs."""
_ARRIVAL_S: Final = 10.0
"""How long the disk thread waits for the training thread to notice that a copy has arrived on the
host. After that it queries the device itself, which would break the capture of a CUDA graph, but by
then no steps are coming."""


@dataclass(slots=True, eq=False)
class Save:
    """One checkpoint, from its capture to the end of its probation."""

    probation: Probation
    command: Command | None
    checkpoint: Checkpoint | None = None
    error: ActionError | None = None
    is_undone: bool = False
    """A rollback went back to before its step."""


class CheckpointKeeper:
    """Writes the checkpoints of the store in a thread, so that training never waits for the
    disk."""

    def __init__(self, store: CheckpointStore, *, good_after: int) -> None:
        self._store = store
        self._good_after = good_after
        self._background = Background()
        self._written: queue.SimpleQueue[tuple[Save, Checkpoint | ActionError]]
        self._written = queue.SimpleQueue()
        self._on_probation: list[Save] = []
        self._is_writing = False
        self._captured: Captured | None = None  # the buffers, written again each time
        self._has_arrived = threading.Event()

    @property
    def is_writing(self) -> bool:
        return self._is_writing

    def check_free(self) -> None:
        """Raises CheckpointError while one is being written."""
        if self._is_writing:
            raise CheckpointError("checkpoint: the one before is still being written")

    def begin(
        self,
        step: int,
        capture: Callable[[Captured | None], Captured],
        actor: Mapping[str, object],
        command: Command | None = None,
    ) -> None:
        """Capture the state after a step now, and write it in the background. Raises
        CheckpointError while another is being written."""
        self.check_free()
        captured = self._captured = capture(self._captured)
        save = Save(Probation(step, self._good_after), command)
        has_arrived = self._has_arrived = threading.Event()
        self._note_arrival()
        self._background.submit(lambda: self._write(save, captured, actor, has_arrived))
        self._on_probation.append(save)
        self._is_writing = True

    def note_step(self, step: int, *, healthy: bool) -> list[Checkpoint]:
        """Judge the checkpoints on probation by a step; returns those that are good now."""
        for save in self._on_probation:
            save.probation.note(step, healthy=healthy)
        return self._promote()

    def written(self) -> list[Save]:
        """The saves that have finished or failed since the last call."""
        self._note_arrival()
        saves: list[Save] = []
        while not self._written.empty():
            save, result = self._written.get()
            if isinstance(result, Checkpoint):
                save.checkpoint = result
            else:
                save.error = result
            self._is_writing = False
            saves.append(save)
        return saves

    def load_newest(
        self, accepts: Callable[[CheckpointFacts], bool], *, of_any_run: bool = False
    ) -> Loaded | None:
        """The newest accepted, finite and undamaged checkpoint. Waits for one being written, as the
        training stands still for a rollback anyway."""
        if not self.drain(DRAIN_S):
            log.warning("the disk hangs: no checkpoint can be read")
            return None
        return self._store.load_newest(
            lambda facts: facts.is_finite and accepts(facts), of_any_run=of_any_run
        )

    def steps(
        self, accepts: Callable[[CheckpointFacts], bool], *, of_any_run: bool = False
    ) -> list[int]:
        """Steps of the finite, accepted checkpoints on disk. Their content is not verified."""
        held = self._store.acceptable(
            lambda facts: facts.is_finite and accepts(facts), of_any_run=of_any_run
        )
        return [checkpoint.step for checkpoint in held]

    def num_nonfinite(self) -> int:
        """How many checkpoints on disk are non-finite. Those are never restored or resumed from."""
        return sum(not held.facts.is_finite for held in self._store.loadable())

    def go_on_from(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of an earlier attempt, which is on probation again."""
        self._store.adopt(checkpoint)
        is_ours = checkpoint.path.parent == self._store.folder  # otherwise rank 0 looks after it
        if is_ours and not checkpoint.facts.is_good:
            probation = Probation(checkpoint.step, self._good_after)
            self._on_probation.append(Save(probation, None, checkpoint))

    def rewind(self, to_step: int) -> None:
        """A rollback went back to `to_step`: mark checkpoints of later steps as undone."""
        for save in self._on_probation:
            save.probation.rewind(to_step)
            save.is_undone = save.probation.step > to_step
        self._submit_marks(lambda: self._mark_undone(to_step))

    def drain(self, timeout_s: float) -> bool:
        """Wait for a checkpoint being written; False after `timeout_s`."""
        self._has_arrived.set()
        return self._background.drain(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Like `drain`, and end the thread."""
        self._has_arrived.set()
        return self._background.close(timeout_s)

    def _note_arrival(self) -> None:
        """Called at a boundary, where no CUDA graph is being captured."""
        captured, has_arrived = self._captured, self._has_arrived
        if captured is not None and not has_arrived.is_set() and captured.is_ready():
            has_arrived.set()

    def _promote(self) -> list[Checkpoint]:
        promoted: list[Checkpoint] = []
        for save in list(self._on_probation):
            checkpoint, probation = save.checkpoint, save.probation
            if save.error is not None or save.is_undone:
                self._on_probation.remove(save)
            elif checkpoint is not None and (probation.is_good or probation.is_suspect):
                self._on_probation.remove(save)
                if probation.is_suspect:
                    self._submit_mark(checkpoint, is_suspect=True)
                elif checkpoint.facts.is_finite:
                    self._submit_mark(checkpoint, is_good=True)
                    promoted.append(checkpoint)
        return promoted

    def _submit_mark(
        self, checkpoint: Checkpoint, *, is_good: bool = False, is_suspect: bool = False
    ) -> None:
        def mark() -> None:
            try:
                self._store.mark(checkpoint, is_good=is_good, is_suspect=is_suspect)
            except CheckpointError as error:
                log.warning("%s", error)

        self._submit_marks(mark)

    def _submit_marks(self, mark: Callable[[], None]) -> None:
        """A mark that cannot be made must not undo what is done already, such as a rollback."""
        try:
            self._background.submit(mark)
        except RuntimeError as error:
            log.warning("checkpoints are not marked: %s", error)

    def _write(
        self,
        save: Save,
        captured: Captured,
        actor: Mapping[str, object],
        has_arrived: threading.Event,
    ) -> None:
        result: Checkpoint | ActionError
        has_arrived.wait(_ARRIVAL_S)
        try:
            result = self._store.save(save.probation.step, captured, actor)
        except CheckpointError as error:
            result = error
        except Exception as error:  # the thread must survive, to write later checkpoints
            log.exception("a checkpoint failed")
            result = CheckpointError(f"checkpoint: {error!r}")
        self._written.put((save, result))

    def _mark_undone(self, to_step: int) -> None:
        for checkpoint in self._store.list():
            facts = checkpoint.facts
            if facts.step > to_step and not facts.is_undone and self._store.is_ours(facts):
                try:
                    self._store.mark(checkpoint, is_undone=True)
                except CheckpointError as error:
                    log.warning("%s", error)


# Unlike a rollback, a restarted program may continue from a checkpoint that is still on probation:
# the last one of a run that was stopped normally had no further steps to prove itself.


def checkpoint_to_resume(
    keeper: CheckpointKeeper | None, meeting: Meeting | None = None
) -> Loaded | None:
    """The newest sound checkpoint: of this run, or else of another in the folder. With several
    ranks, which meet here, the newest that all of them can load. Raises StoreError."""
    loaded = _newest(keeper) if meeting is None else _common(keeper, meeting)
    if loaded is None and keeper is not None and (num_nonfinite := keeper.num_nonfinite()):
        log.warning("nothing to resume; checkpoints that are not finite: %d", num_nonfinite)
    return loaded


def _newest(keeper: CheckpointKeeper | None) -> Loaded | None:
    return None if keeper is None else keeper.load_newest(_is_sound, of_any_run=True)


def _common(keeper: CheckpointKeeper | None, meeting: Meeting) -> Loaded | None:
    held = set[int]() if keeper is None else set(keeper.steps(_is_sound, of_any_run=True))
    while (step := meeting.common(held)) is not None and keeper is not None:
        loaded = keeper.load_newest(
            lambda facts: _is_sound(facts) and facts.step == step, of_any_run=True
        )
        run_id = None if loaded is None else loaded.checkpoint.facts.run_id
        if meeting.all_took_one(run_id):
            return loaded
        held.discard(step)  # damaged on a rank, or not the same run's: no rank takes it
    return None


def _is_sound(facts: CheckpointFacts) -> bool:
    return not facts.is_suspect and not facts.is_undone
