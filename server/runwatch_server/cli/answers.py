"""Reads the answers of a Runwatch service, and tells them from those of other programs."""

from dataclasses import dataclass
from typing import Annotated, Any, Final, Generic, Literal, TypeVar, cast

import httpx
import msgspec

ID_PATTERN: Final = "[A-Za-z0-9_-]+"
Id = Annotated[str, msgspec.Meta(pattern=f"^{ID_PATTERN}$")]
"""An id in an answer: it may become part of a path."""
Number = float | int | Literal["NaN", "+Inf", "-Inf"] | None
"""A `JsonNumber` in an answer; any other text is refused as the answer is read."""

Facts = TypeVar("Facts")


@dataclass(frozen=True, slots=True)
class Answer(Generic[Facts]):
    """An answer that was checked: a command reads its facts, and hands its document on."""

    facts: Facts
    document: dict[str, Any]
    """All that the service said, which may be more than the facts; for `--json`."""


class UnexpectedAnswerError(ValueError):
    """An answer is no document of the kind that was asked for; the message says where and why."""


def answer_of(response: httpx.Response, kind: type[Facts]) -> Answer[Facts]:
    """The response's document as `kind`, a struct of what is read of it. Raises
    UnexpectedAnswerError."""
    document = document_of(response)
    if document is None:
        raise UnexpectedAnswerError(f"found {response.text[:40]!r}, wanted a JSON object")
    try:
        return Answer(msgspec.json.decode(response.content, type=kind), document)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnexpectedAnswerError(str(error)) from error


def document_of(answer: httpx.Response) -> dict[str, Any] | None:
    """The answer's JSON object, which every document of ours is; None if it holds none."""
    if not _is_json(answer):
        return None
    try:
        document: object = answer.json()
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], document) if isinstance(document, dict) else None


def fault_of_answer(answer: httpx.Response) -> str:
    """Why the answer cannot come from a Runwatch service; empty if it may."""
    if not answer.content or document_of(answer) is not None:
        return ""
    if not _is_json(answer):
        return f"found {answer.headers.get('Content-Type', 'no Content-Type')}, wanted JSON"
    return f"found {answer.text[:40]!r}, wanted a JSON object"


def _is_json(answer: httpx.Response) -> bool:
    kind: str = answer.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower().endswith("json")
