"""The way in: from a program's own objects to a watch over them."""

import logging
import os
import platform
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar, cast

import torch
from torch import nn
from torch.optim import Optimizer

from runwatch.commands import ACTION_KINDS
from runwatch.frames import Scalar
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_hooks.actions import (
    Actor,
    CheckpointKeeper,
    CheckpointStore,
    Generator,
    HasState,
    LrScale,
    SnapshotRing,
    TrainingState,
)
from runwatch_hooks.errors import AttachError
from runwatch_hooks.faults import Faults
from runwatch_hooks.inert import InertWatch
from runwatch_hooks.live import Hands, Line, LiveWatch
from runwatch_hooks.probe import Probe
from runwatch_hooks.settings import Environment, read_environment
from runwatch_hooks.transport import Transport, TransportSettings
from runwatch_hooks.watch import Watch

log = logging.getLogger(__name__)

DEFAULT_SNAPSHOT_EVERY: Final = 50
"""Steps. A capture costs about as much as copying the training state once (45 ms for 257 MB)."""
DEFAULT_GOOD_AFTER: Final = 10
"""Healthy steps after which a saved state counts as good."""

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """What of a program is watched, and goes back with a rollback."""

    modules: Mapping[str, nn.Module]
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[HasState] = ()
    scalers: Sequence[HasState] = ()
    extra: Mapping[str, HasState | Generator] = field(
        default_factory=dict[str, "HasState | Generator"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a run may be acted on."""

    allow: Sequence[str] = ("checkpoint",)
    """Kinds of action; the last word, whatever the service says."""
    snapshot_every: int | None = None
    """Steps; None: 50. Taken only where `rollback` is allowed."""
    snapshots: int = 3
    """States kept in memory."""
    good_after: int = DEFAULT_GOOD_AFTER
    checkpoints: Path | None = None
    checkpoint_every: int | None = None
    """Steps; None: only when asked."""
    keep: int = 3
    """Checkpoints on disk, beside the newest good ones."""

    def __post_init__(self) -> None:
        unknown = sorted(set(self.allow) - set(ACTION_KINDS))
        if unknown:
            raise AttachError(f"allow: found {unknown[0]!r}, wanted some of {ACTION_KINDS}")
        for name, number in (
            ("snapshot_every", self.snapshot_every),
            ("checkpoint_every", self.checkpoint_every),
            ("good_after", self.good_after),
            ("keep", self.keep),
        ):
            if number is not None and number < 1:
                raise AttachError(f"{name}: found {number}, wanted at least 1")
        if self.snapshots < 3:
            raise AttachError(f"snapshots: found {self.snapshots}, wanted at least 3")
        if self.checkpoint_every is not None and self.checkpoints is None:
            raise AttachError("checkpoint_every: found no folder, wanted `checkpoints`")


def attach(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    run: str,
    project: str = "default",
    config: Mapping[str, object] | None = None,
    run_id: str | None = None,
    url: str | None = None,
    token: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    scheduler: HasState | Sequence[HasState] | None = None,
    scaler: HasState | Sequence[HasState] | None = None,
    dataloader: object | None = None,
    extra: Mapping[str, HasState | Generator] | None = None,
    checkpoints: str | os.PathLike[str] | None = None,
    checkpoint_every: int | None = None,
    keep: int = 3,
    snapshot_every: int | None = None,
    snapshots: int = 3,
    good_after: int = DEFAULT_GOOD_AFTER,
    allow: Sequence[str] = ("checkpoint",),
) -> Watch:
    """Watch a training run from here to `finish`.

    `extra` holds what else must go back with a rollback: an EMA, generators of your own; a
    `dataloader` does so where it has a `state_dict`. `allow` names the actions that may be
    carried out: `checkpoint`, `lower_lr`, `rollback`, `stop`.

    Without a URL, given here or in RUNWATCH_URL, the run is written to the spool folder, to be
    sent later. Raises AttachError for an argument that cannot be used; afterwards nothing is
    raised into the training.
    """
    environment = read_environment()
    if environment.disabled:
        return InertWatch(RunId(run_id or _new_ulid()))
    environment = _override(environment, run_id=run_id, url=url, token=token, spool=spool)
    objects = Objects(
        modules=_modules(model),
        optimizers=_several(optimizer, _is_optimizer, "optimizer"),
        schedulers=_several(scheduler, _has_state, "scheduler"),
        scalers=_several(scaler, _has_state, "scaler"),
        extra=_extra(extra, dataloader),
    )
    options = Options(
        allow=tuple(allow),
        snapshot_every=snapshot_every,
        snapshots=snapshots,
        good_after=good_after,
        checkpoints=None if checkpoints is None else Path(checkpoints),
        checkpoint_every=checkpoint_every,
        keep=keep,
    )
    found = RunId(environment.run_id or _new_ulid())
    if environment.rank != 0:
        return InertWatch(found)
    if environment.world_size > 1 and options.allow:
        log.warning("runwatch: one process cannot act for %d ranks", environment.world_size)
        options = replace(options, allow=())
    opened = RunOpen(run_id=found, name=run, project=project, config=dict(config or {}))
    return build_watch(found, objects, options, _line_opener(environment, opened, options.allow))


def build_watch(
    run_id: RunId, objects: Objects, options: Options, open_line: Callable[[int], Line]
) -> LiveWatch:
    """A watch over objects, on a line of one's own."""
    faults = Faults()
    state = TrainingState(
        objects.modules, objects.optimizers, objects.schedulers, objects.scalers, objects.extra
    )
    keeper = _keeper(options)
    # Before the probe: its hooks run first, so that the rate we read is the one in force.
    lr_scale = LrScale(objects.optimizers, objects.modules)
    actor = Actor(
        state,
        SnapshotRing(state, size=options.snapshots, good_after=options.good_after),
        lr_scale,
        checkpoints=keeper,
        allow=options.allow,
        snapshot_every=options.snapshot_every or DEFAULT_SNAPSHOT_EVERY,
    )

    def checkpoint(step: int) -> None:
        if keeper is not None and not keeper.is_writing:
            lr_scale.settle()
            keeper.begin(step, state.capture, dict(actor.state_dict()))

    probe = Probe(objects.modules, objects.optimizers, faults, lambda: lr_scale.scale)
    watch = LiveWatch(
        run_id,
        probe=probe,
        faults=faults,
        hands=Hands(actor=actor, checkpoint=checkpoint, checkpoint_every=options.checkpoint_every),
        open_line=open_line,
    )
    probe.install()
    if not _may_resume(options):
        watch.begin()
    return watch


def _keeper(options: Options) -> CheckpointKeeper | None:
    if options.checkpoints is None:
        return None
    store = CheckpointStore(options.checkpoints, keep=options.keep)
    return CheckpointKeeper(store, good_after=options.good_after)


def _may_resume(options: Options) -> bool:
    """Whether there is something to resume from: then the attempt opens once that is decided,
    since it says at which step it begins."""
    folder = options.checkpoints
    return folder is not None and folder.is_dir() and any(folder.iterdir())


def _line_opener(
    environment: Environment, run: RunOpen, allow: Sequence[str]
) -> Callable[[int], Line]:
    settings = TransportSettings(
        url=environment.url, token=environment.token, spool_dir=environment.spool_dir
    )

    def open_line(first_step: int) -> Line:
        attempt = AttemptOpen(
            token=_new_ulid(),
            started_at=time.time(),
            resume_step=first_step,
            world_size=environment.world_size,
            allow=tuple(allow),
            host=_host(),
        )
        transport = Transport(settings, run, attempt, environment.rank)
        transport.start()
        return transport

    return open_line


def _override(
    environment: Environment,
    *,
    run_id: str | None,
    url: str | None,
    token: str | None,
    spool: str | os.PathLike[str] | None,
) -> Environment:
    """The environment with the arguments that were given in their places."""
    return replace(
        environment,
        run_id=run_id or environment.run_id,
        url=url or environment.url,
        token=token or environment.token,
        spool_dir=environment.spool_dir if spool is None else Path(spool),
    )


def _modules(model: nn.Module | Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    modules = {"": model} if isinstance(model, nn.Module) else dict(model)
    for name, module in modules.items():
        if not _is_module(module):
            raise AttachError(f"model {name!r}: found {type(module).__name__}, wanted a Module")
    return modules


def _several(
    given: _Item | Sequence[_Item] | None, fits: Callable[[object], bool], place: str
) -> tuple[_Item, ...]:
    if given is None:
        return ()
    items = tuple(cast("Sequence[_Item]", given)) if isinstance(given, Sequence) else (given,)
    for item in items:
        if not fits(item):
            raise AttachError(f"{place}: found {type(item).__name__}, wanted a torch {place}")
    return items


def _is_module(item: object) -> bool:
    return isinstance(item, nn.Module)


def _is_optimizer(item: object) -> bool:
    return isinstance(item, Optimizer)


def _has_state(item: object) -> bool:
    return isinstance(item, HasState)


def _extra(
    extra: Mapping[str, HasState | Generator] | None, dataloader: object | None
) -> dict[str, HasState | Generator]:
    items = dict(extra or {})
    if isinstance(dataloader, HasState):
        items["dataloader"] = dataloader
    return items


def _new_ulid() -> str:
    return ulid(int(time.time() * 1000), os.urandom(10))


def _host() -> dict[str, Scalar]:
    return {
        "hostname": socket.gethostname(),
        "pid": os.getpid(),
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "num_gpus": torch.cuda.device_count(),
    }
