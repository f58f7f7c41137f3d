"""The commands' way to a service: its REST interface, with the key of the environment."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Final, NoReturn

import httpx
import msgspec
import typer
from rich.console import Console
from rich.markup import escape

from runwatch.addresses import fault_of, host_of, without_user
from runwatch.errors import RunwatchError
from runwatch.key_texts import fault_of_key, trimmed
from runwatch_server.cli.answers import document_of, fault_of_answer
from runwatch_server.cli.output import OurConsole

Url = Annotated[str, typer.Option("--url", envvar="RUNWATCH_URL", help="Address of the service.")]
Token = Annotated[
    str, typer.Option("--token", envvar="RUNWATCH_TOKEN", help="API key.", show_envvar=True)
]

DEFAULT_URL: Final = "http://127.0.0.1:8321"
_API: Final = "/api/v1"
_TIMEOUT_S: Final = 30.0
_ID: Final = re.compile(r"[A-Za-z0-9_-]+")
_NOBODY_HELP: Final = "`runwatch serve` starts a service here; RUNWATCH_URL or --url names another"
_KEYLESS: Final = "missing_key"
_ROUTELESS: Final = "route_not_found"
_KEYLESS_HELP: Final = "set RUNWATCH_TOKEN, or give --token"
_LOOPBACK: Final = ("http://127.0.0.1", "http://localhost", "http://[::1]")


class AddressError(RunwatchError):
    """What was given as a service's address is none."""


class KeyTextError(RunwatchError):
    """What was given as a key is none."""


class AwayError(RunwatchError):
    """The service cannot answer now; later it may."""


class SilentError(AwayError):
    """Nobody answers at its address."""


class Client:
    """Requests that end the command with the service's own words where it refuses."""

    def __init__(self, http: httpx.Client, console: Console) -> None:
        self._http = http
        self._console = console

    def request(self, method: str, path: str, **arguments: object) -> httpx.Response:
        try:
            return self.ask(method, path, **arguments)
        except AwayError as error:
            self.give_up(error)

    def ask(self, method: str, path: str, **arguments: object) -> httpx.Response:
        """The same for who can wait: raises AwayError where asking again may help."""
        try:
            response = self._http.request(method, path, **arguments)  # type: ignore[arg-type]
        except UnicodeEncodeError:
            self.fail("found a text that is no UTF-8 among what was typed, wanted UTF-8")
        except httpx.HTTPError as error:
            raise SilentError(f"{self.address} does not answer ({_reason(error)})") from error
        if response.is_server_error:
            raise AwayError(_words_of(response))
        if _is_elsewhere(response):
            self.fail(
                f"found nothing at {self.address}{_API}, wanted the address of a Runwatch "
                f"service, such as {DEFAULT_URL}"
            )
        if response.is_error:
            self.fail(_words_of(response))
        if fault := fault_of_answer(response):
            self.fail(f"{self.address} is no Runwatch service: {fault}")
        return response

    def give_up(self, error: AwayError) -> NoReturn:
        """End the command, with what to do where nobody answers."""
        is_silent = isinstance(error, SilentError)
        self.fail(f"{error}; {_NOBODY_HELP}" if is_silent else str(error))

    @property
    def address(self) -> str:
        """As people gave it, but for a user and a password."""
        return without_user(str(self._http.base_url).removesuffix("/").removesuffix(_API))

    def fail(self, message: str) -> NoReturn:
        self._console.print(f"[red]runwatch:[/] {escape(message)}", highlight=False, soft_wrap=True)
        raise typer.Exit(2)


def in_path(text: str) -> str:
    """An id as a part of a path. Raises typer.BadParameter for what would lead elsewhere, as
    `../runs` does; quoted, a `/` would be one again at the service."""
    if not _ID.fullmatch(text):
        raise typer.BadParameter(f"found {text!r}, wanted an id: letters, digits, '-' and '_'")
    return text


@contextmanager
def open_client(url: str, token: str) -> Generator[Client]:
    try:
        http = new_http(url, token)
    except AddressError as error:
        raise typer.BadParameter(str(error), param_hint="'--url'") from error
    except KeyTextError as error:
        hint = "'--token' (env var: 'RUNWATCH_TOKEN')"
        raise typer.BadParameter(str(error), param_hint=hint) from error
    with http:
        client = Client(http, OurConsole(stderr=True))
        try:
            yield client
        except msgspec.ValidationError as error:
            client.fail(f"{client.address} is no Runwatch service, or another version: {error}")


def new_http(url: str, token: str) -> httpx.Client:
    """A connection to the interface of a service, to be closed. Raises AddressError and
    KeyTextError."""
    check_address(url)
    return httpx.Client(
        base_url=f"{url.rstrip('/')}{_API}",
        headers=key_headers(token),
        timeout=_TIMEOUT_S,
        trust_env=not url.startswith(_LOOPBACK),  # no proxy leads there
    )


def key_headers(token: str) -> dict[str, str]:
    """Raises KeyTextError, which repeats nothing of the key."""
    key = trimmed(token)
    if fault := fault_of_key(key):
        raise KeyTextError(fault)
    return {"Authorization": f"Bearer {key}"} if key else {}


def check_address(url: str) -> None:
    """Raises AddressError, which repeats nothing of it but scheme and host."""
    fault = fault_of(url)
    if not fault:
        try:
            httpx.URL(url)
        except httpx.InvalidURL:  # whose words repeat a part of it
            fault = f"found {host_of(url)} with a host or a port that cannot be, wanted HOST:PORT"
    if fault:
        raise AddressError(fault)


def _words_of(response: httpx.Response) -> str:
    problem = document_of(response) or {}
    code = problem.get("code") or response.status_code
    detail = problem.get("detail") or problem.get("title") or response.reason_phrase
    words = f"{detail} ({code})"
    return f"{words}; {_KEYLESS_HELP}" if code == _KEYLESS else words


def _is_elsewhere(response: httpx.Response) -> bool:
    """Whether nothing of ours is there: another program's address, or one with a path too much."""
    code = (document_of(response) or {}).get("code")
    return response.status_code == HTTPStatus.NOT_FOUND and code in (None, _ROUTELESS)


def _reason(error: httpx.HTTPError) -> str:
    is_plain = "WRONG_VERSION_NUMBER" in str(error)
    return "what is there speaks plain HTTP: wanted http://…" if is_plain else str(error)
