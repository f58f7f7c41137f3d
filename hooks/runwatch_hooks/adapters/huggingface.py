"""Watches Hugging Face's Trainer.

    trainer = Trainer(model, args, ..., callbacks=[RunwatchCallback(run="bert-small")])

There is one row for each optimizer step, however many batches are accumulated for it. Commands are
carried out between two steps. A stop ends the training through the Trainer. A checkpoint command
writes the hook's checkpoint and the Trainer's own, from which `resume_from_checkpoint` continues as
the next attempt of the same run.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Unpack, cast
from weakref import WeakValueDictionary

from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.optim import Optimizer
from transformers import Trainer, TrainerCallback, TrainerControl, TrainerState, TrainingArguments
from transformers.trainer_callback import ExportableState

from runwatch_hooks.adapters.keywords import Keywords, checked
from runwatch_hooks.attaching import attach
from runwatch_hooks.exit_causes import Status
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.step.torch_hooks import TorchSubscriptions
from runwatch_hooks.uplink.service import sendable
from runwatch_hooks.watch import InertWatch, Watch
from runwatch_hooks.wraps import Arguments, Listeners
from runwatch_hooks.wraps import Keywords as CallKeywords

log = OwnLog(__name__)

_OWN_LOGS: Final = frozenset({"loss", "grad_norm", "learning_rate", "epoch", "step"})
"""Names that the Trainer logs and the hook records itself, for every step and unrounded."""
_FRESH: Final[Mapping[str, object]] = {"actor": {"journal": [], "lr_scale": 1.0}}
"""The state of a watch that has received no commands."""
_KEPT: Final = ("project", "group", "keep", "good_after", "checkpoint_every", "allow")
"""Keywords saved in the Trainer's checkpoints: no API key, and no path of this machine."""

_CALLBACKS: Final[WeakValueDictionary[str | None, "RunwatchCallback"]] = WeakValueDictionary()
"""Run's name -> the callback that the program created last. The Trainer may replace that by one
created from a checkpoint, without passing the first one to it."""


