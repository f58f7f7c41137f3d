"""Answers only requests that are addressed to a host of ours, against DNS rebinding: a web page
whose own name is made to lead to this machine, so that a browser lets it read our answers.

An IP address is no name that could be made to lead here, and a request without a host comes from no
browser. Both are answered: load balancers and Prometheus address each replica in this way.
"""

from collections.abc import Callable, Collection
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from runwatch.messages import Problem
from runwatch_server.host_names import host_in, is_ip_address
from runwatch_server.web.problems import problem_response

_MOST_TOLD: Final = 80


class KnownHosts:
    """`hosts` are names and patterns like `*.example.com`; `*` stands for any host. `on_problem` is
    called with a refusal's code."""

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str], on_problem: Callable[[str], None]
    ) -> None:
        self._app = app
        names = [host.lower().removesuffix(".") for host in hosts]
        self._names = frozenset(names)
        self._endings = tuple(name[1:] for name in names if name.startswith("*"))
        self._on_problem = on_problem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        addressed = Headers(scope=scope).get("Host", "")
        if not addressed or self._is_known(host_in(addressed)):
            await self._app(scope, receive, send)
            return
        detail = (
            f"Host: found {addressed[:_MOST_TOLD]!r}, which is no name of this service; add the "
            "name to its RUNWATCH_ALLOWED_HOSTS, or set its RUNWATCH_EXTERNAL_URL."
        )
        self._on_problem("unknown_host")
        refusal = problem_response(Problem("Bad request", 400, "unknown_host", detail))
        await refusal(scope, receive, send)

    def _is_known(self, host: str) -> bool:
        return bool(host) and (
            host in self._names or host.endswith(self._endings) or is_ip_address(host)
        )
