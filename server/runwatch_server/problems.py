"""Every error as one body: a problem of RFC 9457 with a stable `code`."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from runwatch.errors import Fault, FrameError, FrameTooLargeError, InvalidInputError, RuleError
from runwatch.messages import Problem
from runwatch_server.errors import OverloadedError, ServiceError

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/problem+json"


class RuleProblem(Problem, frozen=True):
    """A rule document's error, with all that is wrong in it."""

    faults: tuple[Fault, ...] = ()


def add_problem_handlers(app: FastAPI) -> None:
    """Makes the app answer every error as a problem."""
    app.add_exception_handler(ServiceError, _service_error)
    app.add_exception_handler(InvalidInputError, _invalid_input)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(Exception, _unexpected)


def problem_response(problem: Problem, headers: Mapping[str, str] | None = None) -> Response:
    return Response(msgspec.json.encode(problem), problem.status, headers, media_type=MEDIA_TYPE)


def _service_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    if isinstance(error, OverloadedError) and error.__cause__ is None:
        log.warning("%s %s: %s", request.method, request.url.path, error)
    problem = Problem(title=error.title, status=error.status, code=error.code, detail=error.detail)
    return problem_response(problem, error.headers)


def _invalid_input(_: Request, error: Exception) -> Response:
    assert isinstance(error, InvalidInputError)
    status = _status_of(error)
    facts = {
        "title": "Invalid input",
        "status": status,
        "code": error.code,
        "detail": str(error),
    }
    if isinstance(error, RuleError):
        return problem_response(RuleProblem(**facts, faults=error.faults))  # type: ignore[arg-type]
    return problem_response(Problem(**facts))  # type: ignore[arg-type]


def _status_of(error: InvalidInputError) -> int:
    if isinstance(error, FrameTooLargeError):
        return 413
    return 400 if isinstance(error, FrameError) else 422


def _invalid_request(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    places = [
        f"{'.'.join(str(part) for part in fault['loc'])}: {fault['msg']}"
        for fault in error.errors()
    ]
    return problem_response(Problem("Invalid request", 422, "invalid_request", "; ".join(places)))


def _http_error(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    phrase = HTTPStatus(error.status_code).phrase
    code = {404: "route_not_found", 413: "body_too_large"}.get(
        error.status_code, phrase.lower().replace(" ", "_")
    )
    problem = Problem(phrase, error.status_code, code, str(error.detail))
    return problem_response(problem, error.headers)


def _unexpected(request: Request, error: Exception) -> Response:
    log.error("%s %s failed", request.method, request.url.path, exc_info=error)
    return problem_response(
        Problem("Internal error", 500, "internal_error", "The service failed; its log says how.")
    )
