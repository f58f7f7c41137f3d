"""Checkpoints on disk: written atomically, verified before they are loaded, and rotated.

`torch.load(weights_only=True)` reads them. `checkpoint_files` says what files one consists of.

The folder may also hold a program's own checkpoints, and those of other runs, which may be training
right now. Files with other names are never touched. Checkpoints of other runs count only if this
run continues from them. Files that look left behind may be another run's, just being written.
"""

import atexit
import itertools
import pickle
import queue
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Final, cast

import msgspec
import torch

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.state.checkpoint_files import (
    Checkpoint,
    CheckpointFacts,
    HashingWriter,
    complete_in,
    delete,
    delete_temporary,
    incomplete_in,
    is_long_unwritten,
    name_of,
    next_serial,
    serial_of,
    sha256_of,
    temporary_in,
    write_anew,
    write_facts,
)
from runwatch_hooks.state.outcomes import CheckpointError, DamagedCheckpointError, NotPlainError
from runwatch_hooks.state.tree import Captured, Mapped, from_plain, to_plain
from runwatch_hooks.uplink.threads import yield_to_training

log = OwnLog(__name__)

FORMAT: Final = 1
_UNREADABLE: Final = (
    *(OSError, RuntimeError, KeyError, TypeError, ValueError),
    pickle.UnpicklingError,  # it holds more than numbers and names: code, it may be
)


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A checkpoint that was loaded."""

    checkpoint: Checkpoint
    tree: Mapped
    actor: Mapped
    """The actor's state: the journal and the LR scale."""
    places: Mapped = field(default_factory=dict[object, object])
    """Which part of each tensor it holds, if tensors are sharded over ranks."""


class CheckpointStore:
    """One run's checkpoints in a folder. Keeps the `keep` newest and the newest good ones."""

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = 3,
        keep_good: int = 2,
        world_size: int = 1,
        run_id: str = "",
    ) -> None:
        """Without a `run_id`, everything in the folder belongs to one run."""
        for name, number in (("keep", keep), ("keep_good", keep_good)):
            if number < 1:
                raise ValueError(f"{name}: found {number}, wanted at least 1")
        self._folder = folder
        self._keep = keep
        self._keep_good = keep_good
        self.world_size = world_size
        self._run_id = run_id
        self._resumed: frozenset[str] = frozenset()
        self._mark = f"{run_id}-" if run_id else ""
        """Prefix for the names of temporary files, which says whose they are."""
        self._bare = set[Path]()
        """Checkpoints written by this store that have no JSON file yet."""

    @property
    def folder(self) -> Path:
        return self._folder

    def save(self, step: int, captured: Captured, actor: Mapping[str, object]) -> Checkpoint:
        """Write the state after a step durably, then rotate. Raises CheckpointError."""
        captured.wait()
        serial = next_serial(self._folder)
        path = self._folder / name_of(step, serial)
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            content = self._content(step, captured, actor)
            path, written = write_anew(
                self._folder,
                (name_of(step, number) for number in itertools.count(serial)),
                lambda file: torch.save(content, cast(IO[bytes], file)),
                mark=self._mark,
            )
            self._bare.add(path)
            facts = self._facts(step, path, written, is_finite=captured.is_finite)
            checkpoint = write_facts(Checkpoint(path, facts), mark=self._mark)
            self._bare.discard(path)
        except (OSError, RuntimeError, NotPlainError) as error:
            # torch.save turns an OSError of the file into a RuntimeError.
            raise CheckpointError(f"{path}: not written ({error})") from error
        self._rotate()
        return checkpoint

    def _content(
        self, step: int, captured: Captured, actor: Mapping[str, object]
    ) -> dict[str, object]:
        """The content of the `.pt` file. Raises NotPlainError."""
        return {
            "format": FORMAT,
            "step": step,
            "state": to_plain(captured.tree),
            "actor": to_plain(dict(actor), "actor"),
            "places": to_plain(self.places(), "places"),
        }

    def _facts(
        self, step: int, path: Path, written: HashingWriter, *, is_finite: bool
    ) -> CheckpointFacts:
        return CheckpointFacts(
            step,
            serial_of(path),
            written.hexdigest(),
            written.num_bytes,
            is_finite,
            world_size=self.world_size,
            run_id=self._run_id,
            resumed=tuple(sorted(self._resumed & {one.facts.run_id for one in self.list()})),
        )

    def places(self) -> Mapped:
        """Which part of each tensor this process holds; empty: everything."""
        return {}

    def adopt(self, checkpoint: Checkpoint) -> None:
        """The run continues from this checkpoint: from now on, the checkpoints of the run that
        saved it count as this run's."""
        self._resumed |= {checkpoint.facts.run_id, *checkpoint.facts.resumed}

    def is_ours(self, facts: CheckpointFacts) -> bool:
        """Whether it belongs to this run, or to one that this run continues from."""
        known = ("", self._run_id)
        return not self._run_id or facts.run_id in known or facts.run_id in self._resumed

    def list(self) -> list[Checkpoint]:
        """All complete checkpoints, of any run, in the order in which they were saved."""
        return complete_in(self._folder)

    def mark(
        self,
        checkpoint: Checkpoint,
        *,
        is_good: bool = False,
        is_suspect: bool = False,
        is_undone: bool = False,
    ) -> Checkpoint:
        """Update the facts of a checkpoint. Raises CheckpointError."""
        if not checkpoint.path.exists():
            raise CheckpointError(f"{checkpoint.path}: not marked (rotated away)")
        facts = msgspec.structs.replace(
            checkpoint.facts,
            is_good=is_good and checkpoint.facts.is_finite,
            is_suspect=is_suspect,
            is_undone=is_undone,
        )
        try:
            return write_facts(replace(checkpoint, facts=facts), mark=self._mark)
        except OSError as error:
            raise CheckpointError(f"{checkpoint.path}: not marked ({error})") from error

    def verify(self, checkpoint: Checkpoint) -> None:
        """Raises DamagedCheckpointError unless the file is byte for byte what was written."""
        try:
            found = sha256_of(checkpoint.path)
        except OSError as error:
            raise DamagedCheckpointError(f"{checkpoint.path}: {error}") from error
        if found != checkpoint.facts.sha256:
            raise DamagedCheckpointError(
                f"{checkpoint.path}: found SHA-256 {found}, wanted {checkpoint.facts.sha256}"
            )

    def load(self, checkpoint: Checkpoint, *, mapped: bool = False) -> Loaded:
        """Verify and load a checkpoint. `mapped` maps the file into memory instead of reading it.

        Raises DamagedCheckpointError, also for a checkpoint of another format.
        """
        self.verify(checkpoint)
        try:
            content = torch.load(
                checkpoint.path, map_location="cpu", weights_only=True, mmap=mapped
            )
            if content["format"] != FORMAT:
                raise DamagedCheckpointError(
                    f"{checkpoint.path}: found format {content['format']}, wanted {FORMAT}"
                )
            tree, actor = from_plain(content["state"]), from_plain(content["actor"])
            places = from_plain(content.get("places", {}))
        except _UNREADABLE as error:
            raise DamagedCheckpointError(f"{checkpoint.path}: {error}") from error
        return Loaded(checkpoint, cast(Mapped, tree), cast(Mapped, actor), cast(Mapped, places))

    def loadable(self) -> Sequence[Checkpoint]:
        """The checkpoints that `load` has everything for, of any run; the newest last."""
        return self.list()

    def acceptable(
        self, accepts: Callable[[CheckpointFacts], bool], *, of_any_run: bool = False
    ) -> Sequence[Checkpoint]:
        """The loadable checkpoints that `accepts` accepts; the newest last.

        With `of_any_run`, for a run that has not begun: if it has none, those of other runs.
        """
        accepted = [held for held in self.loadable() if accepts(held.facts)]
        ours = [held for held in accepted if self.is_ours(held.facts)]
        return ours if ours or not of_any_run else accepted

    def load_newest(
        self, accepts: Callable[[CheckpointFacts], bool], *, of_any_run: bool = False
    ) -> Loaded | None:
        """The newest acceptable and undamaged one. Damaged ones are skipped with a warning."""
        for checkpoint in reversed(self.acceptable(accepts, of_any_run=of_any_run)):
            try:
                return self.load(checkpoint)
            except DamagedCheckpointError as error:
                log.warning("skipping a damaged checkpoint: %s", error)
        return None

    def _rotate(self) -> None:
        held = [checkpoint for checkpoint in self.list() if self.is_ours(checkpoint.facts)]
        good = [item for item in held if item.facts.is_good and not item.facts.is_undone]
        kept = {item.path for item in (*held[-self._keep :], *good[-self._keep_good :])}
        for checkpoint in held:
            if checkpoint.path not in kept:
                delete(checkpoint.path)
        for path in incomplete_in(self._folder):
            if path in self._bare or self._is_left(path):
                delete(path)
        for path, mark in temporary_in(self._folder):
            if mark == self._mark or self._is_left(path):
                delete_temporary(path)

    def _is_left(self, path: Path) -> bool:
        """Whether nobody is writing it any more; if it may be another run's, judged by its age."""
        return not self._run_id or is_long_unwritten(path)


