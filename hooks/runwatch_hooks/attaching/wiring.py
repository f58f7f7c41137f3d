"""Builds a watch from its parts: a probe that measures, an actor that acts, a channel to report."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar, cast

from torch import nn
from torch.optim import Optimizer

from runwatch.errors import InvalidInputError
from runwatch_hooks.boundary import Boundary, executor_for
from runwatch_hooks.bundles import BundleFolder, Witness
from runwatch_hooks.detail import Detail, Schedule
from runwatch_hooks.device_health import DeviceSensors
from runwatch_hooks.errors import AttachError
from runwatch_hooks.faults import Faults
from runwatch_hooks.governor import Governor
from runwatch_hooks.guard import Guard, Outliers
from runwatch_hooks.observers import observers_of
from runwatch_hooks.ranks import Team
from runwatch_hooks.ranks.shards import LossScale, ZeroOptimizer, is_zero
from runwatch_hooks.reports import Channel, Reports
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options
from runwatch_hooks.state import (
    Actor,
    CheckpointKeeper,
    Generator,
    HasState,
    LrScale,
    RankCheckpoints,
    SnapshotRing,
    TrainingState,
)
from runwatch_hooks.step.instruments import Instruments
from runwatch_hooks.step.observer import RunContext
from runwatch_hooks.step.own_time import OwnTime
from runwatch_hooks.step.probe import Probe
from runwatch_hooks.step.torch_hooks import untraced_class
from runwatch_hooks.watch import Watch

_Item = TypeVar("_Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class Objects:
    """The objects that are watched, and restored by a rollback."""

    modules: Mapping[str, nn.Module]
    optimizers: Sequence[Optimizer]
    schedulers: Sequence[HasState] = ()
    scalers: Sequence[HasState] = ()
    extra: Mapping[str, HasState | Generator] = field(
        default_factory=dict[str, "HasState | Generator"]
    )


def modules_of(model: nn.Module | Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    if not (_is_module(model) or _is_mapping(model)):
        raise AttachError(f"model: found {_found(model)}, wanted a Module or a mapping of Modules")
    modules = {"": model} if isinstance(model, nn.Module) else dict(model)
    if not modules:
        raise AttachError("model: found an empty mapping, wanted at least one Module")
    for name, module in modules.items():
        if not _is_text(name):
            raise AttachError(f"model: found the name {name!r}, wanted a text")
        if not _is_module(module):
            raise AttachError(f"model {name!r}: found {type(module).__name__}, wanted a Module")
    return modules


def optimizers_of(given: Optimizer | Sequence[Optimizer]) -> tuple[Optimizer, ...]:
    """The torch optimizers; of one of DeepSpeed's, the torch optimizer that it wraps."""
    optimizers = _several(given, _is_optimizer, "optimizer")
    if not optimizers:
        raise AttachError(f"optimizer: found {_found(given)}, wanted at least one torch optimizer")
    return tuple(one.optimizer if is_zero(one) else one for one in optimizers)


def zero_optimizers_of(given: object) -> tuple[ZeroOptimizer, ...]:
    """Those of the optimizers that are DeepSpeed's."""
    items = cast("Sequence[object]", given) if isinstance(given, Sequence) else (given,)
    return tuple(one for one in items if is_zero(one))


def stateful_of(given: HasState | Sequence[HasState] | None, place: str) -> tuple[HasState, ...]:
    """Schedulers or scalers; `place` is the argument's name. Raises AttachError for others."""
    return _several(given, _has_state, place)


def _several(
    given: _Item | Sequence[_Item] | None, fits: Callable[[object], bool], place: str
) -> tuple[_Item, ...]:
    if given is None:
        return ()
    items = tuple(cast("Sequence[_Item]", given)) if isinstance(given, Sequence) else (given,)
    for item in items:
        if not fits(item):
            hint = "; of a wrapper, give the one that it wraps" if hasattr(item, "step") else ""
            raise AttachError(f"{place}: found {_found(item)}, wanted a torch {place}{hint}")
    return items


def _found(item: object) -> str:
    kind = type(item).__name__
    is_empty = isinstance(item, (tuple, list)) and not item
    return "none" if item is None or is_empty else kind


