"""`runwatch run -- CMD...`: runs a job with a service that watches it."""

import os
import shutil
import signal
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Annotated, Final, NoReturn
from urllib.parse import urlencode

import httpx
import msgspec
import typer
from rich.console import Console

from runwatch.addresses import without_user
from runwatch.terminal_text import encodable
from runwatch.ulids import is_ulid, ulid
from runwatch_server.cli.answers import Id
from runwatch_server.cli.client import AddressError, KeyTextError, new_http
from runwatch_server.cli.job import NOT_EXECUTABLE, NOT_FOUND, is_at_terminal, run_job, title_of
from runwatch_server.cli.job_service import JobService
from runwatch_server.cli.job_watch import (
    HELP,
    JobRun,
    JobWatch,
    alerts_of,
    described,
    runs_of,
)
from runwatch_server.cli.local_service import (
    LocalServiceError,
    local_service,
    stay_until_ctrl_c,
    still_running,
)
from runwatch_server.cli.output import OurConsole, say
from runwatch_server.cli.run_names import is_beginning, search_path
from runwatch_server.cli.unreported_end import report_end

_MOST_ALERTS: Final = 8
_SHOWN_LETTERS: Final = 64
"""Of the title of a job, in its link."""


_NO_RUN: Final = (
    "--resume: found {!r}, wanted a run's id (26 letters), or the beginning of only one"
)


class _Run(msgspec.Struct):
    project: str


class _Listed(msgspec.Struct):
    id: Id


