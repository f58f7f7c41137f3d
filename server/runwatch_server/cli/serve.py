"""`runwatch serve`: runs the service until it is told to stop."""

import gc
import os
import shlex
import signal
import socket
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Final

import typer
import uvicorn
from fastapi import FastAPI
from rich.console import Console
from rich.markup import escape

from runwatch.errors import RunwatchError
from runwatch_server.app import make_app, release_waiting
from runwatch_server.cli.local_service import RECORD
from runwatch_server.cli.logs import configure_logging
from runwatch_server.cli.output import OurConsole
from runwatch_server.cli.server import Server
from runwatch_server.cli.stop_limit import end_after
from runwatch_server.errors import SettingsError
from runwatch_server.secret_files import ADMIN_KEY_FILE, make_folder, write_secret
from runwatch_server.services import Services
from runwatch_server.settings import Settings
from runwatch_server.web.slow_peers import closing_slow_peers

_BACKLOG: Final = 2048
_SWITCH_S: Final = 0.0005
"""Python's switch interval: how long the judging thread may hold the interpreter while the thread
that answers requests waits. On PostgreSQL the latter needs it a dozen times for each frame, and
Python's default of 5 ms would add up to a long wait."""
_COLLECT_AFTER: Final = (10_000, 20, 50)
"""Thresholds of the garbage collector. A full collection over the memory of some hundred runs stops
everything for a tenth of a second, and with Python's defaults (700, 10, 10) there are many."""
_KEEP_ALIVE_S: Final = 75
"""Seconds; longer than a trainer's heartbeat interval, so that its connection stays open."""


