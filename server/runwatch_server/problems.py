"""Every error as one body: a problem of RFC 9457 with a stable `code`."""

import logging
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from runwatch.errors import Fault, FrameError, FrameTooLargeError, InvalidInputError, RuleError
from runwatch.messages import Problem
from runwatch_server.errors import ServiceError

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"
_CODES: Final = {404: "route_not_found", 405: "method_not_allowed", 413: "body_too_large"}


class RuleProblem(Problem, frozen=True):
    """A rule document's error, with all that is wrong in it."""

    faults: tuple[Fault, ...] = ()


def add_problem_handlers(app: FastAPI, *, on_problem: Callable[[str], None]) -> None:
    """Makes the app answer every error as a problem; `on_problem` hears each one's code."""

    def handler(
        describe: Callable[[Request, Exception], tuple[Problem, Mapping[str, str]]],
    ) -> Callable[[Request, Exception], Awaitable[Response]]:
        async def handle(request: Request, error: Exception) -> Response:
            problem, headers = describe(request, error)
            on_problem(problem.code)
            return Response(
                msgspec.json.encode(problem), problem.status, headers, media_type=MEDIA_TYPE
            )

        return handle

    app.add_exception_handler(ServiceError, handler(_service_error))
    app.add_exception_handler(InvalidInputError, handler(_invalid_input))
    app.add_exception_handler(RequestValidationError, handler(_invalid_request))
    app.add_exception_handler(HTTPException, handler(_http_error))
    app.add_exception_handler(Exception, handler(_unexpected))


def _service_error(_: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, ServiceError)
    return Problem(error.title, error.status, error.code, error.detail), error.headers


def _invalid_input(_: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, InvalidInputError)
    title, status = "Invalid input", _status_of(error)
    if isinstance(error, RuleError):
        return RuleProblem(title, status, error.code, str(error), error.faults), {}
    return Problem(title, status, error.code, str(error)), {}


def _status_of(error: InvalidInputError) -> int:
    if isinstance(error, FrameTooLargeError):
        return 413
    return 400 if isinstance(error, FrameError) else 422


def _invalid_request(_: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, RequestValidationError)
    places = [
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors()
    ]
    return Problem("Invalid request", 422, "invalid_request", "; ".join(places)), {}


def _http_error(_: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    assert isinstance(error, HTTPException)
    status = error.status_code
    phrase = HTTPStatus(status).phrase
    code = _CODES.get(status, phrase.lower().replace(" ", "_"))
    return Problem(phrase, status, code, str(error.detail)), error.headers or {}


def _unexpected(request: Request, error: Exception) -> tuple[Problem, Mapping[str, str]]:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    detail = "The service failed; its log says how."
    return Problem("Internal error", 500, "internal_error", detail), {}


class TooLargeAsProblem:
    """Says as a problem what the framework says in plain text, outside the handlers above: that a
    body is over its route's limit."""

    def __init__(self, app: ASGIApp, on_problem: Callable[[str], None]) -> None:
        self._app = app
        self._on_problem = on_problem

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_replaced = False

        async def send_problem(message: Message) -> None:
            nonlocal is_replaced
            if message["type"] == "http.response.start" and _is_plain_413(message):
                is_replaced = True
                self._on_problem(_CODES[413])
                await _too_large()(scope, receive, send)
            elif not is_replaced:
                await send(message)

        await self._app(scope, receive, send_problem)


def _is_plain_413(message: Message) -> bool:
    content_type = Headers(raw=message["headers"]).get("Content-Type", "")
    return message["status"] == 413 and content_type.startswith("text/plain")


def _too_large() -> Response:
    phrase = HTTPStatus(413).phrase
    problem = Problem(phrase, 413, _CODES[413], "The body is over the limit of this route.")
    return Response(msgspec.json.encode(problem), 413, media_type=MEDIA_TYPE)
