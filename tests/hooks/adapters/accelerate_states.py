"""Trainings under Accelerate that go on from one another's folders, watched and not; and one whose
steps are accumulated.

accelerate_states.py FOLDER    FOLDER/states.json has what each was given
"""

import json
import sys
from pathlib import Path
from typing import Any, cast

import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import nn

from runwatch_hooks.adapters.accelerate import Batches, attach


class Counter:
    """An object of the program's own."""

    def __init__(self, count: int = 0) -> None:
        self.count = count

    def state_dict(self) -> dict[str, int]:
        return {"count": self.count}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.count = state["count"]


class Training:
    def __init__(self, folder: Path, counter: Counter | None = None) -> None:
        self._folder = folder
        self.accelerator = cast(Any, Accelerator(cpu=True))
        model = nn.Linear(2, 1)
        self._prepared = self.accelerator.prepare(
            model, torch.optim.SGD(model.parameters(), lr=0.1)
        )
        self.counter = counter or Counter()
        self.accelerator.register_for_checkpointing(self.counter)

    def watched(self, run: str = "states") -> Batches:
        return attach(self.accelerator, *self._prepared, run=run, spool=self._folder / "spool")

    def train(self, batches: Batches, num_steps: int) -> None:
        model, optimizer = self._prepared
        for _ in range(num_steps):
            loss = model(torch.ones(1, 2)).sum()
            self.accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            batches.step(loss)


def before_and_after(folder: Path) -> dict[str, Any]:
    """From an unwatched training to a watched one, and back."""
    Training(folder, Counter(5)).accelerator.save_state(folder / "unwatched")
    training = Training(folder)
    with training.watched() as batches:
        training.accelerator.load_state(folder / "unwatched")
        training.train(batches, 3)
        training.accelerator.save_state(folder / "watched")
    unwatched = Training(folder)
    unwatched.accelerator.load_state(folder / "watched")
    with (renamed := Training(folder)).watched("renamed") as batches:
        renamed.accelerator.load_state(folder / "watched")
    return {
        "unwatched": unwatched.counter.count,
        "renamed": [renamed.counter.count, batches.watch.next_step],
    }


def one_after_another(folder: Path) -> dict[str, Any]:
    training = Training(folder)
    for run, num_steps in (("first", 2), ("second", 4)):
        with training.watched(run) as batches:
            training.train(batches, num_steps)
    training.accelerator.save_state(folder / "two")
    again = Training(folder)
    with again.watched("second") as batches:
        again.accelerator.load_state(folder / "two")
    return {"second": batches.watch.next_step}


def of_an_earlier_version(folder: Path) -> dict[str, Any]:
    """Which registered its watch with Accelerate; and what is saved once it was loaded."""
    training = Training(folder, Counter(7))
    with training.watched() as batches:
        training.train(batches, 6)
        training.accelerator.register_for_checkpointing(batches.watch)
        training.accelerator.save_state(folder / "earlier")
    (folder / "earlier" / "runwatch.json").unlink()
    later = Training(folder)
    with later.watched() as batches:
        later.accelerator.load_state(folder / "earlier")
        later.accelerator.save_state(folder / "later")
    saved = sorted(path.name for path in (folder / "later").glob("custom_checkpoint*"))
    return {"earlier": [later.counter.count, batches.watch.next_step], "later": saved}


def damaged(folder: Path) -> dict[str, Any]:
    training = Training(folder)
    with training.watched() as batches:
        training.train(batches, 1)
        training.accelerator.save_state(folder / "damaged")
        (folder / "damaged" / "runwatch.json").write_text('{"states": {"next_step"')
        training.accelerator.load_state(folder / "damaged")
        training.accelerator.save_state(folder / "damaged")
    saved = json.loads((folder / "damaged" / "runwatch.json").read_text())
    return {"damaged": [batches.watch.next_step, saved["states"]["next_step"]]}


def accumulated(folder: Path) -> dict[str, Any]:
    """Four batches make two steps."""
    training = Training(folder)
    with training.watched("accumulated") as batches:
        for number in range(4):
            training.accelerator.gradient_state._set_sync_gradients(number % 2 == 1)
            theirs: dict[str, Any] = {"batch": float(number)}
            if number == 0:
                theirs["reward"] = torch.tensor(0.5, requires_grad=True)
            batches.step(1.0, **theirs)
    return {}


def main(folder: Path) -> None:
    told: dict[str, Any] = {}
    for program in (
        before_and_after,
        one_after_another,
        of_an_earlier_version,
        damaged,
        accumulated,
    ):
        told |= program(folder)
    (folder / "states.json").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(Path(sys.argv[1]))
