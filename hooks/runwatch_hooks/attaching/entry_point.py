"""`attach`: checks its arguments, joins the other ranks, and returns a watch."""

import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Final, cast
from weakref import WeakSet

import torch
from torch import nn
from torch.optim import Optimizer

from runwatch.frames import Scalar
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_hooks.attaching.wiring import (
    Objects,
    build_watch,
    extra_of,
    modules_of,
    optimizers_of,
    stateful_of,
    zero_optimizers_of,
)
from runwatch_hooks.device_health import open_sensors
from runwatch_hooks.device_health.cuda_uuids import uuids_of
from runwatch_hooks.ending import end_former, note
from runwatch_hooks.errors import AttachError
from runwatch_hooks.faults import Attaching
from runwatch_hooks.governor import check_thinnable
from runwatch_hooks.guard import check_guardable
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import SharedAttempt, Team, find_world, join_team
from runwatch_hooks.ranks.shards import ZeroOptimizer, is_offloaded, keeps_parameters
from runwatch_hooks.reports import Channel
from runwatch_hooks.run import AttachedWatch
from runwatch_hooks.settings.arguments import (
    check_state,
    config_of,
    folder_of,
    step_if_usable,
    step_of,
    text_if_usable,
)
from runwatch_hooks.settings.environment import Environment, override, read_environment
from runwatch_hooks.settings.machine_facts import describe_machine, host_event
from runwatch_hooks.settings.options import (
    DEFAULT_ALLOW,
    DEFAULT_GOOD_AFTER,
    Guarding,
    Options,
    kinds_of,
)
from runwatch_hooks.state import Generator, HasState
from runwatch_hooks.step.torch_hooks import untraced_class
from runwatch_hooks.uplink import Uplink, UplinkSettings
from runwatch_hooks.watch import InertWatch, Watch


def check_zero(optimizers: Sequence[ZeroOptimizer], options: Options) -> None:
    """Raises AttachError if an option cannot be honoured with one of these optimizers."""
    for optimizer in optimizers:
        objection = _objection_to(optimizer, options)
        if objection:
            raise AttachError(objection)


def _objection_to(zero: ZeroOptimizer, options: Options) -> str:
    """The first objection; empty if there is none."""
    name = type(zero).__name__
    if is_offloaded(zero):
        return f"optimizer: found {name} with its states offloaded, wanted them on the device"
    if options.guard:
        return f"guard: {name} steps pieces of parameters: each rank would decide by its own"
    if options.max_overhead is not None:
        return f"max_overhead: {name} steps pieces of parameters, which are read at every step"
    if options.bundles is not None:
        return f"bundles: {name} steps pieces of parameters, of which no step can be replayed"
    if keeps_parameters(zero):
        return ""
    if "rollback" in options.allow:
        return f"allow: found rollback, and {name} (stage 3) has no parameters to put back"
    if options.checkpoints is not None:
        return f"checkpoints: {name} (stage 3) has no parameters to save, wanted DeepSpeed's own"
    return ""


log = OwnLog(__name__)

_PARTED: Final = (
    "%r starts at step %s as a new run, so nothing compares it with the steps before (its learning "
    "rate, its loss); to go on with the earlier run, pass its ID: attach(..., run_id=...). "
    "`watch.run_id` is that ID, and `watch.state_dict()` holds it for your checkpoint"
)


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
    """Watch a training run, from here to `finish`.

    What belongs to the run:

    - `run` is its name; `group` is shared by runs that repeat each other, such as seeds or a sweep.
      A run far worse than the rest of its group at the same steps raises an alert.
    - `state` is what `Watch.state_dict` returned, loaded from your own checkpoint: the steps
      continue from there. With `run_id=state["run_id"]` this is the next attempt of the same run,
      otherwise a new run.
    - `next_step` is the step to start at, for programs that count their steps themselves; it takes
      precedence over the one in `state`. With neither, steps count from 0, and replace those that
      earlier attempts of the run trained.

    What may be done to it:

    - `allow` names the actions that may be carried out: `checkpoint`, `detail`, `lower_lr`,
      `rollback`, `stop`.
    - A rollback restores the model, optimizers, schedulers and scalers, the `dataloader` if it has
      a `state_dict` (then iterate over it with `watch.batches`), and everything in `extra`, such as
      an EMA or your own random generators.
    - `guard=True` makes a step with non-finite gradients change nothing, without waiting for the
      device; `guard="outliers"` does so as well if the gradient norm is far outside its recent
      history.

    What is measured:

    - `bundles` is a folder for diagnostic bundles: everything needed to repeat, with
      `runwatch replay`, the first step whose loss or gradients were not finite.
    - `histograms` and `activations` are intervals in steps: how often the elements of gradients,
      weights and activations are counted by magnitude, and how often the outputs of modules are
      measured. By default only when the command `detail` asks for it.
    - `max_overhead` is the share of a step's time that watching may take, such as 0.005. Above it,
      some steps are read less completely, which is recorded. By default every layer is read at
      every step.

    A model has one watch at a time, whichever wrapper it is given in. If it already has one, as
    when a notebook cell is run again, the earlier run ends as stopped.

    Without a URL, given here or in RUNWATCH_URL, the run is written to the spool folder, to be
    sent later. Raises AttachError for an argument that cannot be used, and nothing else: where the
    hook itself fails, the training goes on unwatched, and the log says so.
    """
    environment = read_environment()
    if environment.disabled:
        return _inert(run_id, state, next_step, unwatched_since="RUNWATCH_DISABLED is set")
    with Attaching():
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
        return _open(
            run, environment, objects=objects, options=options, config=settings, state=state
        )
    return _inert(run_id, state, next_step, unwatched_since="attaching failed")


