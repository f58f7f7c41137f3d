"""Hugging Face's Trainer, watched.

    trainer = Trainer(model, args, ..., callbacks=[RunwatchCallback(run="bert-small")])

One row for each optimizer step, however many batches it is accumulated from. What the service
asks for is done between two steps: a stop ends the training as the Trainer ends it, a checkpoint
is ours and, beside it, the Trainer's own, from which `resume_from_checkpoint` goes on as the next
attempt of the same run.
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
from runwatch_hooks.lifecycle.run_end import Status
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.transport.texts import sendable
from runwatch_hooks.watch import Watch
from runwatch_hooks.watching.inert_watch import InertWatch
from runwatch_hooks.wrapping.torch_wraps import TorchHolds
from runwatch_hooks.wrapping.wraps import Arguments, Ears
from runwatch_hooks.wrapping.wraps import Keywords as CallKeywords

log = OwnLog(__name__)

_OWN_LOGS: Final = frozenset({"loss", "grad_norm", "learning_rate", "epoch", "step"})
"""What the Trainer logs of what we record ourselves, step by step and unrounded."""
_FRESH: Final[Mapping[str, object]] = {"actor": {"journal": [], "lr_scale": 1.0}}
"""The state of a watch to which nothing was commanded."""
_KEPT: Final = ("project", "group", "keep", "good_after", "checkpoint_every", "allow")
"""Keywords that stand in the Trainer's checkpoints: no key, no place of this machine."""

_CALLBACKS: Final[WeakValueDictionary[str | None, "RunwatchCallback"]] = WeakValueDictionary()
"""By the name of its run, the callback that the program has made last. The Trainer may put one in
its place that it makes of a checkpoint, and hands that no other."""


class RunwatchCallback(TrainerCallback, ExportableState):
    """Attaches when the training begins, and finishes when it ends."""

    def __init__(
        self,
        run: str | None = None,
        *,
        restored: Sequence[str] | None = None,
        **keywords: Unpack[Keywords],
    ) -> None:
        """`run` is the run's name: the Trainer's `run_name`, or its output folder's, without one.

        The other keywords are `attach`'s. Checkpoints lie in `runwatch/` of the output folder,
        unless told otherwise. Raises AttachError for what `attach` would refuse. `restored` is the
        Trainer's own, where it makes a callback of its checkpoint
        (`restore_callback_states_from_checkpoint`): which keywords that one had.
        """
        self._run = run
        self._keywords = checked(keywords, "the Trainer")
        if restored is not None:
            self._take_over(restored)
        _CALLBACKS[run] = self
        self._watch: Watch | None = None
        self._loss: Tensor | None = None
        self._holds = TorchHolds()
        self._phase: AbstractContextManager[None] | None = None

    @property
    def watch(self) -> Watch | None:
        """None before the training begins."""
        return self._watch

    def state(self) -> dict[str, Any]:
        """For the Trainer's own checkpoints."""
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
            self._holds.hold(Accelerator, "backward", Ears(before=self._before_backward))
            self._holds.hold(Trainer, "training_step", Ears(before=self._before_training_step))

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
        """Of a `predict` within the training, which begins as an evaluation does."""
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
        """What a trainer of somebody's own logs: rewards, accuracies."""
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
        """Once a training. The Trainer tells nobody of one that raised; when it trains again, what
        that one has left is in the way."""
        self._leave()
        self._holds.release()
        self._loss = None
        if self._watch is not None:
            self._watch.finish(status, reason=reason)

    def _take_over(self, restored: Sequence[str]) -> None:
        """What no checkpoint holds, from the callback in whose place this one is put."""
        replaced = _CALLBACKS.get(self._run)
        if replaced is not None:
            self._keywords = replaced._keywords | self._keywords
        if missing := [name for name in restored if name not in self._keywords]:
            log.warning(
                "a callback made of a checkpoint goes on without %s, which no checkpoint of the "
                "Trainer holds: give RunwatchCallback(...) the same as before",
                ", ".join(missing),
            )

    def _before_training_step(self, args: Arguments, kwargs: CallKeywords) -> None:
        """Takes the batch as the model gets it; a trainer of somebody's own that does not call the
        Trainer's step gives none."""
        handler = getattr(args[0], "callback_handler", None)
        if self._watch is not None and self in getattr(handler, "callbacks", ()):
            self._watch.note_batch(args[2] if len(args) > 2 else kwargs.get("inputs"))

    def _before_backward(self, args: Arguments, kwargs: CallKeywords) -> None:
        """Takes part in a step's loss: the parts add up to the mean that its gradient is of."""
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
    """What the checkpoint that the Trainer resumed from knows of the watch; else where it is.

    Without a checkpoint the Trainer asks each callback itself what it knows, which is of the
    training before: no part of this one.
    """
    saved = _saved_in(state, name, run) if state.global_step else {}
    return {**_FRESH, **saved, "next_step": int(state.global_step)}


def _saved_in(state: TrainerState, name: str, run: str | None) -> dict[str, object]:
    """Of several callbacks there is a list, to which each checkpoint adds: ours is the last."""
    callbacks = cast("dict[str, Any]", state.stateful_callbacks or {})  # a list only when built
    found = callbacks.get(name, [])
    entries = cast("list[dict[str, Any]]", found if isinstance(found, list) else [found])
    for entry in reversed(entries):
        if len(entries) == 1 or entry["args"].get("run") == run:
            saved: dict[str, object] = entry.get("attributes", {}).get("saved", {})
            return saved
    return {}


def _name_of(folder: str) -> str:
    """A folder's own, also of one that is given as `.`; a link keeps its name."""
    return sendable(os.path.basename(os.path.abspath(folder))) or "run"


def _numbers(logs: Mapping[str, object]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in logs.items()
        if isinstance(value, (int, float)) and not isinstance(value, bool)
    }
