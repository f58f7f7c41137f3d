"""A Trainer that trains again from the start, after a run whose learning rate was lowered, and two
callbacks in one Trainer that goes on from its checkpoint. After each training's first step the
Trainer predicts. Then a Trainer whose output is this folder makes its callback of the checkpoint.

repeated_trainer.py FOLDER    FOLDER/trainings.json has of each training the run's id, the step to
come next and the multiplier of its learning rate, FOLDER/log.txt what was said
"""

import json
import logging
import sys
from pathlib import Path
from typing import Any

import torch
from tests.hooks.adapters.line_fit import Net, Rows
from transformers import Trainer, TrainerCallback, TrainerControl, TrainingArguments

from runwatch_hooks.adapters.huggingface import RunwatchCallback

Told = tuple[str, int, float]


class UntilLowered(TrainerCallback):
    """Ends a training once its rate is lowered, and another after its second step."""

    def __init__(self, watched: RunwatchCallback) -> None:
        self.watched = watched
        self.is_lowered = False

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        if self.is_lowered:
            control.should_training_stop = state.global_step == 2
        else:
            self.is_lowered = control.should_training_stop = told_of(self.watched)[2] < 1.0


class Predicting(TrainerCallback):
    trainer: Trainer

    def on_step_end(self, args: Any, state: Any, control: TrainerControl, **kwargs: Any) -> None:
        if state.global_step == 1:
            self.trainer.predict(Rows())


def told_of(callback: RunwatchCallback) -> Told:
    watch = callback.watch
    assert watch is not None
    state: Any = watch.state_dict()
    return str(watch.run_id), watch.next_step, state["actor"]["lr_scale"]


def trainer(
    output: Path,
    num_steps: int,
    *callbacks: TrainerCallback,
    saves: bool = False,
    restores: bool = False,
) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(output),
        max_steps=num_steps,
        per_device_train_batch_size=2,
        save_strategy="steps" if saves else "no",
        save_steps=2,
        restore_callback_states_from_checkpoint=restores,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
    )
    predicting = Predicting()
    predicting.trainer = Trainer(
        Net(), arguments, train_dataset=Rows(), callbacks=[*callbacks, predicting]
    )
    return predicting.trainer


def from_the_start(folder: Path) -> list[Told]:
    """The one that is lowered, and one that nobody asked to be."""
    watched = RunwatchCallback("repeated", spool=folder / "spool", allow=("lower_lr",))
    repeated = trainer(folder / "repeated", 1_000_000, watched, UntilLowered(watched))
    told: list[Told] = []
    for _ in range(2):
        repeated.train()
        told.append(told_of(watched))
    return told


def by_two_callbacks(folder: Path) -> list[Told]:
    """Of the second callback: from the start, and from the checkpoint."""
    told: list[Told] = []
    for num_steps in (2, 3):
        pair = [RunwatchCallback(name, spool=folder / "spool") for name in ("first", "second")]
        paired = trainer(folder / "pair", num_steps, *pair, saves=True)
        paired.train(resume_from_checkpoint=num_steps > 2)
        told.append(told_of(pair[1]))
    return told


def restored(folder: Path) -> list[tuple[Told, list[str]]]:
    """From the start, and by a callback that the Trainer has made of the checkpoint; with the
    names of the keywords that each has."""
    told: list[tuple[Told, list[str]]] = []
    for num_steps in (2, 3):
        watched = RunwatchCallback(spool=folder / "spool", checkpoints=folder / "kept", keep=1)
        again = trainer(Path(), num_steps, watched, saves=True, restores=True)
        again.train(resume_from_checkpoint=num_steps > 2)
        callbacks: list[Any] = again.callback_handler.callbacks
        (made,) = (one for one in callbacks if isinstance(one, RunwatchCallback))
        assert (made is watched) == (num_steps == 2)
        told.append((told_of(made), made.state()["args"]["restored"]))
    RunwatchCallback("of another program", restored=["keep", "spool", "url"], keep=1)
    return told


def main(folder: Path) -> None:
    told = {
        "from the start": from_the_start(folder),
        "two callbacks": by_two_callbacks(folder),
        "restored": restored(folder),
    }
    (folder / "trainings.json").write_text(json.dumps(told))


if __name__ == "__main__":
    torch.set_num_threads(1)
    logging.basicConfig(filename=Path(sys.argv[1]) / "log.txt")
    main(Path(sys.argv[1]))
