"""`runwatch run -- CMD...`: runs a job with a service that watches it."""

import os
import shutil
import signal
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final, NoReturn

import httpx
import msgspec
import typer
from rich.console import Console

from runwatch.addresses import without_user
from runwatch.terminal_text import encodable, readable_line
from runwatch.ulids import is_ulid, ulid
from runwatch_server.cli.client import AddressError, KeyTextError, check_address, key_headers
from runwatch_server.cli.job import NOT_EXECUTABLE, NOT_FOUND, run_job
from runwatch_server.cli.job_service import JobService
from runwatch_server.cli.local_service import (
    RECORD,
    LocalServiceError,
    local_service,
    still_running,
)
from runwatch_server.cli.output import OurConsole
from runwatch_server.cli.unreported_end import report_end

_NAMED_WITHIN_S: Final = 20.0
_LOOK_EVERY_S: Final = 0.5
_JUDGED_WITHIN_S: Final = 60.0
_MOST_ALERTS: Final = 8


class _Run(msgspec.Struct):
    project: str


class _Alert(msgspec.Struct):
    attempt: int
    rule: str
    severity: str
    summary: str
    firing_step: int | None
    inhibited_by: str | None


class _Alerts(msgspec.Struct):
    alerts: list[_Alert]
    judged: bool | None


def run(
    command: Annotated[list[str], typer.Argument(metavar="-- CMD...", help="The job.")],
    name: Annotated[
        str | None, typer.Option(help="Name of the run, instead of the one that the script gives.")
    ] = None,
    project: Annotated[
        str | None, typer.Option(help="Project of the run, if the script gives none.")
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN_ID", help="Continue this run, as its next attempt."),
    ] = None,
    data_dir: Annotated[
        Path, typer.Option(envvar="RUNWATCH_DATA_DIR", help="Data folder of the local service.")
    ] = Path("runwatch-data"),
    keep: Annotated[bool, typer.Option(help="Leave the local service running.")] = False,
) -> None:
    """Run a job and watch it: with the service of RUNWATCH_URL and RUNWATCH_TOKEN, or with a local
    one, which is started if none runs and stopped after its last job.

    The job gets RUNWATCH_URL, RUNWATCH_TOKEN, RUNWATCH_RUN_ID and RUNWATCH_PROJECT, which `attach`
    reads. Ctrl-C and SIGTERM go to the job. If the job is killed, or exits with an error without
    reporting its end, its run is closed as failed or stopped, provided that our key may read it.
    Exits with the job's exit code (128 + n if signal n ended it), with 2 if the job could not
    begin, with 126 or 127 if its command cannot be run or does not exist.
    """
    console = OurConsole(stderr=True)
    run_id = resume or ulid(int(time.time() * 1000), os.urandom(10))
    _check(console, command, run_id)
    # As with Ctrl-C, until the job has begun: what we started ends with us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with _service(data_dir, keep=keep) as service:
            _print(console, f"Watched at {service.how_to_open.format(run_id=run_id)}")
            if resume is not None and project is None:
                project = _project_of(service, run_id)
            began_at = time.time()
            with _named(console, service, run_id, name):
                code = run_job(command, _variables(service, run_id, project))
            if how := report_end(service, run_id, code, began_at=began_at):
                _print(console, how)
            has_told = _has_reported(console, service, run_id)
            if has_told:
                _print_alerts(console, service, run_id)
    except LocalServiceError as error:
        _fail(console, str(error), 2)
    if has_told is not False:
        again = f"runwatch run --resume {run_id} -- {command[0]} …"
        _print(console, f"run {run_id}; go on with it:  {again}")
    if "RUNWATCH_URL" not in os.environ:
        _print_data_dir(console, data_dir)
    raise typer.Exit(code)


def _check(console: Console, command: list[str], run_id: str) -> None:
    if not is_ulid(run_id):
        _fail(console, f"--resume: found {run_id!r}, wanted a run's id (26 letters)", 2)
    if shutil.which(command[0]) is None:
        is_there = Path(command[0]).exists()
        wanted = "a program that may be executed" if is_there else "a program that exists"
        _fail(
            console,
            f"found {command[0]!r}, wanted {wanted}; a script needs its interpreter: "
            "runwatch run -- python train.py",
            NOT_EXECUTABLE if is_there else NOT_FOUND,
        )


@contextmanager
def _service(data_dir: Path, *, keep: bool) -> Generator[JobService]:
    url, token = os.environ.get("RUNWATCH_URL"), os.environ.get("RUNWATCH_TOKEN", "")
    if url:
        try:
            check_address(url)
            key_headers(token)
        except AddressError as error:
            raise LocalServiceError(f"RUNWATCH_URL: {error}") from error
        except KeyTextError as error:
            raise LocalServiceError(f"RUNWATCH_TOKEN: {error}") from error
        look = f"{without_user(url).rstrip('/')}/runs/{{run_id}}"
        service = JobService(url, token, token, look)
        _check_named(service)
        yield service
        return
    with local_service(data_dir, keep=keep) as found:
        look = f"{found.url}/runs/{{run_id}}\n  log in with  {found.url}/login#key="
        # The key must not get into a log that others may read.
        is_private = os.isatty(2)
        key = found.admin_key if is_private else f"<admin_key in {data_dir / RECORD}>"
        yield JobService(found.url, found.trainer_key, found.admin_key, look + key)


