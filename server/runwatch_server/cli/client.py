"""The command line's HTTP client for a service's REST interface."""

import re
from collections.abc import Generator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Final, NoReturn

import httpx
import typer
from rich.console import Console
from rich.markup import escape

import runwatch
from runwatch.addresses import fault_of, host_of, without_user
from runwatch.errors import RunwatchError
from runwatch.key_texts import fault_of_key, trimmed
from runwatch_server.cli.answers import (
    ID_PATTERN,
    Answer,
    Facts,
    UnexpectedAnswerError,
    answer_of,
    document_of,
    fault_of_answer,
)
from runwatch_server.cli.output import OurConsole

Url = Annotated[str, typer.Option("--url", envvar="RUNWATCH_URL", help="Address of the service.")]
Token = Annotated[
    str, typer.Option("--token", envvar="RUNWATCH_TOKEN", help="API key.", show_envvar=True)
]

DEFAULT_URL: Final = "http://127.0.0.1:8321"
_API: Final = "/api/v1"
_TIMEOUT_S: Final = 30.0
_ID: Final = re.compile(ID_PATTERN)
_NOBODY_HELP: Final = "`runwatch serve` starts a service here; RUNWATCH_URL or --url names another"
_KEYLESS: Final = "missing_key"
_ROUTELESS: Final = "route_not_found"
_KEYLESS_HELP: Final = "set RUNWATCH_TOKEN, or give --token"
_LOOPBACK: Final = ("http://127.0.0.1", "http://localhost", "http://[::1]")


class AddressError(RunwatchError):
    """The given address of a service is not valid."""


class KeyTextError(RunwatchError):
    """The given key cannot be a key."""


class UnavailableError(RunwatchError):
    """The service cannot answer now, but may later."""


class UnreachableError(UnavailableError):
    """Nothing answers at the service's address."""


class Client:
    """Sends requests; a refusal ends the command with the service's own words."""

    def __init__(self, http: httpx.Client, console: Console) -> None:
        self._http = http
        self._console = console

    def request(
        self, kind: type[Facts], method: str, path: str, **arguments: object
    ) -> Answer[Facts]:
        """The answer, of which `kind` is read; any other answer ends the command too."""
        try:
            return self.ask(kind, method, path, **arguments)
        except UnavailableError as error:
            self.fail_unavailable(error)

    def ask(self, kind: type[Facts], method: str, path: str, **arguments: object) -> Answer[Facts]:
        """The same for callers that can wait: raises UnavailableError if trying again may help."""
        response = self._respond(method, path, **arguments)
        try:
            return answer_of(response, kind)
        except UnexpectedAnswerError as error:
            self._fail_unexpected(method, path, str(error))

    def order(self, method: str, path: str) -> None:
        """A request that is answered without a document. Only the service's own answer will do:
        nothing may be called done that another program said yes to."""
        try:
            response = self._respond(method, path)
        except UnavailableError as error:
            self.fail_unavailable(error)
        if response.status_code != HTTPStatus.NO_CONTENT:
            found = f"found the status {response.status_code}, wanted {HTTPStatus.NO_CONTENT}"
            self._fail_unexpected(method, path, found)

    def _fail_unexpected(self, method: str, path: str, fault: str) -> NoReturn:
        self.fail(
            f"{self.address} is not a Runwatch service, or of another version: "
            f"{method} {path}: {fault}"
        )

    def _respond(self, method: str, path: str, **arguments: object) -> httpx.Response:
        """Raises UnavailableError."""
        try:
            response = self._http.request(method, path, **arguments)  # type: ignore[arg-type]
        except UnicodeEncodeError:
            self.fail("found text that is not UTF-8 among the arguments, wanted UTF-8")
        except httpx.HTTPError as error:
            raise UnreachableError(f"{self.address} does not answer ({_reason(error)})") from error
        if response.is_server_error:
            raise UnavailableError(_words_of(response))
        if _is_elsewhere(response):
            self._fail_elsewhere(method, path)
        if response.is_error:
            self.fail(_words_of(response))
        if response.is_redirect:
            self.fail(
                f"{self.address} is not a Runwatch service: found a redirect to "
                f"{_target_of(response)}, wanted JSON"
            )
        if fault := fault_of_answer(response):
            self.fail(f"{self.address} is not a Runwatch service: {fault}")
        return response

    def _fail_elsewhere(self, method: str, path: str) -> NoReturn:
        if version := self._version_there():
            self.fail(
                f"the service at {self.address} has no {method} {path}: it is older or newer "
                f"than this command (version {version} there, {runwatch.__version__} here)"
            )
        self.fail(
            f"found nothing at {self.address}{_API}, wanted the address of a Runwatch "
            f"service, such as {DEFAULT_URL}"
        )

    def _version_there(self) -> str:
        """The version of the service at this address; empty if it is none, or has another path."""
        url = f"{str(self._http.base_url).removesuffix('/').removesuffix(_API)}/healthz"
        try:
            health = document_of(self._http.get(url)) or {}
        except httpx.HTTPError:
            return ""
        return str(health.get("version", ""))

    def fail_unavailable(self, error: UnavailableError) -> NoReturn:
        """Ends the command; says what to do if nothing answers."""
        is_silent = isinstance(error, UnreachableError)
        self.fail(f"{error}; {_NOBODY_HELP}" if is_silent else str(error))

    @property
    def address(self) -> str:
        """The address as it was given, without user and password."""
        return without_user(str(self._http.base_url).removesuffix("/").removesuffix(_API))

    def fail(self, message: str) -> NoReturn:
        self._console.print(f"[red]runwatch:[/] {escape(message)}", highlight=False, soft_wrap=True)
        raise typer.Exit(2)


def in_path(text: str) -> str:
    """An id as part of a path.

    Raises typer.BadParameter for a text that would lead elsewhere, such as `../runs`. Quoting is
    not enough: the service would unquote a `/` again.
    """
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
        yield Client(http, OurConsole(stderr=True))


def new_http(url: str, token: str) -> httpx.Client:
    """A client of a service's REST interface, to be closed. Raises AddressError, KeyTextError."""
    check_address(url)
    return httpx.Client(
        base_url=f"{url.rstrip('/')}{_API}",
        headers=key_headers(token),
        timeout=_TIMEOUT_S,
        trust_env=not url.startswith(_LOOPBACK),  # loopback is not reached through a proxy
    )


def key_headers(token: str) -> dict[str, str]:
    """Raises KeyTextError, which does not repeat any of the key."""
    key = trimmed(token)
    if fault := fault_of_key(key):
        raise KeyTextError(fault)
    return {"Authorization": f"Bearer {key}"} if key else {}


def check_address(url: str) -> None:
    """Raises AddressError, which repeats only the scheme and host."""
    fault = fault_of(url)
    if not fault:
        try:
            httpx.URL(url)
        except httpx.InvalidURL:  # its message repeats part of the address
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
    """Whether the path does not exist there: the address is another program's, or has an extra
    path."""
    code = (document_of(response) or {}).get("code")
    return response.status_code == HTTPStatus.NOT_FOUND and code in (None, _ROUTELESS)


def _target_of(response: httpx.Response) -> str:
    """Scheme and host only: the rest may hold a login's secrets."""
    return host_of(response.headers.get("Location", "")) or "nowhere"


def _reason(error: httpx.HTTPError) -> str:
    is_plain = "WRONG_VERSION_NUMBER" in str(error)
    return "that port speaks plain HTTP: wanted http://…" if is_plain else str(error)
