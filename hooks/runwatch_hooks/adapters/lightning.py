"""Lightning's Trainer, watched.

    trainer = Trainer(..., callbacks=[RunwatchCallback("bert-small")])

One row for each batch that an optimizer stepped after, however many were accumulated before it,
with what `training_step` logs.
A checkpoint that the service asks for is ours and, beside it, Lightning's own, from which
`fit(ckpt_path=...)` goes on as the next attempt of the same run.
"""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Final, Unpack, cast

from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from runwatch_hooks.adapters.keywords import Keywords, checked
from runwatch_hooks.attaching import attach
from runwatch_hooks.lifecycle.run_end import ending_by
from runwatch_hooks.watch import Watch

_TAKEN: Final = {"tokens": "user/tokens"}
"""Names that are keywords of `Watch.step`, and what a module's number is kept as."""


class RunwatchCallback(Callback):
    """Attaches when a fit begins, and finishes when it ends, however it does."""

    def __init__(self, run: str, **keywords: Unpack[Keywords]) -> None:
        """The keywords are `attach`'s. Checkpoints lie in `runwatch/` of the Trainer's
        `default_root_dir`, unless told otherwise. Raises AttachError for what `attach` would
        refuse."""
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
        """None before the training begins."""
        return self._watch

    def state_dict(self) -> dict[str, Any]:
        """For Lightning's own checkpoints."""
        return {} if self._watch is None else self._watch.state_dict()

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """A fit begins, before it loads a checkpoint: what a fit or test before it loaded, and the
        batches that its last step had not yet had, are none of its own."""
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
        theirs = numbers.pop("loss", None)  # all there is of a step by hand that returns none
        report = self._watch.step(theirs if loss is None else loss, **numbers)
        trainer.should_stop = trainer.should_stop or report.stop
        if report.checkpoint_asked:
            with self._watch.phase("checkpoint"):
                trainer.save_checkpoint(_folder(trainer) / f"lightning-{report.step}.ckpt")

    def _newly_logged(self, trainer: Trainer) -> dict[str, Any]:
        """What `training_step` has logged since the last row; of one that was not logged anew the
        memory is the same, which we hold lest another gets its address."""
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
        """What the validation logged: that which is another tensor now than before it."""
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
    """From where Lightning's own attributes read it: they hold what evaluations logged as well, and
    what is read there stays there, so that other callbacks would find more than without us."""
    try:
        found = cast(Any, getattr(trainer, "_results", None)).metrics(on_step=True)["log"]
    except Exception:  # noqa: BLE001 - not a part of its interface; without it the rows have less
        return {}
    return {name: value for name, value in found.items() if isinstance(value, Tensor)}
