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
from typing import Any, Final, Self, Unpack, cast

from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.adapters.accelerate_folders import WatchInFolders
from runwatch_hooks.adapters.keywords import Keywords, checked
from runwatch_hooks.attaching import attach as attach_plain
from runwatch_hooks.state import HasState
from runwatch_hooks.step.numbers import number
from runwatch_hooks.watch import Loggable, StepReport, Watch

_NO_NUMBER: Final = (TypeError, ValueError, OverflowError, RuntimeError)
"""Raised by a value that is no number, or lies on another device than the others."""


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
        self._tokens: list[int] = []

    def step(
        self, loss: Loggable | None = None, *, tokens: int | None = None, **metrics: Loggable
    ) -> StepReport | None:
        """Call this after each batch; returns None while gradients are still being accumulated.

        The row's loss is the mean of its batches' losses, as its gradient is of theirs. If several
        batches give a metric, the last value counts.
        """
        if loss is not None:
            self._losses.append(_alone(loss))
        self._metrics |= {name: _alone(value) for name, value in metrics.items()}
        if tokens is not None:
            self._tokens.append(tokens)
        if not self._accelerator.sync_gradients:
            return None
        losses, self._losses = self._losses, []
        counts, self._tokens = self._tokens, []
        metrics, self._metrics = self._metrics, {}
        return self.watch.step(_mean_of(losses), tokens=_sum_of(counts), **metrics)

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


def _mean_of(losses: Sequence[Loggable]) -> Loggable | None:
    """The mean of the losses, of which each may be a tensor with several elements. If one is no
    number, or lies on another device, the last one alone."""
    try:
        numbers = [number(one) for one in losses]
        return sum(numbers[1:], numbers[0]) / len(numbers) if numbers else None
    except _NO_NUMBER:
        return losses[-1]


def _sum_of(counts: Sequence[int]) -> int | None:
    """The sum of the counts, or the last one alone, as in `_mean_of`."""
    try:
        return sum(counts[1:], counts[0]) if counts else None
    except _NO_NUMBER:
        return counts[-1]


def _several(given: object) -> list[object]:
    if isinstance(given, Sequence):
        return list(cast("Sequence[object]", given))
    return [] if given is None else [given]


def _inner(optimizer: object) -> Any:
    """The optimizer inside Accelerate's wrapper, which only delegates to it."""
    return getattr(optimizer, "optimizer", optimizer)