def _is_text(item: object) -> bool:
    return isinstance(item, str)


def _is_module(item: object) -> bool:
    return isinstance(item, nn.Module)


def _is_optimizer(item: object) -> bool:
    return isinstance(item, Optimizer) or is_zero(item)


def _is_mapping(item: object) -> bool:
    return isinstance(item, Mapping)


def _has_state(item: object) -> bool:
    return isinstance(item, HasState)


def _can_be_kept(item: object) -> bool:
    return isinstance(item, HasState | Generator)


def extra_of(
    extra: Mapping[str, HasState | Generator] | None,
    dataloader: object | None,
    zeros: Sequence[ZeroOptimizer] = (),
) -> dict[str, HasState | Generator]:
    """The user's `extra`, the loader if it has a `state_dict`, and DeepSpeed's loss scalers."""
    if extra is not None and not _is_mapping(extra):
        raise AttachError(f"extra: found {_found(extra)}, wanted a mapping")
    items = dict(extra or {})
    for name, item in items.items():
        if not _can_be_kept(item):
            wanted = "wanted an object with `state_dict` and `load_state_dict`, or a generator"
            raise AttachError(f"extra {name!r}: found {_found(item)}, {wanted}")
    if isinstance(dataloader, HasState):
        items["dataloader"] = dataloader
    items |= {f"deepspeed.loss_scale{index}": LossScale(one) for index, one in enumerate(zeros)}
    return items


def build_watch(
    objects: Objects,
    options: Options,
    open_channel: Callable[[int], Channel],
    team: Team,
    saved: Mapping[str, object] | None = None,
    open_sensors: Callable[[], DeviceSensors | None] = lambda: None,
) -> LiveWatch:
    """A watch over `objects`, for this rank of `team`.

    `open_channel` opens the channel to the service, given the first step; `saved` is an earlier
    watch's `state_dict`; `open_sensors` returns the sensors of the devices, or None.
    """
    faults = Faults()
    reports = Reports(faults)
    outliers = _outliers(options, objects, faults)
    state = _training_state(objects, outliers)
    keeper = _keeper(options, state, team)
    snapshots = SnapshotRing(state, size=options.snapshots, good_after=options.good_after)
    witness = _witness(options, state, snapshots, team)
    detail = _detail(options, objects, team, faults)
    governor = _governor(options, team)
    lr_scale = _lr_scale(objects, state, faults)
    actor = Actor(
        state,
        snapshots,
        lr_scale,
        checkpoints=keeper,
        allow=options.allow,
        snapshot_every=options.snapshot_every,
        rank=team.world.rank,
        detail=detail,
    )
    probe = Probe(
        objects.modules,
        objects.optimizers,
        faults,
        lr_scale=lambda: lr_scale.scale,
        rank=team.world.rank,
        on_broken=_fault_listener(witness, faults),
        detail=detail,
        governor=governor,
        close_row=reports.close_row,
        observers=observers_of(
            RunContext(
                modules=objects.modules,
                schedulers=objects.schedulers,
                world=team.world,
                faults=faults,
            )
        ),
    )
    instruments = Instruments(
        witness=witness,
        guard=_guard(options, objects, faults, outliers),
        detail=detail,
        own_time=None if team.world.is_alone else OwnTime(faults),
        governor=governor,
        sensors=_sensors(open_sensors, faults),
    )
    boundary = Boundary(
        actor,
        executor_for(actor, reports, team),
        checkpoint=_checkpointer(keeper, state, lr_scale, actor, faults),
        checkpoint_every=options.checkpoint_every,
    )
    watch = untraced_class(LiveWatch, Watch, "_enter_phase", "_leave_phase")(
        team.attempt.run_id,
        probe=probe,
        faults=faults,
        boundary=boundary,
        reports=reports,
        open_channel=open_channel,
        team=team,
        instruments=instruments,
        modules=objects.modules,
        loader=objects.extra.get("dataloader"),
    )
    try:
        _start(watch, saved, lambda: instruments.install(probe, lr_scale), options)
    except BaseException:  # the caller never gets the watch, and could not end it
        watch.lifetime.give_up()
        raise
    return watch


