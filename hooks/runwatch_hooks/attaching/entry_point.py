"""The way in: from a program's own objects to a watch over them."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from weakref import WeakSet

import torch
from torch import nn
from torch.optim import Optimizer

from runwatch.frames import Scalar
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_hooks.actions import Generator, HasState
from runwatch_hooks.attaching.superseded_watches import end_former, note
from runwatch_hooks.attaching.training_objects import (
    Objects,
    extra_of,
    modules_of,
    optimizers_of,
    stateful_of,
    zero_optimizers_of,
)
from runwatch_hooks.attaching.watch_builder import build_watch
from runwatch_hooks.attaching.zero_limits import check_zero
from runwatch_hooks.device_health import DeviceSensors, open_sensors
from runwatch_hooks.device_health.cuda_uuids import uuids_of
from runwatch_hooks.governor import check_thinnable
from runwatch_hooks.guard import check_guardable
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import SharedAttempt, Team, find_world, join_team
from runwatch_hooks.reporting.channel import Line
from runwatch_hooks.reporting.machine_facts import describe_machine
from runwatch_hooks.settings.arguments import check_state, config_of, folder_of, step_of
from runwatch_hooks.settings.environment import Environment, override, read_environment
from runwatch_hooks.settings.options import (
    DEFAULT_ALLOW,
    DEFAULT_GOOD_AFTER,
    Guarding,
    Options,
    kinds_of,
)
from runwatch_hooks.transport import Transport, TransportSettings
from runwatch_hooks.watch import Watch
from runwatch_hooks.watching.attached_watch import AttachedWatch
from runwatch_hooks.watching.inert_watch import InertWatch

log = OwnLog(__name__)


def attach(
    model: nn.Module | Mapping[str, nn.Module],
    optimizer: Optimizer | Sequence[Optimizer],
    *,
    run: str,
    project: str | None = None,
    group: str | None = None,
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
    bundles: str | os.PathLike[str] | None = None,
    max_bundles: int = 3,
    bundle_mib: int = 2048,
    guard: Guarding = False,
    snapshot_every: int | None = None,
    snapshots: int = 3,
    good_after: int = DEFAULT_GOOD_AFTER,
    histograms: int | None = None,
    activations: int | None = None,
    max_overhead: float | None = None,
    allow: Sequence[str] = DEFAULT_ALLOW,
    state: Mapping[str, object] | None = None,
    next_step: int | None = None,
) -> Watch:
    """Watch a training run from here to `finish`.

    `group` names the runs of the project that this one repeats, as seeds or a sweep do: one that is
    far worse than the others at the same steps is told.

    `extra` holds what else must go back with a rollback: an EMA, generators of your own; a
    `dataloader` does so where it has a `state_dict` (go over it by `watch.batches`). `allow` names
    the actions that may be carried out: `checkpoint`, `detail`, `lower_lr`, `rollback`, `stop`.
    `state` is what `state_dict` of an earlier life of the run returned, where your own checkpoint
    kept it: the run goes on from there, as its next attempt where `run_id=state["run_id"]` says
    that it is the same one, and as a new run elsewhere. `next_step` is where a program goes on
    that counts its steps itself, with a `state` or without; with neither the steps count from 0,
    and take the place of those that earlier attempts of the run trained.
    `bundles` is a folder for diagnostic bundles: what there is of the first step whose loss or
    gradients are not finite, for `runwatch replay`.
    `guard` makes a step by gradients that are not finite change nothing, without waiting for a
    device; `guard="outliers"` also one whose gradients' norm lies far outside its past.
    `histograms` and `activations` are steps: so often the elements of gradients, weights
    and activations are counted by their size, and what each module returns is measured; by default
    only when the command `detail` asks for it. `max_overhead=0.005` lets watching take half a
    hundredth of a step's time: where it takes more, less is read of some steps, and that is told;
    by default every layer is read at every step.

    A model has one watch, in whatever wrapper it is given: one that it had before, as of a
    notebook's cell that is run again, is told as stopped.

    Without a URL, given here or in RUNWATCH_URL, the run is written to the spool folder, to be
    sent later. Raises AttachError for an argument that cannot be used; afterwards nothing is
    raised into the training.
    """
    environment = read_environment()
    if environment.disabled:
        since = "RUNWATCH_DISABLED is set"
        return InertWatch(RunId(run_id or _new_ulid()), state, next_step, unwatched_since=since)
    check_state(state)
    if next_step is not None:
        state = {**(state or {}), "next_step": step_of("next_step", next_step)}
    environment = override(
        environment,
        run=run,
        run_id=run_id,
        project=project,
        group=group,
        url=url,
        token=token,
        spool=spool,
    )
    zeros = zero_optimizers_of(optimizer)
    objects = Objects(
        modules=modules_of(model),
        optimizers=optimizers_of(optimizer),
        schedulers=stateful_of(scheduler, "scheduler"),
        scalers=stateful_of(scaler, "scaler"),
        extra=extra_of(extra, dataloader, zeros),
    )
    settings = config_of(config)
    options = Options(
        allow=kinds_of(allow),
        snapshot_every=snapshot_every,
        snapshots=snapshots,
        good_after=good_after,
        checkpoints=None if checkpoints is None else folder_of("checkpoints", checkpoints),
        checkpoint_every=checkpoint_every,
        keep=keep,
        bundles=None if bundles is None else folder_of("bundles", bundles),
        max_bundles=max_bundles,
        bundle_mib=bundle_mib,
        guard=guard,
        histograms=histograms,
        activations=activations,
        max_overhead=max_overhead,
    )
    check_zero(zeros, options)
    if guard:
        check_guardable(objects.optimizers)
    if max_overhead is not None:
        check_thinnable(objects.optimizers)
    end_former(objects.modules.values(), run)
    proposed = SharedAttempt(RunId(environment.run_id or _new_ulid()), _new_ulid(), time.time())
    world = find_world(environment)
    team = join_team(world, proposed, is_run_given=environment.run_id is not None)
    if team is None:
        since = f"rank {world.rank} is not watched"
        return InertWatch(proposed.run_id, state, unwatched_since=since)
    if not team.is_whole and options.allow:
        log.warning("one process cannot act for %d ranks", world.world_size)
        options = replace(options, allow=())
    opened = RunOpen(
        run_id=team.attempt.run_id,
        name=run,
        project=environment.project,
        config=settings,
        group=environment.group,
    )
    open_line = _line_opener(environment, team, opened, options.allow, objects.modules)

    def sensors() -> DeviceSensors | None:
        return open_sensors(uuids_of(objects.modules))

    watch = build_watch(objects, options, open_line, team, state, sensors)
    note(objects.modules.values(), watch.lifetime)
    return AttachedWatch(watch)


def _line_opener(
    environment: Environment,
    team: Team,
    run: RunOpen,
    allow: Sequence[str],
    modules: Mapping[str, nn.Module],
) -> Callable[[int], Line]:
    settings = TransportSettings(
        url=environment.url, token=environment.token, spool_dir=environment.spool_dir
    )

    held = WeakSet(modules.values())  # a thread that still waits for an answer asks by this

    def is_evaluating() -> bool:
        return bool(held) and not any(module.training for module in held)

    def open_line(first_step: int) -> Line:
        attempt = AttemptOpen(
            token=team.attempt.token,
            started_at=team.attempt.started_at,
            resume_step=first_step,
            world_size=team.world.world_size,
            allow=tuple(allow),
            host=_host(),
        )
        transport = Transport(settings, run, attempt, team.world.rank, is_evaluating)
        transport.start()
        return transport

    return open_line


def _new_ulid() -> str:
    return ulid(int(time.time() * 1000), os.urandom(10))


def _host() -> dict[str, Scalar]:
    return {
        **describe_machine(),
        "torch": str(torch.__version__),
        "num_gpus": torch.cuda.device_count(),
    }
