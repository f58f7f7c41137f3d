"""The demo's client of the service; it uses only the public REST API."""

import math
from collections.abc import Mapping
from types import TracebackType

import httpx
import msgspec

from runwatch.nonfinite import JsonNumber, from_json
from runwatch.vocabulary import PolicyMode, RunId
from runwatch_server.demo.errors import ServiceFailedError

_TIMEOUT_S = 10.0


class Alert(msgspec.Struct, frozen=True):
    """The fields of an alert that the demo uses."""

    id: str
    rule: str
    severity: str
    state: str
    onset_step: int
    firing_step: int | None = None
    summary: str = ""


class Command(msgspec.Struct, frozen=True):
    """The fields of a command that the demo uses."""

    id: str
    action: Mapping[str, object]
    state: str
    ended_step: int | None = None


class _Alerts(msgspec.Struct, frozen=True):
    alerts: list[Alert]


class _Commands(msgspec.Struct, frozen=True):
    commands: list[Command]


class _Key(msgspec.Struct, frozen=True):
    key: str


class _Series(msgspec.Struct, frozen=True):
    steps: list[int]
    values: list[JsonNumber]


class Client:
    """Holds one connection; close it, or use it in a `with`."""

    def __init__(self, url: str, key: str) -> None:
        self._http = httpx.Client(
            base_url=f"{url}/api/v1",
            headers={"Authorization": f"Bearer {key}"},
            timeout=_TIMEOUT_S,
            trust_env=False,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._http.close()

    def create_key(self, name: str, *scopes: str, project: str) -> str:
        wanted = {"name": name, "scopes": scopes, "project": project}
        return msgspec.json.decode(self._ask("POST", "/keys", wanted), type=_Key).key

    def open_run(self, run_id: RunId, name: str, *, project: str, policy: PolicyMode) -> None:
        """Create the run before its trainer starts, with the policy it is to have."""
        self._ask("POST", "/runs", {"run_id": run_id, "name": name, "project": project})
        self._ask("PATCH", f"/runs/{run_id}", {"policy": policy.value})

    def alerts(self, run_id: RunId) -> list[Alert]:
        """Oldest first."""
        answer = self._ask("GET", f"/alerts?run_id={run_id}&limit=500")
        found = msgspec.json.decode(answer, type=_Alerts).alerts
        return sorted(found, key=lambda alert: alert.id)

    def commands(self, run_id: RunId) -> list[Command]:
        """Oldest first."""
        answer = self._ask("GET", f"/runs/{run_id}/commands?limit=500")
        found = msgspec.json.decode(answer, type=_Commands).commands
        return sorted(found, key=lambda command: command.id)

    def losses(self, run_id: RunId, num_steps: int) -> list[float]:
        """The losses of the run's history; NaN for steps that the service does not hold."""
        answer = self._ask("GET", f"/runs/{run_id}/series?metric=loss&points={num_steps}")
        series = msgspec.json.decode(answer, type=_Series)
        losses = [math.nan] * num_steps
        for step, value in zip(series.steps, series.values, strict=True):
            losses[step] = from_json(value)
        return losses

    def _ask(self, method: str, path: str, document: object = None) -> bytes:
        body = None if document is None else msgspec.json.encode(document)
        kind = {} if body is None else {"Content-Type": "application/json"}
        try:
            answer = self._http.request(method, path, content=body, headers=kind)
        except httpx.HTTPError as error:
            raise ServiceFailedError(f"{method} {path}: {error}") from error
        if answer.is_error:
            raise ServiceFailedError(f"{method} {path}: {answer.status_code} {answer.text}")
        return answer.content
