"""Builds a watch from its parts: a probe that measures, an actor that acts, a channel to report."""

from collections.abc import Callable, Mapping

from torch.optim import Optimizer

from runwatch.errors import InvalidInputError
from runwatch_hooks.attaching.training_objects import Objects
from runwatch_hooks.bundles import BundleFolder, Witness
from runwatch_hooks.detail import Detail, Schedule
from runwatch_hooks.device_health import DeviceSensors
from runwatch_hooks.errors import AttachError
from runwatch_hooks.faults import Faults
from runwatch_hooks.governor import Governor
from runwatch_hooks.guard import Guard, Outliers
from runwatch_hooks.observers import observers_of
from runwatch_hooks.ranks import Team
from runwatch_hooks.reporting.channel import Channel
from runwatch_hooks.reporting.reports import Reports
from runwatch_hooks.settings.options import Options
from runwatch_hooks.state import (
    Actor,
    CheckpointKeeper,
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
from runwatch_hooks.watching.boundary import Boundary
from runwatch_hooks.watching.command_execution import executor_for
from runwatch_hooks.watching.live_watch import LiveWatch


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
