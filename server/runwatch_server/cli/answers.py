"""Tells the answers of a Runwatch service from those of other programs."""

from typing import Any, cast

import httpx


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
