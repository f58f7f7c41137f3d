"""A checkpoint on disk is whole or absent, and the newest good one is never lost."""

import errno
import os
import random
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import msgspec
import numpy as np
import pytest
import torch
from torch import nn

from runwatch_hooks.state import CheckpointStore, TrainingState
from runwatch_hooks.state.checkpoint_files import (
    Checkpoint,
    HashingWriter,
    sha256_of,
    write_atomically,
)
from runwatch_hooks.state.outcomes import CheckpointError, DamagedCheckpointError
from runwatch_hooks.state.tree import Mapped, from_plain, to_plain


def save(store: CheckpointStore, step: int, module: nn.Module | None = None) -> Checkpoint:
    state = TrainingState({"model": module or nn.Linear(2, 2)}, [])
    return store.save(step, state.capture(), {"lr_scale": 0.5, "journal": []})


def test_a_checkpoint_comes_back_as_it_was(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.BatchNorm1d(3))
    optimizer = torch.optim.AdamW(module.parameters())
    arrays, numbers = np.random.default_rng(1), random.Random(2)
    state = TrainingState(
        {"model": module}, [optimizer], (), (), {"arrays": arrays, "numbers": numbers}
    )
    store = CheckpointStore(tmp_path)
    saved = store.save(7, state.capture(), {"lr_scale": 0.5})
    x = torch.ones(4, 3) * (arrays.random() + numbers.random())
    first = module(x).tolist()

    loaded = store.load(saved)
    state.restore(loaded.tree)

    x = torch.ones(4, 3) * (arrays.random() + numbers.random())
    assert module(x).tolist() == first
    assert (loaded.checkpoint.step, loaded.actor) == (7, {"lr_scale": 0.5})


def test_a_value_of_a_users_class_is_refused_by_its_place(tmp_path: Path) -> None:
    class Sampler:
        def state_dict(self) -> dict[str, object]:
            return {"places": [Path("x")]}

        def load_state_dict(self, state_dict: dict[str, object], /) -> None: ...

    state = TrainingState({}, [], (), (), {"sampler": Sampler()})

    with pytest.raises(
        CheckpointError, match=r"state\.objects\.extra\.sampler\.places\[0\]: found"
    ):
        CheckpointStore(tmp_path).save(1, state.capture(), {})
    assert list(tmp_path.iterdir()) == []


def test_arrays_and_numbers_of_numpy_keep_their_type() -> None:
    value = {"a": np.arange(3, dtype=np.int16), "b": (np.float32(0.1), 2**100, b"x", None)}

    back = cast("dict[str, tuple[object, ...]]", from_plain(to_plain(value)))

    assert str(back) == str(value)
    assert type(back["b"][0]) is np.float32


def test_rotation_keeps_the_newest_and_never_deletes_the_newest_good_one(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path, keep=2, keep_good=1)
    store.mark(save(store, 1), is_good=True)
    store.mark(save(store, 2), is_good=True)

    for step in range(3, 9):
        save(store, step)

    assert [held.step for held in store.list()] == [2, 7, 8]


def test_a_checkpoint_with_nan_is_kept_but_never_good(tmp_path: Path) -> None:
    module = nn.Linear(2, 2)
    nn.init.constant_(module.weight, float("nan"))
    store = CheckpointStore(tmp_path)

    marked = store.mark(save(store, 1, module), is_good=True)

    assert (marked.facts.is_finite, marked.facts.is_good) == (False, False)
    assert [held.facts.is_good for held in store.list()] == [False]


def test_a_damaged_newest_one_is_passed_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)
    newest = save(store, 2)
    octets = bytearray(newest.path.read_bytes())
    octets[len(octets) // 2] ^= 1
    newest.path.write_bytes(octets)

    loaded = store.load_newest(lambda facts: True)

    assert loaded is not None
    assert loaded.checkpoint.step == 1
    assert "skipping a damaged checkpoint" in caplog.text
    with pytest.raises(DamagedCheckpointError, match="found SHA-256"):
        store.verify(newest)


class RunsCode:
    """Once it is unpickled without a limit, it makes a file."""

    def __init__(self, made: Path) -> None:
        self._made = made

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self._made,)


