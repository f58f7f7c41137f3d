"""The commands' way to a service: its REST interface, with the key of the environment."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Annotated, Final, NoReturn

import httpx
import typer
from rich.console import Console

Url = Annotated[str, typer.Option("--url", envvar="RUNWATCH_URL", help="Address of the service.")]
Token = Annotated[
    str, typer.Option("--token", envvar="RUNWATCH_TOKEN", help="API key.", show_envvar=True)
]

DEFAULT_URL: Final = "http://127.0.0.1:8321"
_TIMEOUT_S: Final = 30.0


class Client:
    """Requests that end the command with the service's own words where it refuses."""

    def __init__(self, http: httpx.Client, console: Console) -> None:
        self._http = http
        self._console = console

    def request(self, method: str, path: str, **arguments: object) -> httpx.Response:
        try:
            response = self._http.request(method, path, **arguments)  # type: ignore[arg-type]
        except httpx.HTTPError as error:
            self._fail(f"{self._http.base_url} does not answer ({error})")
        if response.is_error:
            problem = _problem(response)
            self._fail(f"{problem.get('detail') or problem.get('title')} ({problem.get('code')})")
        return response

    def _fail(self, message: str) -> NoReturn:
        self._console.print(f"[red]runwatch:[/] {message}", highlight=False, soft_wrap=True)
        raise typer.Exit(2)


@contextmanager
def open_client(url: str, token: str) -> Generator[Client]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    base_url = f"{url.rstrip('/')}/api/v1"
    with httpx.Client(base_url=base_url, headers=headers, timeout=_TIMEOUT_S) as http:
        yield Client(http, Console(stderr=True))


def _problem(response: httpx.Response) -> dict[str, str]:
    if response.headers.get("Content-Type", "").endswith("json"):
        problem: dict[str, str] = response.json()
        return problem
    return {"title": response.reason_phrase, "code": str(response.status_code)}
