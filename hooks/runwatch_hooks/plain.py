"""Watches programs without torch: JAX, Keras, numpy, or any loop that has a loss.

    with open_run("mnist-jax", config={"lr": 1e-3}, allow=("stop",)) as run:
        for batch in batches:
            params, loss, grads = train_one(params, batch)
            report = run.step(loss, gradients=grads, parameters=params)
            if report.stop:
                break

Rows are sent in the same way as with `attach`: queue, spool, sender. In a job of several processes,
only rank 0 is watched.
"""

import os
import secrets
import time
from collections.abc import Mapping, Sequence
from typing import Final

from runwatch.messages import AttemptOpen, RunOpen
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_hooks.faults import Attaching
from runwatch_hooks.reporting.machine_facts import describe_machine
from runwatch_hooks.settings.arguments import config_of, step_if_usable, step_of, text_if_usable
from runwatch_hooks.settings.environment import override, read_environment
from runwatch_hooks.settings.options import kinds_of
from runwatch_hooks.uplink import Uplink, UplinkSettings
from runwatch_hooks.watching.plain_run import PlainRun

__all__ = ["ALLOWED", "PlainRun", "open_run"]

ALLOWED: Final = ("lower_lr", "stop")
"""The actions that such a program can carry out, by `lr_scale` and `stop` of the report."""


def open_run(
    run: str,
    *,
    project: str | None = None,
    group: str | None = None,
    config: Mapping[str, object] | None = None,
    run_id: str | None = None,
    url: str | None = None,
    token: str | None = None,
    spool: str | os.PathLike[str] | None = None,
    next_step: int = 0,
    allow: Sequence[str] = (),
) -> PlainRun:
    """Start watching a run. Arguments and environment variables are those of `attach`.

    `next_step` is the step at which a resumed program continues. `allow` names the actions that may
    be carried out, of `lower_lr` and `stop`. Raises AttachError for an argument that cannot be
    used, and nothing else: where the hook itself fails, the program goes on unwatched.
    """
    environment = read_environment()
    if environment.disabled:  # arguments are not checked, so that nothing can be wrong
        return _unwatched(text_if_usable(run_id), step_if_usable(next_step) or 0)
    with Attaching():
        first_step = step_of("next_step", next_step)
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
        if environment.rank != 0:
            return _unwatched(environment.run_id, first_step)
        found = RunId(environment.run_id or _new_ulid())
        kinds = kinds_of((allow,) if isinstance(allow, str) else allow, ALLOWED)
        settings = config_of(config)
        opened = RunOpen(
            run_id=found,
            name=run,
            project=environment.project,
            config=settings,
            group=environment.group,
        )
        uplink = Uplink(
            UplinkSettings(
                url=environment.url, token=environment.token, spool_dir=environment.spool_dir
            ),
            opened,
            _attempt(first_step, kinds, environment.job),
            0,
        )
        uplink.start()
        return PlainRun(found, uplink, next_step=first_step, allow=kinds)
    return _unwatched(text_if_usable(run_id), step_if_usable(next_step) or 0)


def _unwatched(run_id: str | None, next_step: int) -> PlainRun:
    return PlainRun(RunId(run_id or _new_ulid()), None, next_step=next_step, allow=())


def _new_ulid() -> str:
    return ulid(int(time.time() * 1000), os.urandom(10))


def _attempt(next_step: int, allow: tuple[str, ...], job: str | None) -> AttemptOpen:
    return AttemptOpen(
        token=secrets.token_urlsafe(32),
        started_at=time.time(),
        resume_step=next_step,
        world_size=1,
        allow=allow,
        host=describe_machine(job),
    )
