"""What a job's runs report while it goes on, printed on its terminal at once."""

import os
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from http import HTTPStatus
from types import TracebackType
from typing import Final, Self

import httpx
import msgspec
from rich.console import Console

from runwatch.terminal_text import encodable, readable_line
from runwatch.vocabulary import RunState, Severity
from runwatch_server.cli.answers import Id
from runwatch_server.cli.job_service import JobService
from runwatch_server.cli.output import say

_LOOK_EVERY_S: Final = 1.0
_ENDED_WITHIN_S: Final = 20.0
_UNATTACHED_S: Final = 60.0
"""How long, in seconds, a job may load its data before it is asked about."""
_JUDGED_WITHIN_S: Final = 60.0
_MOST: Final = 500
_OF_PEOPLE: Final = f"inhibited=false&shadow=false&limit={_MOST}"
"""Selects the alerts of which people are notified."""
_LEFT_OPEN: Final = ("run_ended", "settled_worse")
"""Resolutions of alerts whose runs were not healthy again."""
_OPEN: Final = ("firing", "recovering")


class JobRun(msgspec.Struct):
    """A run that a job has opened."""

    id: Id
    name: str
    state: RunState
    current_attempt: int


class JobAlert(msgspec.Struct):
    """An alert of one of them."""

    id: str
    run_id: Id
    attempt: int
    rule: str
    severity: Severity
    state: str
    summary: str
    firing_step: int | None
    resolution: str | None
    acked_at: str | None

    @property
    def is_left_open(self) -> bool:
        """Whether a person should look at it."""
        is_open = self.state in _OPEN or self.resolution in _LEFT_OPEN
        return is_open and self.severity is not Severity.INFO and self.acked_at is None


class _Runs(msgspec.Struct):
    runs: list[JobRun]


class _Alerts(msgspec.Struct):
    alerts: list[JobAlert]
    judged: bool | None


class JobWatch:
    """Names a job's run as soon as it has opened one, and prints each critical alert of its runs,
    while used in a `with` statement. Says so if the job opens no run."""

    def __init__(
        self,
        console: Console,
        service: JobService,
        job: str,
        *,
        title: str,
        name: str | None = None,
        unattached_s: float = _UNATTACHED_S,
    ) -> None:
        """`title` is what people call the job, `name` what its run is to be called."""
        self._console = console
        self._service = service
        self._job = job
        self._title = title
        self._name = name
        self._is_over = threading.Event()
        self._asks_at = time.monotonic() + unattached_s
        self._is_attached = False
        self._may_read = True
        self._told: set[str] = set()
        self._over: set[tuple[str, int]] = set()
        """Attempts that have ended and are judged: there will be no news of them."""
        self._thread = threading.Thread(target=self._work, name="runwatch-job", daemon=True)

    def __enter__(self) -> Self:
        with suppress(httpx.HTTPError):  # what a resumed run has had before is no news
            self._told = {alert.id for alert in self._fired(self._runs())}
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._is_over.set()
        self._thread.join(_ENDED_WITHIN_S)

    def _work(self) -> None:
        """Looks once more when the job has ended: it may have been a short one."""
        is_last = False
        while not is_last:
            is_last = self._is_over.wait(_LOOK_EVERY_S)
            try:
                self._look()
            except httpx.HTTPError:  # it may come back
                continue

    def _look(self) -> None:
        runs = self._runs()
        self._is_attached = self._is_attached or bool(runs)
        if self._name is not None and self._rename(self._name):
            self._name = None
        if runs is not None and not self._is_attached and time.monotonic() > self._asks_at:
            self._is_attached = True  # is asked about once
            say(self._console, f"{self._title} has not called attach() yet: is it watched? {HELP}")
        for alert in self._fired(runs):
            if alert.id not in self._told:
                self._told.add(alert.id)
                self._print(alert, runs or ())

    def _runs(self) -> list[JobRun] | None:
        """None if they cannot be read. A trainer's key may not, and does not ask each second."""
        if not self._may_read:
            return None
        runs = runs_of(self._service, self._job)
        if runs is None:
            answer = self._service.ask("GET", "/runs?limit=1")
            self._may_read = answer.status_code != HTTPStatus.FORBIDDEN
        return runs

    def _fired(self, runs: Iterable[JobRun] | None) -> list[JobAlert]:
        """Critical alerts of the runs, of which there may be news."""
        return [
            alert
            for run in runs or ()
            if (run.id, run.current_attempt) not in self._over
            for alert in self._fired_in(run)
        ]

    def _fired_in(self, run: JobRun) -> list[JobAlert]:
        found = self._service.get(
            f"/alerts?run_id={run.id}&severity=critical&{_OF_PEOPLE}", _Alerts
        )
        if found is None:
            return []
        if found.judged and run.state.is_ended:
            self._over.add((run.id, run.current_attempt))
        return [alert for alert in reversed(found.alerts) if alert.firing_step is not None]

    def _print(self, alert: JobAlert, runs: Iterable[JobRun]) -> None:
        if os.isatty(2):  # the job's progress bar may be in this line
            self._console.print()
        say(self._console, described(alert, runs))

    def _rename(self, name: str) -> bool:
        """Tries to rename the run; returns whether that is settled, so that no retry is needed."""
        answer = self._service.ask("PATCH", f"/runs/{self._job}", {"name": encodable(name)})
        if answer.status_code == HTTPStatus.NOT_FOUND:
            return False
        if answer.is_error:
            say(
                self._console,
                f"--name: refused ({answer.status_code}); it needs a key with scope control",
            )
        return True


HELP: Final = (
    "It has to call `runwatch_hooks.attach` before its loop, `watch.step(loss)` after each step "
    "and `watch.finish()` at the end, without RUNWATCH_DISABLED."
)
"""What to do about a job that opens no run."""


def runs_of(service: JobService, job: str) -> list[JobRun] | None:
    """The runs that a job has opened, newest first; None if our key may not read them. Raises
    httpx.HTTPError."""
    found = service.get(f"/runs?job={job}&limit={_MOST}", _Runs)
    return None if found is None else found.runs


def alerts_of(service: JobService, runs: Iterable[JobRun]) -> list[JobAlert] | None:
    """All alerts that have fired in the runs, in the order of firing, without those that another
    explains, once everything that the job sent is judged; None if they cannot be read."""
    give_up = time.monotonic() + _JUDGED_WITHIN_S
    fired: list[JobAlert] = []
    for run in sorted(runs, key=lambda run: run.id):
        found = _judged_alerts(service, run.id, give_up)
        if found is None:
            return None
        fired += sorted(
            (one for one in found if one.firing_step is not None),
            key=lambda one: (one.attempt, one.firing_step, one.rule),
        )
    return fired


def _judged_alerts(service: JobService, run_id: str, give_up: float) -> list[JobAlert] | None:
    path = f"/alerts?run_id={run_id}&{_OF_PEOPLE}"
    while time.monotonic() < give_up:
        try:
            found = service.get(path, _Alerts)
        except httpx.HTTPError:
            return None
        if found is None:  # a trainer's key may read nothing
            return None
        if found.judged:
            return found.alerts
        time.sleep(_LOOK_EVERY_S / 2)
    return None


def described(alert: JobAlert, runs: Iterable[JobRun]) -> str:
    """An alert in one line, with its run's name if it is not the only one."""
    names = {run.id: run.name for run in runs}
    where = f" in {names[alert.run_id]}" if len(names) > 1 else ""
    over = " (recovered)" if alert.resolution == "recovered" else ""
    return readable_line(f"{alert.severity}{where}: {alert.rule}, {alert.summary}{over}")