class RunwatchCallback(TrainerCallback, ExportableState):
    """A callback that attaches when the training begins, and finishes when it ends."""

    def __init__(
        self,
        run: str | None = None,
        *,
        restored: Sequence[str] | None = None,
        **keywords: Unpack[Keywords],
    ) -> None:
        """`run` is the run's name; by default the Trainer's `run_name`, or the name of its output
        folder.

        The other keywords are those of `attach`. Checkpoints are in `runwatch/` of the output
        folder by default. `restored` is set by the Trainer when it creates a callback from a
        checkpoint (`restore_callback_states_from_checkpoint`): the keywords that the saved one had.
        Raises AttachError like `attach`.
        """
        self._run = run
        self._keywords = checked(keywords, "the Trainer")
        if restored is not None:
            self._take_over(restored)
        _CALLBACKS[run] = self
        self._watch: Watch | None = None
        self._loss: Tensor | None = None
        self._subscriptions = TorchSubscriptions()
        self._phase: AbstractContextManager[None] | None = None

    @property
    def watch(self) -> Watch | None:
        """The watch; None before the training begins."""
        return self._watch

    def state(self) -> dict[str, Any]:
        """The callback's state, for the Trainer's checkpoints."""
        kept = {key: value for key, value in self._keywords.items() if key in _KEPT}
        attributes = {} if self._watch is None else {"saved": self._watch.state_dict()}
        arguments = {"run": self._run, "restored": sorted(self._keywords), **kept}
        return {"args": arguments, "attributes": attributes}

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._end("failed", reason="it did not end: another training began")
        keywords = self._keywords.copy()
        saved = _saved(state, type(self).__name__, self._run)
        if isinstance(run_id := saved.get("run_id"), str):
            keywords.setdefault("run_id", run_id)
        keywords.setdefault("checkpoints", Path(str(args.output_dir)) / "runwatch")
        keywords.setdefault("config", args.to_sanitized_dict())
        optimizer = kwargs["optimizer"]
        self._watch = attach(
            cast("nn.Module", kwargs["model"]),
            cast("Optimizer", getattr(optimizer, "optimizer", optimizer)),
            run=self._run or args.run_name or _name_of(str(args.output_dir)),
            scheduler=kwargs["lr_scheduler"],
            scaler=getattr(optimizer, "scaler", None),
            state=saved,
            **keywords,
        )
        if not isinstance(self._watch, InertWatch):
            self._subscriptions.listen(
                Accelerator, "backward", Listeners(before=self._before_backward)
            )
            self._subscriptions.listen(
                Trainer, "training_step", Listeners(before=self._before_training_step)
            )

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._watch is None:
            return
        loss, self._loss = self._loss, None
        report = self._watch.step(loss)
        control.should_training_stop = control.should_training_stop or report.stop
        control.should_save = control.should_save or report.checkpoint_asked
        if control.should_save and not control.should_evaluate:
            self._enter("checkpoint")

    def on_prediction_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._enter("eval")

    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> None:
        self._leave()
        numbers = _numbers(metrics or {})
        if "eval_loss" in numbers:
            numbers["val_loss"] = numbers.pop("eval_loss")
        if self._watch is not None:
            self._watch.log(**numbers)
        if control.should_save:
            self._enter("checkpoint")

    def on_predict(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, object],
        **kwargs: Any,
    ) -> None:
        """After a `predict` during the training, which enters the phase like an evaluation."""
        self._leave()

    def on_save(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._leave()

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, object] | None = None,
        **kwargs: Any,
    ) -> None:
        """Record what a custom trainer logs, such as rewards or accuracies."""
        numbers = _numbers(logs or {})
        theirs = {
            name: value
            for name, value in numbers.items()
            if name not in _OWN_LOGS and not name.startswith(("eval_", "train_"))
        }
        if self._watch is not None and theirs:
            self._watch.log(**theirs)

    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._end()

    def _end(self, status: Status = "finished", *, reason: str = "") -> None:
        """End the run. If a training raised, the Trainer does not call `on_train_end`, so the run
        is ended when the next training begins."""
        self._leave()
        self._subscriptions.release()
        self._loss = None
        if self._watch is not None:
            self._watch.finish(status, reason=reason)

    def _take_over(self, restored: Sequence[str]) -> None:
        """Take keywords that checkpoints do not hold from the callback that this one replaces."""
        replaced = _CALLBACKS.get(self._run)
        if replaced is not None:
            self._keywords = replaced._keywords | self._keywords
        if missing := [name for name in restored if name not in self._keywords]:
            log.warning(
                "a callback restored from a checkpoint continues without %s, which the "
                "Trainer does not save: give RunwatchCallback(...) the same as before",
                ", ".join(missing),
            )

    def _before_training_step(self, args: Arguments, kwargs: CallKeywords) -> None:
        """Note the batch as the model gets it. A custom trainer that does not call the Trainer's
        `training_step` gives none."""
        handler = getattr(args[0], "callback_handler", None)
        if self._watch is not None and self in getattr(handler, "callbacks", ()):
            self._watch.note_batch(args[2] if len(args) > 2 else kwargs.get("inputs"))

    def _before_backward(self, args: Arguments, kwargs: CallKeywords) -> None:
        """Add this part of the step's loss; the parts add up to the mean, as in the gradient."""
        accelerator, loss = args[0], args[1] if len(args) > 1 else kwargs["loss"]
        part = loss.detach() / accelerator.gradient_accumulation_steps
        self._loss = part if self._loss is None else self._loss + part

    def _enter(self, phase: str) -> None:
        if self._watch is not None and self._phase is None:
            self._phase = self._watch.phase(phase)
            self._phase.__enter__()

    def _leave(self) -> None:
        if self._phase is not None:
            self._phase.__exit__(None, None, None)
            self._phase = None


def _saved(state: TrainerState, name: str, run: str | None) -> dict[str, object]:
    """The watch's state from the checkpoint that the Trainer resumed from, with the current step.

    Without a checkpoint, the Trainer's state holds what the callbacks reported in an earlier
    training, which is ignored.
    """
    saved = _saved_in(state, name, run) if state.global_step else {}
    return {**_FRESH, **saved, "next_step": int(state.global_step)}


def _saved_in(state: TrainerState, name: str, run: str | None) -> dict[str, object]:
    """The watch's state in a Trainer's state. For several callbacks there is a list, to which each
    checkpoint appends: the last one of this run counts."""
    callbacks = cast("dict[str, Any]", state.stateful_callbacks or {})  # a list only at creation
    found = callbacks.get(name, [])
    entries = cast("list[dict[str, Any]]", found if isinstance(found, list) else [found])
    for entry in reversed(entries):
        if len(entries) == 1 or entry["args"].get("run") == run:
            saved: dict[str, object] = entry.get("attributes", {}).get("saved", {})
            return saved
    return {}


def _name_of(folder: str) -> str:
    """A folder's name, also if it is given as `.`; symbolic links are not resolved."""
    return sendable(os.path.basename(os.path.abspath(folder))) or "run"


def _numbers(logs: Mapping[str, object]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in logs.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