Work = Callable[[], None]

EXIT_TIMEOUT_S: Final = 60.0
"""How long the interpreter's exit waits for work in progress. A checkpoint is worth waiting for,
and a thread that is inside torch while the interpreter shuts down would abort the process."""


class Background:
    """One thread, started with the first piece of work and ended by `close`. Work must not
    raise."""

    def __init__(self) -> None:
        self._work: queue.SimpleQueue[Work | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work) -> None:
        """Raises RuntimeError if no thread can be started; the next piece of work tries again."""
        if self._thread is None:
            # A daemon thread, so that a hanging disk cannot keep the trainer from exiting.
            thread = threading.Thread(target=self._run, name="runwatch-disk", daemon=True)
            thread.start()
            self._thread = thread
            atexit.register(self._close_at_exit)
        self._work.put(work)

    def drain(self, timeout_s: float) -> bool:
        """Wait for all submitted work; False after `timeout_s`."""
        if self._thread is None or not self._thread.is_alive():  # in a forked child it is not
            return True
        done = threading.Event()
        self._work.put(done.set)
        return done.wait(timeout_s)

    def close(self, timeout_s: float) -> bool:
        """Wait for all submitted work and end the thread. After `timeout_s` False: the thread goes
        on, and the interpreter's exit waits for it again."""
        if not self.drain(timeout_s):
            return False
        if self._thread is not None:
            atexit.unregister(self._close_at_exit)
            self._work.put(None)
            self._thread.join()
            self._thread = None
        return True

    def _close_at_exit(self) -> None:
        if not self.close(EXIT_TIMEOUT_S):
            log.warning("a checkpoint was not written completely after %.0f s", EXIT_TIMEOUT_S)

    def _run(self) -> None:
        yield_to_training()
        while (work := self._work.get()) is not None:
            work()
