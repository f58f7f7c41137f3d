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

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, Unpack, cast

import msgspec
import torch
from accelerate import Accelerator  # type: ignore[import-untyped]
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch.errors import InvalidInputError
from runwatch_hooks.adapters.keywords import Keywords, checked
from runwatch_hooks.attaching import attach as attach_plain
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.state import HasState
from runwatch_hooks.step.numbers import number
from runwatch_hooks.watch import Loggable, StepReport, Watch

log = OwnLog(__name__)

NAME: Final = "runwatch.json"
"""Name of the file with the states of all watches of an accelerator, by the names of their runs."""
_REGISTERED: Final = re.compile(r"custom_checkpoint_(\d+)\.pkl")

_State = Mapping[str, object]


class WatchInFolders:
    """Saves and loads a watch's state with everything else. Failures are only logged.

    Saves a watch's own state in the folders that `accelerator.save_state` writes. It is in a file
    of its own, which may be absent. Accelerate counts the files of registered objects, and would
    refuse a folder from before the training was watched, or from a run no longer watched.
    """

    def __init__(self, accelerator: Accelerator, watch: Watch, run: str) -> None:
        self._accelerator = accelerator
        self._watch = watch
        self._run = run
        self._in_old_place: _OldPlace | None = None
        accelerator.register_save_state_pre_hook(self._save)
        accelerator.register_load_state_pre_hook(self._load)

    def _save(self, models: object, weights: object, folder: str) -> None:
        self._leave_old_place()
        if not self._writes:
            return
        path = Path(folder) / NAME
        try:
            states = {**_read(path), self._run: self._watch.state_dict()}
            path.write_bytes(msgspec.json.encode(states))
        except (OSError, ValueError, TypeError) as error:
            log.warning("%s: the state of the watch is not saved: %s", path, error)

    @property
    def _writes(self) -> bool:
        """Whether this process writes Accelerate's own files: one process, or one per machine."""
        if self._accelerator.project_configuration.save_on_each_node:
            return bool(self._accelerator.is_local_main_process)
        return bool(self._accelerator.is_main_process)

    def _load(self, models: object, folder: str) -> None:
        self._leave_old_place()
        state = self._state_in(_read(Path(folder) / NAME))
        try:
            if state is not None:
                self._watch.load_state_dict(state)
            elif not self._take_old_place(Path(folder)) and self._watch.next_step == 0:
                log.warning(
                    "%s holds no state of a watch, so the steps count from 0; if the "
                    "training continues, give its step: attach(..., next_step=...)",
                    folder,
                )
        except InvalidInputError as error:
            log.warning("%s: the state of the watch is not loaded: %s", folder, error)

    def _state_in(self, states: Mapping[str, _State]) -> _State | None:
        """This run's state, or the only one in the file: the run may have been renamed."""
        if self._run not in states and len(states) == 1:
            return next(iter(states.values()))
        return states.get(self._run)

    def _take_old_place(self, folder: Path) -> bool:
        """Whether an earlier version of the hook saved this folder, with the watch registered as an
        object. Then an object is registered in its place, for this load only."""
        objects: list[object] = cast(Any, self._accelerator)._custom_objects
        numbers = [int(found[1]) for one in folder.iterdir() if (found := _matches(one))]
        if len(numbers) != len(objects) + 1:
            return False
        for index in sorted(numbers):
            if _is_of_a_watch(folder / f"custom_checkpoint_{index}.pkl"):
                self._in_old_place = _OldPlace(self._watch)
                objects.insert(index, self._in_old_place)
                return True
        return False

    def _leave_old_place(self) -> None:
        if self._in_old_place is not None:
            cast(Any, self._accelerator)._custom_objects.remove(self._in_old_place)
            self._in_old_place = None


class _OldPlace:
    """A watch as an object that can be registered with Accelerate."""

    def __init__(self, watch: Watch) -> None:
        self.state_dict = watch.state_dict
        self.load_state_dict = watch.load_state_dict


def _read(path: Path) -> dict[str, dict[str, object]]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, dict[str, object]])
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        log.warning("%s cannot be read: %s", path, error)
        return {}


def _matches(path: Path) -> re.Match[str] | None:
    return _REGISTERED.fullmatch(path.name)


def _is_of_a_watch(path: Path) -> bool:
    try:
        state: object = torch.load(path, map_location="cpu", weights_only=True)
    except Exception:  # noqa: BLE001  an object of another kind
        return False
    return isinstance(state, dict) and {"next_step", "actor"} <= state.keys()


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
