"""A service on this machine that jobs share: the first one starts it, the last one stops it."""

import fcntl
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from pathlib import Path
from typing import IO, Final
from urllib.parse import quote

import httpx
import msgspec
from rich.console import Console

from runwatch.errors import RunwatchError
from runwatch_server.auth.keys import KeyScope
from runwatch_server.cli.output import say
from runwatch_server.secret_files import admin_key_in, make_folder, make_private, write_secret

RECORD: Final = "run.json"
"""File in the data directory with the service's address and keys, readable by its owner only."""
_ADDRESS: Final = re.compile(r"listens on (http://127\.0\.0\.1:\d+)")
_SERVE: Final = (sys.executable, "-P", "-m", "runwatch_server.cli", "serve")
_HERE: Final = ("--host", "127.0.0.1", "--port", "0")
_START_S: Final = 60.0
_STOP_S: Final = 30.0
_LOOK_EVERY_S: Final = 0.05
_WAIT_S: Final = 0.2
_OF_ANOTHER_SERVICE: Final = tuple(
    f"RUNWATCH_{name}"
    for name in ("DATABASE_URL", "HOST", "PORT", "EXTERNAL_URL", "TLS_CERT", "TLS_KEY")
)


_KEYS_OF_OTHERS: Final = (
    "the folder's keys were made by another `runwatch serve` and are known to you alone.\n"
    "Start that service, set RUNWATCH_URL and RUNWATCH_TOKEN, and try again; or choose "
    "another folder with --data-dir."
)
_BY_HAND: Final = (
    "a service that was started by hand: its page is at the address that it printed.\n"
    "To run a job with it, set RUNWATCH_URL and RUNWATCH_TOKEN as it printed when it started, or "
    "choose another folder with --data-dir."
)


class LocalServiceError(RunwatchError):
    """No service can be used or started; the message says what to do."""


class LocalService(msgspec.Struct, frozen=True):
    """The service's address and keys, as stored in the data directory for its owner only."""

    url: str
    pid: int
    admin_key: str
    trainer_key: str
    """A key with the scope `ingest`, which is all that a job needs."""

    def link_to(self, path: str, data_dir: Path) -> str:
        """Where to see a page. On a terminal the link logs in: behind its #, which no server sees,
        is the key, which must not get into a log that others may read."""
        if not os.isatty(2):
            return f"{self.url}{path}  (log in with the admin_key in {data_dir / RECORD})"
        return f"{self.url}/login?next={quote(path)}#key={self.admin_key}"


@contextmanager
def local_service(
    data_dir: Path, *, keep: bool = False, is_to_read: bool = False
) -> Generator[LocalService]:
    """The service of a data directory, started if none runs and stopped after its last user.

    `keep` leaves it running. `is_to_read` leaves it as it was found, and gets a key of its own in a
    folder where others have made them. Raises LocalServiceError.
    """
    data_dir = data_dir.resolve()
    try:
        make_folder(data_dir)
        users = _private(data_dir / "run.users")
    except OSError as error:
        raise LocalServiceError(
            f"data directory {data_dir}: found {error.strerror}, wanted a folder that can be "
            "created and written; choose another with --data-dir"
        ) from error
    with users:
        with _alone(data_dir):
            service = _running(data_dir)
            keep = keep or (is_to_read and service is not None and _is_unused(users))
            service = service or _start(data_dir, is_to_read=is_to_read)
            fcntl.flock(users, fcntl.LOCK_SH)
        try:
            yield service
        finally:
            if not keep:
                with _alone(data_dir):
                    _end_if_last(data_dir, service, users)


def still_running(data_dir: Path) -> LocalService | None:
    """The service that was left running, or that another job still uses."""
    known = _read_record(data_dir)
    return known if known is not None and _owner(data_dir) == known.pid else None


def _private(path: Path) -> IO[str]:
    """A file that only its owner may open, and so lock. Raises OSError."""
    make_private(path)
    return path.open("a+")