def test_reading_a_checkpoint_runs_no_code_of_whoever_wrote_it(tmp_path: Path) -> None:
    """Whoever can write to the folder can write the checksum beside it, too."""
    made = tmp_path / "made"
    store = CheckpointStore(tmp_path / "checkpoints")
    saved = save(store, 1)
    torch.save({"format": 1, "state": RunsCode(made), "actor": {}}, saved.path)
    forged = replace(
        saved, facts=msgspec.structs.replace(saved.facts, sha256=sha256_of(saved.path))
    )

    with pytest.raises(DamagedCheckpointError):
        store.load(forged)
    assert not made.exists()

    torch.load(saved.path, weights_only=False)
    assert made.exists()


def test_one_without_its_facts_counts_as_absent_and_is_swept(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)
    orphan = save(store, 1)
    orphan.path.with_suffix(".json").unlink()
    assert store.list() == []

    newer = save(store, 2)

    assert not orphan.path.exists()
    assert newer.facts.serial == 2


def test_a_program_s_own_checkpoints_in_the_folder_are_left_alone(tmp_path: Path) -> None:
    theirs = ("step-1000.pt", "step-2000.pt", "step-3000-loss0.123456.pt", ".writing-notes")
    for name in theirs:
        (tmp_path / name).write_bytes(b"weights")
    store = CheckpointStore(tmp_path, keep=1, keep_good=1)

    for step in range(3):
        save(store, step)

    assert all((tmp_path / name).read_bytes() == b"weights" for name in theirs)
    assert [held.facts.serial for held in store.list()] == [3]


def steps(store: CheckpointStore, *, of_any_run: bool = False) -> list[int]:
    return [held.step for held in store.acceptable(lambda _: True, of_any_run=of_any_run)]


def test_another_run_s_checkpoints_are_neither_swept_nor_gone_back_to(tmp_path: Path) -> None:
    earlier = CheckpointStore(tmp_path, keep=1, run_id="A")
    store = CheckpointStore(tmp_path, keep=1, run_id="B")
    store.mark(save(earlier, 59), is_good=True)

    assert (steps(store), steps(store, of_any_run=True)) == ([], [59])
    for step in range(3):
        save(store, step)

    assert (steps(store), steps(store, of_any_run=True)) == ([2], [2])
    assert steps(earlier) == [59]


def test_what_another_run_is_just_writing_is_left_to_it_for_an_hour(tmp_path: Path) -> None:
    names = (".writing-A-step-000000001-000001.pt", "step-000000001-000001.pt")
    files = [tmp_path / name for name in names]
    for path in files:
        path.write_bytes(b"weights")
    store = CheckpointStore(tmp_path, run_id="B")

    save(store, 1)
    assert [path.exists() for path in files] == [True, True]

    for path in files:
        os.utime(path, (0, 0))
    save(store, 2)
    assert [path.exists() for path in files] == [False, False]


def test_what_an_earlier_life_of_the_run_was_writing_is_swept_at_once(tmp_path: Path) -> None:
    left = tmp_path / ".writing-A-step-000000001-000001.pt"
    left.write_bytes(b"weights")

    save(CheckpointStore(tmp_path, run_id="A"), 2)

    assert not left.exists()


class Late(CheckpointStore):
    """Another run gives names between its look at the folder and its own."""

    def places(self) -> Mapped:
        save(CheckpointStore(self.folder, run_id="A"), 5)
        return {}


def refuse(source: Path, target: Path) -> None:
    """As a file system does that gives no file a second name."""
    raise PermissionError(errno.EPERM, "Operation not permitted", str(target))