def _check_named(service: JobService) -> None:
    """Ends the command if the key is refused; if the service is away, the job can spool."""
    try:
        answer = service.ask("GET", "/runs?limit=1")
    except httpx.HTTPError as error:
        waits = "the job's numbers wait in its spool folder"
        _print(OurConsole(stderr=True), f"{service.address} does not answer ({error}); {waits}")
        return
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        raise LocalServiceError(
            f"{service.address} does not know the key in RUNWATCH_TOKEN; set one it knows"
        )


def _project_of(service: JobService, run_id: str) -> str | None:
    """The project of a run that exists, to which its next attempt belongs; None if unknown."""
    try:
        run = service.get(f"/runs/{run_id}", _Run)
    except httpx.HTTPError:
        return None
    return None if run is None else run.project


def _variables(service: JobService, run_id: str, project: str | None) -> dict[str, str]:
    return {
        **os.environ,
        **({} if project is None else {"RUNWATCH_PROJECT": project}),
        "RUNWATCH_URL": service.url,
        "RUNWATCH_TOKEN": service.token,
        "RUNWATCH_RUN_ID": run_id,
    }


@contextmanager
def _named(console: Console, service: JobService, run_id: str, name: str | None) -> Generator[None]:
    """Within, renames the run as soon as the job has registered it."""
    if name is None:
        yield
        return
    is_over = threading.Event()

    def work() -> None:
        while True:
            is_last = is_over.wait(_LOOK_EVERY_S)
            if _rename(console, service, run_id, name) or is_last:
                return

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(_NAMED_WITHIN_S)


def _rename(console: Console, service: JobService, run_id: str, name: str) -> bool:
    """Tries to rename the run; returns whether that is settled, so that no retry is needed."""
    try:
        answer = service.ask("PATCH", f"/runs/{run_id}", {"name": encodable(name)})
    except httpx.HTTPError:
        return False
    if answer.status_code == HTTPStatus.NOT_FOUND:
        return False
    if answer.is_error:
        _print(
            console, f"--name: refused ({answer.status_code}); it needs a key with scope control"
        )
    return True


def _has_reported(console: Console, service: JobService, run_id: str) -> bool | None:
    """Whether the service knows the run; None if it cannot be asked. Prints it if not."""
    try:
        answer = service.ask("GET", f"/runs/{run_id}")
    except httpx.HTTPError as error:
        _print(console, f"{service.address} does not answer ({error})")
        return None
    if answer.status_code == HTTPStatus.NOT_FOUND:
        _print(
            console,
            "the job has told the service nothing: does its script call "
            "`runwatch_hooks.attach`, and without RUNWATCH_DISABLED?",
        )
        return False
    return answer.is_success or None


def _print_alerts(console: Console, service: JobService, run_id: str) -> None:
    """Prints the alerts, in the order of firing, once everything that the job sent is judged."""
    fired = _alerts(service, run_id)
    if fired is None:
        return
    for alert in fired[:_MOST_ALERTS]:
        told = f"{alert.severity}: {alert.rule}, {alert.summary}"
        _print(console, readable_line(told))
    if len(fired) > _MOST_ALERTS:
        _print(console, f"and {len(fired) - _MOST_ALERTS} alerts more")
    if not fired:
        _print(console, "no alert has fired")


def _alerts(service: JobService, run_id: str) -> list[_Alert] | None:
    """The run's alerts without those that another explains; None if they cannot be read."""
    path = f"/alerts?run_id={run_id}&limit=500"
    give_up = time.monotonic() + _JUDGED_WITHIN_S
    while time.monotonic() < give_up:
        try:
            found = service.get(path, _Alerts)
        except httpx.HTTPError:
            return None
        if found is None:  # a trainer's key may read nothing
            return None
        if found.judged:
            return sorted(
                (one for one in found.alerts
                 if one.firing_step is not None and one.inhibited_by is None),
                key=lambda one: (one.attempt, one.firing_step, one.rule),
            )  # fmt: skip
        time.sleep(_LOOK_EVERY_S)
    return None


def _print_data_dir(console: Console, data_dir: Path) -> None:
    running = still_running(data_dir)
    again = f"runwatch serve --data-dir {data_dir}" if running is None else running.url
    _print(
        console, f"look at it again:  {again}  (log in with the admin_key in {data_dir / RECORD})"
    )
    if running is not None:
        _print(
            console,
            f"its service goes on; it ends by  kill {running.pid}  or with the next job "
            "that is run without --keep",
        )


def _print(console: Console, text: str) -> None:
    console.print(f"runwatch: {text}", highlight=False, soft_wrap=True, markup=False)


def _fail(console: Console, text: str, code: int) -> NoReturn:
    _print(console, text)
    raise typer.Exit(code)
