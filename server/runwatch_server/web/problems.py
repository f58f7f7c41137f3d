"""Answers every error with a problem of RFC 9457 that has a stable `code`."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.body_limit import MAX_BODY_SIZE_SCOPE_KEY
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runwatch.errors import Fault, FrameError, FrameTooLargeError, InvalidInputError, RuleError
from runwatch.messages import Problem
from runwatch_server.errors import ServiceError, title_of
from runwatch_server.web.allowed_methods import allowed_methods
from runwatch_server.web.bodies import phrase_of

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_CODES: Final = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}
_NOT_FOUND: Final = "There is nothing at this address."
_WANTED: Final = {
    **dict.fromkeys(("int_parsing", "int_parsing_size", "int_type"), "a whole number"),
    "float_parsing": "a number",
    "bool_parsing": "true or false",
    "greater_than_equal": "{ge} or more",
    "less_than_equal": "{le} or less",
    "less_than": "less than {lt}",
    "string_too_long": "at most {max_length} characters",
    "string_too_short": "at least {min_length} characters",
    "string_pattern_mismatch": "the form {pattern}",
    "enum": "{expected}",
    "literal_error": "{expected}",
    "missing": "one",
}
"""What was wanted, by the type of Pydantic's error; for other types its own text is used."""
_MOST_TOLD: Final = 60
_HEAD, _TAIL = 1500, 500
"""Characters of a long detail that are sent, as of one that quotes a megabyte: its beginning names
the place, its end what was wanted."""
_TOKEN: Final = "next_token"
"""Clients do not write this parameter themselves, so its pattern would not help them."""


class RuleProblem(Problem, frozen=True):
    """Why a request was refused; for a rule file, with every fault in it."""

    faults: tuple[Fault, ...] = ()


def add_problem_handlers(app: FastAPI, *, on_problem: Callable[[str], None]) -> None:
    """Makes the app answer every error with a problem; `on_problem` is called with its code."""

    def handler(
        describe: Callable[[Request, Exception], tuple[Problem, Mapping[str, str]]],
    ) -> Callable[[Request, Exception], Awaitable[Response]]:
        async def handle(request: Request, error: Exception) -> Response:
            problem, headers = describe(request, error)
            on_problem(problem.code)
            return problem_response(problem, headers)

        return handle

    app.add_exception_handler(ServiceError, handler(_service_error))
    app.add_exception_handler(InvalidInputError, handler(_invalid_input))
    app.add_exception_handler(RequestValidationError, handler(_invalid_request))
    app.add_exception_handler(HTTPException, handler(_http_error))
    app.add_exception_handler(ClientDisconnect, handler(_gone))
    app.add_exception_handler(Exception, handler(_unexpected))


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    if len(problem.detail) > _HEAD + _TAIL:
        shortened = f"{problem.detail[:_HEAD]} … {problem.detail[-_TAIL:]}"
        problem = msgspec.structs.replace(problem, detail=shortened)
    body = msgspec.json.encode(problem)
    return Response(body, problem.status, headers, media_type=MEDIA_TYPE)


def _service_error(_: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, ServiceError)
    return Problem(error.title, error.status, error.code, error.detail), error.headers


def _invalid_input(_: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, InvalidInputError)
    status = _status_of(error)
    title = _title_of(status)
    if isinstance(error, RuleError):
        return RuleProblem(title, status, error.code, str(error), error.faults), {}
    return Problem(title, status, error.code, str(error)), {}


def _status_of(error: InvalidInputError) -> int:
    if isinstance(error, FrameTooLargeError):
        return 413
    return 400 if isinstance(error, FrameError) else 422


def _invalid_request(_: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, RequestValidationError)
    told = "; ".join(_in_words(fault) for fault in error.errors())
    return Problem(_title_of(422), 422, "invalid_request", told), {}


def _in_words(fault: Mapping[str, Any]) -> str:
    """Pydantic's fault in a parameter, in our words: its place, what was found and wanted."""
    place = ".".join(str(part) for part in fault["loc"])
    wanted = _WANTED.get(fault["type"])
    if wanted is None:
        return f"{place}: {fault['msg']}"
    found = "none" if fault["type"] == "missing" else _shortened(fault["input"])
    if fault["loc"][-1] == _TOKEN:
        wanted = "one from an earlier answer of this list"
    return f"{place}: found {found}, wanted {wanted.format(**fault.get('ctx', {}))}"


def _shortened(value: object) -> str:
    told = repr(value)
    return told if len(told) <= _MOST_TOLD else f"{told[:_MOST_TOLD]}…"


def _http_error(request: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, HTTPException)
    status = error.status_code
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        return _wrong_method(request)
    phrase = phrase_of(status)
    code = _CODES.get(status, phrase.lower().replace(" ", "_"))
    details = {404: _NOT_FOUND, 413: _too_large(request.scope)}
    detail = details.get(status, str(error.detail))
    return Problem(_title_of(status), status, code, detail), error.headers or {}


def _wrong_method(request: Request) -> tuple[Problem, Mapping[str, str]]:
    status = HTTPStatus.METHOD_NOT_ALLOWED.value
    allowed = allowed_methods(request.app, request.url.path)
    told = f"method: found {request.method}, wanted {' or '.join(allowed)}"
    problem = Problem(_title_of(status), status, _CODES[status], told)
    return problem, {"Allow": ", ".join(allowed)}


def _gone(_: Request, __: Exception) -> tuple[Problem, Mapping[str, str]]:
    """The client has gone, so nobody reads this; it is no failure of ours, and is not logged."""
    return Problem("Bad request", 400, "incomplete_request", "The rest of it never arrived."), {}


def _unexpected(request: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "The service failed; its log says how."
    return Problem("Internal error", 500, "internal_error", detail), {}


class PlainAsProblem:
    """Turns the framework's plain-text refusal of a body over its route's limit, which bypasses the
    handlers above, into a problem."""

    def __init__(self, app: ASGIApp, on_problem: Callable[[str], None]) -> None:
        self._app = app
        self._on_problem = on_problem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_replaced = False

        async def send_problem(message: Message) -> None:
            nonlocal is_replaced
            begins = message["type"] == "http.response.start"
            problem = _replacement(scope, message) if begins else None
            if problem is not None:
                is_replaced = True
                self._on_problem(problem.code)
                await problem_response(problem)(scope, receive, send)
            elif not is_replaced:
                await send(message)

        await self._app(scope, receive, send_problem)


def _replacement(scope: Scope, message: Message) -> Problem | None:
    """The problem to send instead of this answer; None: the answer stays as it is."""
    status: int = message["status"]
    if status != HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return None
    if not Headers(raw=message["headers"]).get("Content-Type", "").startswith("text/plain"):
        return None
    return Problem(_title_of(status), status, _CODES[status], _too_large(scope))


def _too_large(scope: Scope) -> str:
    limit = scope.get(MAX_BODY_SIZE_SCOPE_KEY)
    return f"body: found too many bytes, wanted at most {limit}"


def _title_of(status: int) -> str:
    """The same title for a status, whichever part of the service refuses."""
    return title_of(status) or phrase_of(status).capitalize()