@pytest.mark.parametrize("has_links", [True, False])
def test_two_runs_that_choose_one_name_at_once_write_two_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, has_links: bool
) -> None:
    if not has_links:
        monkeypatch.setattr(os, "link", refuse)

    store = Late(tmp_path, run_id="B")
    save(store, 5)

    held = store.list()
    assert [(one.facts.run_id, one.facts.serial) for one in held] == [("A", 1), ("B", 2)]
    assert [store.load(one).checkpoint.step for one in held] == [5, 5]
    assert len(list(tmp_path.iterdir())) == 4


def test_a_run_that_goes_on_from_others_keeps_their_checkpoints_as_its_own(tmp_path: Path) -> None:
    """Each life of a job under an id of its own: what the ones before left is swept in turn."""
    lives = [CheckpointStore(tmp_path, keep=2, run_id=run_id) for run_id in "ABCD"]
    for life, store in enumerate(lives):
        newest = store.load_newest(lambda _: True, of_any_run=True)
        if newest is not None:
            store.adopt(newest.checkpoint)
        save(store, life)

    assert steps(lives[-1]) == [2, 3]
    assert [held.facts.run_id for held in lives[-1].list()] == ["C", "D"]


def test_checkpoints_of_a_version_that_wrote_down_no_run_are_anyone_s(tmp_path: Path) -> None:
    save(CheckpointStore(tmp_path), 7)

    assert steps(CheckpointStore(tmp_path, run_id="B")) == [7]


def test_a_step_that_is_reached_twice_has_two_checkpoints(tmp_path: Path) -> None:
    store = CheckpointStore(tmp_path)

    save(store, 5)
    save(store, 5)

    assert [(held.step, held.facts.serial) for held in store.list()] == [(5, 1), (5, 2)]


def test_what_cannot_be_written_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")

    def write(file: HashingWriter) -> None:
        file.write(b"new")
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(OSError, match="No space left"):
        write_atomically(path, write)
    assert [(item.name, item.read_text()) for item in tmp_path.iterdir()] == [("file", "old")]


FILLS_UP = """
import resource, signal, sys
from pathlib import Path
from torch import nn
from runwatch_hooks.state import CheckpointStore, TrainingState
from runwatch_hooks.state.outcomes import CheckpointError
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
state = TrainingState({"model": nn.Linear(200, 200)}, [])
try:
    CheckpointStore(Path(sys.argv[1])).save(2, state.capture(), {})
except CheckpointError:
    sys.exit(17)
"""

DIES = """
import os, signal, sys
from pathlib import Path
from torch import nn
from runwatch_hooks.state import CheckpointStore, TrainingState
state = TrainingState({"model": nn.Linear(200, 200)}, [])
num_names = int(sys.argv[2])
def hook(event, arguments):
    global num_names
    if event in ("os.link", "os.rename"):
        if num_names == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        num_names -= 1
sys.addaudithook(hook)
CheckpointStore(Path(sys.argv[1])).save(2, state.capture(), {})
"""


@pytest.mark.slow
def test_a_disk_that_is_full_is_an_error_and_leaves_nothing_behind(tmp_path: Path) -> None:
    save(CheckpointStore(tmp_path), 1)

    ended = subprocess.run([sys.executable, "-c", FILLS_UP, str(tmp_path)], check=False)

    assert ended.returncode == 17
    assert sorted(item.suffix for item in tmp_path.iterdir()) == [".json", ".pt"]


@pytest.mark.slow
@pytest.mark.parametrize("num_names", [0, 1])
def test_a_kill_between_writing_and_naming_leaves_the_old_one(
    tmp_path: Path, num_names: int
) -> None:
    store = CheckpointStore(tmp_path)
    save(store, 1)

    ended = subprocess.run([sys.executable, "-c", DIES, str(tmp_path), str(num_names)], check=False)

    assert ended.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) > 2
    loaded = store.load_newest(lambda facts: True)
    assert loaded is not None
    assert loaded.checkpoint.step == 1
    save(store, 3)
    assert [held.step for held in store.list()] == [1, 3]
    assert len(list(tmp_path.iterdir())) == 4
