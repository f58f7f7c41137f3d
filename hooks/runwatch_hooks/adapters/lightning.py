"""Watches Lightning's Trainer.

    trainer = Trainer(..., callbacks=[RunwatchCallback("bert-small")])

There is one row for each batch after which an optimizer stepped, however many were accumulated
before, with the metrics that `training_step` logs. A checkpoint command writes the hook's
checkpoint and Lightning's own, from which `fit(ckpt_path=...)` continues as the next attempt of the
same run.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Unpack, cast

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from runwatch_hooks.adapters.keywords import Keywords, checked
from runwatch_hooks.attaching import attach
from runwatch_hooks.exit_causes import ending_by
from runwatch_hooks.watch import Watch

_TAKEN: Final = {"tokens": "user/tokens"}
"""Metric names that are keywords of `Watch.step` -> the names under which they are recorded."""


class RunwatchCallback(Callback):
    """A callback that attaches when a fit begins, and finishes when it ends, in whatever way."""

    def __init__(self, run: str, **keywords: Unpack[Keywords]) -> None:
        """`run` is the run's name; the keywords are those of `attach`. Checkpoints are in
        `runwatch/` of the Trainer's `default_root_dir` by default. Raises AttachError like
        `attach`."""
        self._run = run
        self._keywords = checked(keywords, "Lightning")
        self._watch: Watch | None = None
        self._loaded: dict[str, object] = {}
        self._loss: Tensor | None = None
        self._num_optimizer_steps = 0
        self._phase: AbstractContextManager[None] | None = None
        self._known: dict[str, Tensor] = {}
        self._logged: dict[str, Tensor] = {}

    @property
    def watch(self) -> Watch | None:
        """The watch; None before the training begins."""
        return self._watch

    def state_dict(self) -> dict[str, Any]:
        """The watch's state, for Lightning's checkpoints."""
        return {} if self._watch is None else self._watch.state_dict()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """A fit begins, and has not loaded a checkpoint yet: forget what an earlier fit or test has
        loaded, and the loss of its unfinished step."""
        if stage == "fit":
            self._loaded, self._loss = {}, None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._loaded = state_dict

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        keywords = self._keywords.copy()
        if isinstance(run_id := self._loaded.get("run_id"), str):
            keywords.setdefault("run_id", run_id)
        keywords.setdefault("checkpoints", _folder(trainer))
        keywords.setdefault("config", dict(cast("Mapping[str, object]", pl_module.hparams)))
        schedulers = [one.scheduler for one in trainer.lr_scheduler_configs]
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        self._watch = attach(
            pl_module,
            trainer.optimizers,
            run=self._run,
            scheduler=schedulers,
            scaler=scaler,
            state=self._loaded or None,
            **keywords,
        )
        self._num_optimizer_steps = trainer.global_step

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: object, batch_idx: int
    ) -> None:
        if self._watch is not None:
            self._watch.note_batch(batch)

    def on_train_batch_end(
        self,
        trainer: Trainer,
        pl_module: LightningModule,
        outputs: Tensor | Mapping[str, Any] | None,
        batch: object,
        batch_idx: int,
    ) -> None:
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor):  # divided by the number of batches in a step already
            part = loss.detach()
            self._loss = part if self._loss is None else self._loss + part
        if self._watch is None or trainer.global_step == self._num_optimizer_steps:
            return
        self._num_optimizer_steps = trainer.global_step
        numbers = self._newly_logged(trainer)
        loss, self._loss = self._loss, None
        theirs = numbers.pop("loss", None)  # used if manual optimization returns no loss
        report = self._watch.step(theirs if loss is None else loss, **numbers)
        trainer.should_stop = trainer.should_stop or report.stop
        if report.checkpoint_asked:
            with self._watch.phase("checkpoint"):
                trainer.save_checkpoint(_folder(trainer) / f"lightning-{report.step}.ckpt")

    def _newly_logged(self, trainer: Trainer) -> dict[str, Any]:
        """Metrics logged by `training_step` since the last row. One not logged again has the same
        memory. The tensors are kept alive, so that no new one gets the address of an old one."""
        before, self._logged = self._logged, _logged_in_steps(trainer)
        return {
            _TAKEN.get(name, name): value
            for name, value in self._logged.items()
            if name not in before or before[name].data_ptr() != value.data_ptr()
        }

    def on_validation_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._known = dict(trainer.callback_metrics)
        if self._watch is not None:
            self._phase = self._watch.phase("eval")
            self._phase.__enter__()

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Record the metrics that the validation logged: those whose tensors were replaced."""
        if self._phase is not None:
            self._phase.__exit__(None, None, None)
            self._phase = None
        if self._watch is not None:
            found = trainer.callback_metrics.items()
            self._watch.log(**{k: v for k, v in found if v is not self._known.get(k)})

    def on_exception(
        self, trainer: Trainer, pl_module: LightningModule, exception: BaseException
    ) -> None:
        if self._watch is not None:
            status, reason = ending_by(exception)
            self._watch.finish(status, reason=reason)

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._watch is not None:
            self._watch.finish()


def _folder(trainer: Trainer) -> Path:
    return Path(trainer.default_root_dir) / "runwatch"


def _logged_in_steps(trainer: Trainer) -> dict[str, Tensor]:
    """Metrics logged in training steps, read from Lightning's internal results. Its public
    attributes also hold metrics of evaluations, and reading them has side effects that other
    callbacks would notice."""
    try:
        found = cast(Any, getattr(trainer, "_results", None)).metrics(on_step=True)["log"]
    except Exception:  # noqa: BLE001 - a private interface; without it, rows have fewer metrics
        return {}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}