def _start(
    watch: LiveWatch,
    saved: Mapping[str, object] | None,
    install: Callable[[], None],
    options: Options,
) -> None:
    if saved is not None:
        _load(watch, saved)
    install()
    if saved is not None or not _may_resume(options):
        watch.begin()


def _load(watch: LiveWatch, saved: Mapping[str, object]) -> None:
    try:
        watch.load_state_dict(saved)
    except InvalidInputError as error:
        raise AttachError(f"state: {error}") from error


def _training_state(objects: Objects, outliers: Outliers | None) -> TrainingState:
    return TrainingState(
        objects.modules,
        objects.optimizers,
        objects.schedulers,
        objects.scalers,
        objects.extra,
        own={} if outliers is None else {"outliers": outliers},
    )


def _lr_scale(objects: Objects, state: TrainingState, faults: Faults) -> LrScale:
    """Optimizers that the program creates later are added to `state` when they first step."""

    def follow(optimizer: Optimizer) -> None:
        with faults.guard("a later optimizer"):
            state.follow(optimizer)

    return LrScale(objects.optimizers, objects.modules, on_new=follow, faults=faults)


def _checkpointer(
    keeper: CheckpointKeeper | None,
    state: TrainingState,
    lr_scale: LrScale,
    actor: Actor,
    faults: Faults,
) -> Callable[[int], None]:
    """Begins a checkpoint of the state after a step, unless one is still being written."""

    def checkpoint(step: int) -> None:
        if keeper is not None and not keeper.is_writing:
            with faults.guard("checkpoint"):  # or a fault here would skip the boundary's commands
                lr_scale.settle()
                keeper.begin(step, state.capture, dict(actor.state_dict()))

    return checkpoint


def _fault_listener(witness: Witness | None, faults: Faults) -> Callable[[], None]:
    """Tells the witness that an optimizer is about to step with non-finite gradients."""

    def note_broken() -> None:
        if witness is not None:
            with faults.guard("bundle", witness.disable):
                witness.note_broken()

    return note_broken


def _keeper(options: Options, state: TrainingState, team: Team) -> CheckpointKeeper | None:
    if options.checkpoints is None:
        return None
    store = RankCheckpoints(
        options.checkpoints, team.world, state, keep=options.keep, run_id=team.attempt.run_id
    )
    return CheckpointKeeper(store, good_after=options.good_after)


def _detail(options: Options, objects: Objects, team: Team, faults: Faults) -> Detail | None:
    """On rank 0 only: the other ranks' weights are the same, and their batches show in their
    losses."""
    if not team.world.is_leader:
        return None
    return Detail(objects.modules, Schedule(options.histograms, options.activations), faults)


def _sensors(
    open_sensors: Callable[[], DeviceSensors | None], faults: Faults
) -> DeviceSensors | None:
    with faults.guard("devices"):
        return open_sensors()
    return None


def _governor(options: Options, team: Team) -> Governor | None:
    """On rank 0 only: where layers are whole, no other rank reads them."""
    if options.max_overhead is None or not team.world.is_leader:
        return None
    return Governor(options.max_overhead)


def _outliers(options: Options, objects: Objects, faults: Faults) -> Outliers | None:
    return Outliers(objects.optimizers, faults) if options.guard == "outliers" else None


def _guard(
    options: Options, objects: Objects, faults: Faults, outliers: Outliers | None
) -> Guard | None:
    if not options.guard:
        return None
    return Guard(objects.modules, objects.optimizers, faults, outliers)


def _witness(
    options: Options, state: TrainingState, snapshots: SnapshotRing, team: Team
) -> Witness | None:
    if options.bundles is None:
        return None
    run_id, rank = team.attempt.run_id, team.world.rank
    return Witness(
        BundleFolder(options.bundles, run_id, rank, max_bundles=options.max_bundles),
        state,
        snapshots,
        run_id=run_id,
        rank=rank,
        max_bytes=options.bundle_mib * 2**20,
    )


def _may_resume(options: Options) -> bool:
    """Whether there is a checkpoint to resume from. If so, the attempt is opened later, when
    `resume` or the first step decides at which step it begins."""
    folder = options.checkpoints
    return folder is not None and folder.is_dir() and any(folder.iterdir())