def serve(
    host: Annotated[str | None, typer.Option(help="Address to listen on.")] = None,
    port: Annotated[int | None, typer.Option(help="TCP port; 0 takes a free one.")] = None,
    data_dir: Annotated[Path | None, typer.Option(help="Folder of the database.")] = None,
    database_url: Annotated[
        str | None,
        typer.Option(
            help="A PostgreSQL database instead: postgresql://user@host/name, with the password in "
            "PGPASSWORD."
        ),
    ] = None,
    behind_proxy: Annotated[
        bool | None, typer.Option("--behind-proxy", help="A proxy in front provides TLS.")
    ] = None,
    tls_cert: Annotated[Path | None, typer.Option(help="PEM certificate, to serve TLS.")] = None,
    tls_key: Annotated[Path | None, typer.Option(help="PEM file of the certificate's key.")] = None,
    new_admin_key: Annotated[
        bool,
        typer.Option(
            "--new-admin-key",
            help="Create a new admin key, if all are lost, and show it as at the first start.",
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", help="Log warnings only.")] = False,
) -> None:
    """Run the service. Options override the environment (RUNWATCH_HOST, ...).

    The first start shows an admin key on the terminal. Where there is none, as in a container, it
    puts the key into the file `admin-key` of the data folder, which only its owner can read.
    """
    console = OurConsole(stderr=True)
    given: dict[str, object] = {
        "host": host,
        "port": port,
        "data_dir": data_dir,
        "database_url": database_url,
        "behind_proxy": behind_proxy,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
    }
    configure_logging(console, quiet=quiet)
    try:
        settings = Settings.from_env(given={k: v for k, v in given.items() if v is not None})
        _check_files(settings)
        listener = _listen(settings)
        settings = replace(settings, port=listener.getsockname()[1])
        with closing(listener):
            _run(settings, listener, console, are_keys_lost=new_admin_key)
    except (RunwatchError, OSError) as error:
        console.print(f"[red]runwatch serve:[/] {escape(str(error))}", highlight=False)
        raise typer.Exit(2) from error


def _check_files(settings: Settings) -> None:
    """Raises SettingsError, which names the missing file; uvicorn's own error does not."""
    for place, path in (("tls_cert", settings.tls_cert), ("tls_key", settings.tls_key)):
        if path is not None and not path.is_file():
            raise SettingsError(f"{place}: found no file {path}, wanted a PEM file")


def _run(
    settings: Settings, listener: socket.socket, console: Console, *, are_keys_lost: bool
) -> None:
    sys.setswitchinterval(_SWITCH_S)
    gc.set_threshold(*_COLLECT_AFTER)
    first_keys: list[_FirstKey] = []
    app = make_app(
        settings,
        on_first_key=lambda new: first_keys.append(_FirstKey.of(new.text, settings.data_dir)),
        are_keys_lost=are_keys_lost,
    )
    server = Server(
        uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            backlog=_BACKLOG,
            http=closing_slow_peers(settings.patience_s),
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=round(settings.drain_s),
            ssl_certfile=settings.tls_cert,
            ssl_keyfile=settings.tls_key,
            proxy_headers=settings.behind_proxy,
            server_header=False,
        ),
        on_started=lambda: _print_address(
            settings, _place(app), first_keys, console, are_keys_lost=are_keys_lost
        ),
        on_stopping=lambda: _begin_to_stop(app, settings),
    )
    for stop in (signal.SIGTERM, signal.SIGINT):
        # uvicorn drains, then raises the signal again: by then all is done, so exit with 0.
        signal.signal(stop, _ignore_signal)
    try:
        server.run(sockets=[listener])
    except SystemExit as failed:  # raised by uvicorn if the app did not start; the log says why
        raise typer.Exit(2) from failed


@dataclass(frozen=True, slots=True)
class _FirstKey:
    """An admin key, as it is told to whoever starts the service."""

    told: str
    """The rest of the sentence that says what happened."""
    in_shell: str
    """The key as a word of a shell's command."""
    login: str
    """The path that logs in, with the key only on a terminal."""

    @classmethod
    def of(cls, text: str, data_dir: Path) -> "_FirstKey":
        """Raises SettingsError if there is neither a terminal nor a file to write."""
        if os.isatty(2):
            told = "this is the admin key. It is shown only once, so keep it."
            return cls(told, text, f"/login#key={text}")
        file = data_dir.resolve() / ADMIN_KEY_FILE
        try:
            make_folder(file.parent)
            write_secret(file, f"{text}\n".encode())
        except OSError as error:
            raise SettingsError(
                f"data_dir: found {error.strerror or error}, wanted to write the admin key to "
                f"{file}; start once more with --new-admin-key when that can be done"
            ) from error
        told = f"the admin key is in {file}, which only its owner can read."
        return cls(told, f"$(cat {shlex.quote(str(file))})", "/login")


def _begin_to_stop(app: FastAPI, settings: Settings) -> None:
    end_after(settings.drain_s + settings.stop_s)
    release_waiting(app)


def _ignore_signal(_: int, __: FrameType | None) -> None:
    """A handler that does nothing. Unlike SIG_IGN, a child process does not inherit it."""


def _place(app: FastAPI) -> str:
    services = app.state.services
    assert isinstance(services, Services), "called once the app has started"
    return services.database.place


def _print_address(
    settings: Settings,
    place: str,
    first_keys: Sequence[_FirstKey],
    console: Console,
    *,
    are_keys_lost: bool,
) -> None:
    url = settings.external_url.rstrip("/") or settings.own_url
    lines = [f"Runwatch listens on {url}  (data in {place})"]
    kept = settings.data_dir / RECORD
    if not first_keys and settings.database_url is None and kept.exists():
        lines.append(f"`runwatch run` was here first, and keeps the admin key in {kept}.")
    occasion = "Started with --new-admin-key" if are_keys_lost else "First start"
    for new in first_keys:
        lines += [
            "",
            f"{occasion}: {new.told}",
            "Open the page with it, which shows the next steps:",
            "",
            f"  {url}{new.login}",
            "",
            "On the command line:",
            "",
            f"  export RUNWATCH_URL={url}",
            f"  export RUNWATCH_TOKEN={new.in_shell}",
            "",
            "Then create a key for the trainers, and one for reading:",
            "",
            "  runwatch keys create trainer --scope ingest",
            "  runwatch keys create reader --scope read",
            "",
        ]
    console.print("\n".join(lines), highlight=False, soft_wrap=True)


def _listen(settings: Settings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    # asyncio turns Nagle's algorithm off only for sockets with the protocol set; with it each
    # answer would wait 40 ms for the acknowledgement of its own header.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((settings.host, settings.port))
    except OSError as error:
        listener.close()
        raise SettingsError(
            f"host, port: found {settings.host}:{settings.port} ({error.strerror}), "
            "wanted an address that is free here; --port 0 takes a free port"
        ) from error
    return listener