class _Fleet(msgspec.Struct):
    runs: list[_Listed]


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

    Prints one link, which waits for the run and then shows it, and each critical alert at once. On
    a terminal the local service stays until Ctrl-C if the job leaves alerts open; `runwatch open`
    shows the runs again later.

    The job gets RUNWATCH_URL, RUNWATCH_TOKEN, RUNWATCH_RUN_ID and RUNWATCH_PROJECT, which `attach`
    reads. Ctrl-C and SIGTERM go to the job. If the job is killed, or exits with an error without
    reporting its end, its run is closed as failed or stopped, provided that our key may read it.
    Exits with the job's exit code (128 + n if signal n ended it), with 2 if the job could not
    begin, with 126 or 127 if its command cannot be run or does not exist.
    """
    console = OurConsole(stderr=True)
    _check(console, command, resume)
    # As with Ctrl-C, until the job has begun: what we started ends with us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    title = encodable(title_of(command))
    try:
        with _service(data_dir, keep=keep) as service:
            run_id = _new_id() if resume is None else _whole_id(service, resume)
            page = f"/jobs/{run_id}?{urlencode({'name': title[:_SHOWN_LETTERS]})}"
            say(console, f"Watched at {service.link_to(page)}")
            if resume is not None and project is None:
                project = _project_of(service, run_id)
            began_at = time.time()
            with JobWatch(console, service, run_id, title=title, name=name):
                code = run_job(command, _variables(service, run_id, project))
            runs = _runs(console, service, run_id)
            for how in _ends(service, runs or [], code, began_at=began_at):
                say(console, how)
            num_open = _print_alerts(console, service, runs, title)
            if num_open and service.data_dir is not None and is_at_terminal():
                _stay(console, service.link_to(page), service.data_dir, num_open)
    except LocalServiceError as error:
        _fail(console, str(error), 2)
    _print_next(console, command, run_id, runs)
    if "RUNWATCH_URL" not in os.environ:
        _print_data_dir(console, data_dir)
    raise typer.Exit(code)


def _check(console: Console, command: list[str], resume: str | None) -> None:
    if resume is not None and not is_beginning(resume):
        _fail(console, _NO_RUN.format(resume), 2)
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
        place = without_user(url).rstrip("/")
        with _http(url, token) as http:
            service = JobService(url, token, http, lambda page: f"{place}{page}")
            _check_named(service)
            yield service
        return
    with (
        local_service(data_dir, keep=keep) as found,
        new_http(found.url, found.admin_key) as http,
    ):
        ends_with_us = None if keep else data_dir
        yield JobService(
            found.url,
            found.trainer_key,
            http,
            lambda page: found.link_to(page, data_dir),
            ends_with_us,
        )


def _http(url: str, token: str) -> httpx.Client:
    """Raises LocalServiceError, which names the variable that cannot be used."""
    try:
        return new_http(url, token)
    except AddressError as error:
        raise LocalServiceError(f"RUNWATCH_URL: {error}") from error
    except KeyTextError as error:
        raise LocalServiceError(f"RUNWATCH_TOKEN: {error}") from error


def _check_named(service: JobService) -> None:
    """Ends the command if the key is refused; if the service is away, the job can spool."""
    try:
        answer = service.ask("GET", "/runs?limit=1")
    except httpx.HTTPError as error:
        waits = "the job's numbers wait in its spool folder"
        say(OurConsole(stderr=True), f"{service.address} does not answer ({error}); {waits}")
        return
    if answer.status_code == HTTPStatus.UNAUTHORIZED:
        raise LocalServiceError(
            f"{service.address} does not know the key in RUNWATCH_TOKEN; set one it knows"
        )


def _new_id() -> str:
    return ulid(int(time.time() * 1000), os.urandom(10))


def _whole_id(service: JobService, text: str) -> str:
    """The id of the run that is to go on. Raises LocalServiceError."""
    if is_ulid(text):
        return text
    try:
        found = service.get(search_path(text), _Fleet)
    except httpx.HTTPError as error:
        raise LocalServiceError(f"{service.address} does not answer ({error})") from error
    runs = () if found is None else found.runs
    ids = [run.id for run in runs if run.id.startswith(text.upper())]
    if len(ids) != 1:
        raise LocalServiceError(_NO_RUN.format(text))
    return ids[0]


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


def _runs(console: Console, service: JobService, run_id: str) -> list[JobRun] | None:
    """The runs that the job has opened, newest first; None if the service cannot be asked."""
    try:
        return runs_of(service, run_id)
    except httpx.HTTPError as error:
        say(console, f"{service.address} does not answer ({error})")
        return None


def _ends(
    service: JobService, runs: Sequence[JobRun], code: int, *, began_at: float
) -> Iterable[str]:
    """How those runs ended that could not say so themselves."""
    found = (report_end(service, run.id, code, began_at=began_at) for run in runs)
    return dict.fromkeys(how for how in found if how is not None)


def _print_alerts(
    console: Console, service: JobService, runs: Sequence[JobRun] | None, title: str
) -> int:
    """Prints the alerts in the order of firing; returns how many were left open."""
    if runs is None:
        return 0
    if not runs:
        say(console, f"{title} has opened no run. {HELP}")
        return 0
    fired = alerts_of(service, runs)
    if fired is None:
        return 0
    for alert in fired[:_MOST_ALERTS]:
        say(console, described(alert, runs))
    if len(fired) > _MOST_ALERTS:
        say(console, f"and {len(fired) - _MOST_ALERTS} alerts more")
    if not fired:
        say(console, "no alert has fired")
    attempts = {run.id: run.current_attempt for run in runs}
    return sum(one.is_left_open and one.attempt == attempts[one.run_id] for one in fired)


def _stay(console: Console, link: str, data_dir: Path, num_open: int) -> None:
    """Keeps the service, so that somebody can look at what is wrong."""
    told = "1 alert is" if num_open == 1 else f"{num_open} alerts are"
    text = f"{told} open, so the service stays until Ctrl-C:  {link}"
    stay_until_ctrl_c(console, text, data_dir)
    console.print()  # after what the terminal shows of the keys


def _print_next(
    console: Console, command: Sequence[str], run_id: str, runs: Sequence[JobRun] | None
) -> None:
    """How to go on with the run, unless the job has opened none, or several."""
    if runs is None or len(runs) == 1:
        known = run_id if runs is None else runs[0].id
        again = f"runwatch run --resume {known} -- {command[0]} …"
        say(console, f"run {known}; go on with it:  {again}")


def _print_data_dir(console: Console, data_dir: Path) -> None:
    say(console, f"look at it again:  runwatch open {data_dir}")
    running = still_running(data_dir)
    if running is not None:
        say(
            console,
            f"its service goes on; it ends by  kill {running.pid}  or with the next job "
            "that is run without --keep",
        )


def _fail(console: Console, text: str, code: int) -> NoReturn:
    say(console, text)
    raise typer.Exit(code)