@contextmanager
def _alone(data_dir: Path) -> Generator[None]:
    """Lets only one process at a time start or stop the service."""
    with _private(data_dir / "run.lock") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def stay_until_ctrl_c(console: Console, text: str, data_dir: Path) -> None:
    """Says the text, and waits until somebody presses the keys, closes the terminal or ends the
    service."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # SIGINT even if it was ignored: a shell does so for what a script starts with `&`.
        if number is signal.SIGINT or signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        say(console, text)
        while still_running(data_dir) is not None:
            time.sleep(_WAIT_S)


def _is_unused(users: IO[str]) -> bool:
    """Whether no other process uses the service. If it runs all the same, it was told to."""
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _end_if_last(data_dir: Path, service: LocalService, users: IO[str]) -> None:
    if not _is_unused(users) or _owner(data_dir) != service.pid:
        return  # another job uses it, and will stop it
    os.kill(service.pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while _owner(data_dir) is not None:
        if time.monotonic() > deadline:
            os.kill(service.pid, signal.SIGKILL)  # what it has acknowledged is on disk
            return
        time.sleep(_LOOK_EVERY_S)


def _running(data_dir: Path) -> LocalService | None:
    """The service that has the directory open. Raises LocalServiceError if it is not ours."""
    owner = _owner(data_dir)
    if owner is None:
        return None
    known = _read_record(data_dir)
    if known is None or known.pid != owner:
        raise LocalServiceError(f"{data_dir} is in use by process {owner}, {_BY_HAND}")
    return known


def _owner(data_dir: Path) -> int | None:
    """The process that holds the data directory's lock."""
    try:
        with (data_dir / "lock").open("r") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(file.read().strip() or 0)
    except FileNotFoundError:
        pass
    return None


def _start(data_dir: Path, *, is_to_read: bool) -> LocalService:
    """Raises LocalServiceError."""
    before = _read_record(data_dir)
    own_key = ["--new-admin-key"] if is_to_read and before is None else []
    log_path = data_dir / "service.log"
    with _open_private(log_path) as log:
        # In a session of its own: Ctrl-C is meant for the job, and the service outlives it.
        process = subprocess.Popen(
            [*_SERVE, *_HERE, "--data-dir", str(data_dir), *own_key],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env={k: v for k, v in os.environ.items() if k not in _OF_ANOTHER_SERVICE},
        )
    try:
        url = _wait_for_address(process, log_path)
        service = _with_keys(url, process.pid, admin_key_in(data_dir), before)
        write_secret(data_dir / RECORD, msgspec.json.encode(service))
    except BaseException:  # Ctrl-C included: nothing that we started stays behind
        process.terminate()
        process.wait()
        raise
    return service


def _wait_for_address(process: subprocess.Popen[bytes], log_path: Path) -> str:
    """The address that the process prints into the log."""
    deadline = time.monotonic() + _START_S
    while (found := _ADDRESS.search(said := log_path.read_text("utf-8", "replace"))) is None:
        if process.poll() is not None or time.monotonic() > deadline:
            raise LocalServiceError(f"the service did not start ({log_path}):\n{said[-2000:]}")
        time.sleep(_LOOK_EVERY_S)
    return found[1]


def _with_keys(
    url: str, pid: int, admin_key: str | None, before: LocalService | None
) -> LocalService:
    """The service with the keys of an earlier start, or with `admin_key`, which its first start or
    a later one left in a file. Raises LocalServiceError."""
    if before is not None and admin_key in (None, before.admin_key):
        return LocalService(url, pid, before.admin_key, before.trainer_key)
    if admin_key is None:
        raise LocalServiceError(_KEYS_OF_OTHERS)
    return LocalService(url, pid, admin_key, _new_trainer_key(url, admin_key))


def _new_trainer_key(url: str, admin_key: str) -> str:
    try:
        answer = httpx.post(
            f"{url}/api/v1/keys",
            headers={"Authorization": f"Bearer {admin_key}"},
            json={"name": "runwatch run", "scopes": [KeyScope.INGEST]},
            timeout=_START_S,  # its first answer, perhaps on a busy disk
            trust_env=False,
        )
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            raise LocalServiceError(_KEYS_OF_OTHERS)
        answer.raise_for_status()
    except httpx.HTTPError as error:
        raise LocalServiceError(f"the service has started but made no key: {error}") from error
    key = answer.json()["key"]
    assert isinstance(key, str)
    return key


def _read_record(data_dir: Path) -> LocalService | None:
    try:
        return msgspec.json.decode((data_dir / RECORD).read_bytes(), type=LocalService)
    except (OSError, msgspec.DecodeError):
        return None


def _open_private(path: Path) -> IO[bytes]:
    """An empty file to append to, for its owner only: a log names runs."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "ab")