def _inert(run_id: object, state: object, next_step: object, *, unwatched_since: str) -> InertWatch:
    """Nothing is checked, so that nothing can be wrong: what cannot be used counts as not given."""
    return InertWatch(
        RunId(text_if_usable(run_id) or _new_ulid()),
        cast("Mapping[str, object]", state) if isinstance(state, Mapping) else None,
        step_if_usable(next_step),
        unwatched_since=unwatched_since,
    )


def _open(
    run: str,
    environment: Environment,
    *,
    objects: Objects,
    options: Options,
    config: dict[str, object],
    state: Mapping[str, object] | None,
) -> Watch:
    """Join the other ranks, and begin to watch."""
    run_id = RunId(environment.run_id or _new_ulid())
    proposed = SharedAttempt(run_id, secrets.token_urlsafe(32), time.time())
    world = find_world(environment)
    team = join_team(world, proposed, is_run_given=environment.run_id is not None)
    if team is None:
        since = f"rank {world.rank} is not watched"
        return InertWatch(proposed.run_id, state, unwatched_since=since)
    is_new = environment.run_id is None and team.attempt.run_id == proposed.run_id
    _warn_if_parted(run, team, state, is_new=is_new)
    if not team.is_whole and options.allow:
        log.warning("one process cannot act for %d ranks", world.world_size)
        options = replace(options, allow=())
    opened = RunOpen(
        run_id=team.attempt.run_id,
        name=run,
        project=environment.project,
        config=config,
        group=environment.group,
    )
    open_channel = _channel_opener(environment, team, opened, options.allow, objects.modules)
    watch = build_watch(
        objects,
        options,
        open_channel,
        team,
        state,
        open_sensors=lambda: open_sensors(uuids_of(objects.modules)),
    )
    try:
        note(objects.modules.values(), watch.lifetime)
        return untraced_class(AttachedWatch, Watch)(watch)
    except BaseException:  # as in `build_watch`: the caller never gets the watch
        watch.lifetime.give_up()
        raise


def _warn_if_parted(
    run: str, team: Team, state: Mapping[str, object] | None, *, is_new: bool
) -> None:
    """A new run that does not start at step 0 is mostly meant to be an earlier one."""
    start = (state or {}).get("next_step", 0)
    if is_new and start and team.world.rank == 0:
        log.warning(_PARTED, run, start)


def _channel_opener(
    environment: Environment,
    team: Team,
    run: RunOpen,
    allow: Sequence[str],
    modules: Mapping[str, nn.Module],
) -> Callable[[int], Channel]:
    settings = UplinkSettings(
        url=environment.url, token=environment.token, spool_dir=environment.spool_dir
    )

    # Weak, because the sender's thread may outlive the run, and must not keep the model alive.
    held = WeakSet(modules.values())

    def is_evaluating() -> bool:
        return bool(held) and not any(module.training for module in held)

    def open_channel(first_step: int) -> Channel:
        attempt = AttemptOpen(
            token=team.attempt.token,
            started_at=team.attempt.started_at,
            resume_step=first_step,
            world_size=team.world.world_size,
            allow=tuple(allow),
            host=_host(environment.job),
        )
        uplink = Uplink(settings, run, attempt, team.world.rank, is_evaluating)
        uplink.start()
        if team.world.world_size > 1:
            uplink.put_event(host_event(first_step))
        return uplink

    return open_channel


def _new_ulid() -> str:
    return ulid(int(time.time() * 1000), os.urandom(10))


def _host(job: str | None) -> dict[str, Scalar]:
    return {
        **describe_machine(job),
        "torch": str(torch.__version__),
        "num_gpus": torch.cuda.device_count(),
    }
