"""Watches a training loop with Accelerate, under `accelerator.accumulate`.

    model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
    with attach(accelerator, model, optimizer, run="bert-small", scheduler=scheduler) as batches:
        for batch in loader:
            with accelerator.accumulate(model):
                loss = model(**batch).loss
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
            report = batches.step(loss)
            if report is not None and report.stop:
                break

There is one row for each optimizer step, however many batches are accumulated for it. For
diagnostic bundles with batches, iterate over `batches.watch.batches(loader)`.
"""

from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, Unpack, cast

from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.actions import HasState
from runwatch_hooks.adapters.accelerate_folders import WatchInFolders
from runwatch_hooks.adapters.keywords import Keywords, checked
from runwatch_hooks.attaching import attach as attach_plain
from runwatch_hooks.watch import Loggable, StepReport, Watch


class Batches:
    """Collects batches, and calls `watch.step` after each optimizer step.

    For everything else use `watch`. `accelerator.save_state` saves the watch's own state too, in
    `runwatch.json`.
    """

    def __init__(self, accelerator: Accelerator, watch: Watch) -> None:
        self.watch = watch
        self._accelerator = accelerator
        self._losses: list[Loggable] = []
        self._metrics: dict[str, Loggable] = {}
        self._tokens = 0

    def step(
        self, loss: Loggable | None = None, *, tokens: int = 0, **metrics: Loggable
    ) -> StepReport | None:
        """Call this after each batch; returns None while gradients are still being accumulated.

        The row's loss is the mean of its batches' losses, as its gradient is of theirs. If several
        batches give a metric, the last value counts.
        """
        if loss is not None:
            self._losses.append(_alone(loss))
        self._metrics |= {name: _alone(value) for name, value in metrics.items()}
        self._tokens += tokens
        if not self._accelerator.sync_gradients:
            return None
        losses, self._losses = self._losses, []
        sum_of_tokens, self._tokens = self._tokens, 0
        metrics, self._metrics = self._metrics, {}
        mean = sum(losses[1:], losses[0]) / len(losses) if losses else None
        return self.watch.step(mean, tokens=sum_of_tokens or None, **metrics)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.watch.__exit__(kind, error, traceback)


def attach(
    accelerator: Accelerator,
    model: nn.Module,
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    run: str,
    scheduler: HasState | Sequence[HasState] | None = None,
    next_step: int | None = None,
    **keywords: Unpack[Keywords],
) -> Batches:
    """Watch the objects that `accelerator.prepare` returned. The keywords are those of
    `runwatch_hooks.attach`.

    Raises AttachError for an argument that cannot be used.
    """
    optimizers = [_inner(one) for one in _several(optimizer)]
    watch = attach_plain(
        model,
        cast("list[Optimizer]", optimizers),
        run=run,
        scheduler=cast("list[HasState]", _several(scheduler)),
        scaler=cast("HasState | None", accelerator.scaler),
        next_step=next_step,
        **checked(keywords, "Accelerate"),
    )
    WatchInFolders(accelerator, watch, run)
    return Batches(accelerator, watch)


def _alone(value: Loggable) -> Loggable:
    """The value without its autograd graph, which would be kept alive until the row."""
    return value.detach() if isinstance(value, Tensor) else value


def _several(given: object) -> list[object]:
    if isinstance(given, Sequence):
        return list(cast("Sequence[object]", given))
    return [] if given is None else [given]


def _inner(optimizer: object) -> Any:
    """The optimizer inside Accelerate's wrapper, which only delegates to it."""
    return getattr(optimizer, "optimizer", optimizer)
