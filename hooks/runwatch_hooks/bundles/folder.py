"""Bundles on disk: one folder each, written atomically, up to a limit.

    BUNDLES/RUN_ID/step-000000499-000001/       of another rank: RUN_ID/rank-00003/step-...
        bundle.json     what is known of the fault (`BundleFacts`)
        batch.pt        the step's batches, and the states of torch's generators
        rows.pt         the last rows: metrics, and stats by layer
        state.pt        the state at the fault
        good.pt         the newest good state before it

Each `.pt` can be read by `torch.load(weights_only=True)`, so it contains no code.
"""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Final, cast

import msgspec
import torch

from runwatch_hooks.bundles.errors import BundleError
from runwatch_hooks.bundles.facts import FORMAT, BundleFacts
from runwatch_hooks.state.checkpoint_files import (
    TEMPORARY_PREFIX,
    HashingWriter,
    sync_folder,
    write_atomically,
)
from runwatch_hooks.state.tree import Mapped, from_plain

FACTS: Final = "bundle.json"
BATCH: Final = "batch.pt"
ROWS: Final = "rows.pt"
STATE: Final = "state.pt"
GOOD: Final = "good.pt"

# A bundle holds a batch and weights: nothing for other users of the host.
_FOLDER_MODE: Final = 0o700
_FILE_MODE: Final = 0o600


class BundleFolder:
    """The folder of the bundles of one run and rank. Never holds more than `max_bundles`, and no
    bundle is overwritten."""

    def __init__(self, folder: Path, run_id: str, rank: int, *, max_bundles: int) -> None:
        home = folder / run_id
        self.path = home if rank == 0 else home / f"rank-{rank:05d}"
        self._max_bundles = max_bundles

    @property
    def is_full(self) -> bool:
        """Whether the limit is reached. Reads the disk; a folder that cannot be read counts as not
        full, and the error shows when it is written to."""
        try:
            return len(self._bundles()) >= self._max_bundles
        except OSError:
            return False

    def write(self, facts: BundleFacts, parts: Mapping[str, object]) -> Path:
        """Write a bundle durably; returns its path. The parts must be in plain types (`to_plain`).

        Raises BundleError.
        """
        try:
            self.path.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            for left in self.path.glob(f"{TEMPORARY_PREFIX}*"):  # left by a process that died
                shutil.rmtree(left, ignore_errors=True)
            bundles = self._bundles()
            if len(bundles) >= self._max_bundles:
                raise BundleError(f"{self.path}: holds {len(bundles)} bundles, as many as it may")
            serial = max((int(one.name.rpartition("-")[2]) for one in bundles), default=0) + 1
            path = self.path / f"step-{facts.step:09d}-{serial:06d}"
            aside = self.path / (TEMPORARY_PREFIX + path.name)
            aside.mkdir(_FOLDER_MODE)
            try:
                self._fill(aside, facts, parts)
                aside.rename(path)
            finally:
                shutil.rmtree(aside, ignore_errors=True)
            sync_folder(self.path)
        except (OSError, RuntimeError) as error:
            # torch.save turns an OSError of the file into a RuntimeError.
            raise BundleError(f"{self.path}: not written ({error})") from error
        return path

    def _fill(self, aside: Path, facts: BundleFacts, parts: Mapping[str, object]) -> None:
        for name, tree in parts.items():
            content = {"format": FORMAT, **cast("dict[str, object]", tree)}
            write_atomically(aside / name, _saving(content))
        text = msgspec.json.format(msgspec.json.encode(facts), indent=2)
        write_atomically(aside / FACTS, lambda file: _put(file, text))
        for file in aside.iterdir():
            file.chmod(_FILE_MODE)

    def _bundles(self) -> list[Path]:
        return [one for one in self.path.glob("step-*") if (one / FACTS).exists()]


def _saving(content: Mapping[str, object]) -> Callable[[HashingWriter], None]:
    return lambda file: torch.save(content, cast("IO[bytes]", file))


def _put(file: HashingWriter, text: bytes) -> None:
    file.write(text)


@dataclass(frozen=True, slots=True)
class Bundle:
    """A bundle that was loaded; `runwatch replay` passes it to the program."""

    path: Path
    facts: BundleFacts
    batches: tuple[object, ...]
    """The step's batches, on the CPU; empty if the loop did not use `watch.batches`."""
    rngs: tuple[Mapped, ...]
    """States of torch's generators when each batch was given out."""
    rng: Mapped
    """States of torch's generators at the end of the step before."""

    @property
    def step(self) -> int:
        return self.facts.step

    def load(self, name: str) -> Mapped:
        """Load one of its states, `state.pt` or `good.pt`. Raises BundleError."""
        return _load(self.path / name)


def open_bundle(path: Path) -> Bundle:
    """Load a bundle. Raises BundleError if it is not a bundle, of another format, or damaged."""
    if not (path / FACTS).is_file():
        raise BundleError(f"{path}: found no {FACTS}, wanted a bundle's folder (step-...)")
    try:
        facts = msgspec.json.decode((path / FACTS).read_bytes(), type=BundleFacts)
    except (OSError, msgspec.DecodeError) as error:
        raise BundleError(f"{path / FACTS}: {error}") from error
    if facts.format != FORMAT:
        raise BundleError(f"{path}: found format {facts.format}, wanted {FORMAT}")
    batch = _load(path / BATCH)
    return Bundle(
        path,
        facts,
        batches=tuple(cast("list[object]", batch["batches"])),
        rngs=tuple(cast("list[Mapped]", batch["rngs"])),
        rng=cast(Mapped, batch["rng"]),
    )


def _load(path: Path) -> Mapped:
    # For a damaged file torch raises a dozen types of errors (pickle's, zipfile's, its own).
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
        if content["format"] != FORMAT:
            raise BundleError(f"{path}: found format {content['format']}, wanted {FORMAT}")
        return cast(Mapped, from_plain(content))
    except BundleError:
        raise
    except Exception as error:
        raise BundleError(f"{path}: cannot be read ({error})") from error
