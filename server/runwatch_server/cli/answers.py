"""What stands in an answer: a document of a Runwatch service, or what another program says."""

from typing import Any, cast

import httpx


def document_of(answer: httpx.Response) -> dict[str, Any] | None:
    """The object of JSON in it, which each document of ours is; None where it holds none."""
    if not _is_json(answer):
        return None
    try:
        document: object = answer.json()
    except (ValueError, RecursionError):
        return None
    return cast(dict[str, Any], document) if isinstance(document, dict) else None


def fault_of_answer(answer: httpx.Response) -> str:
    """Why it can be none of a Runwatch service; empty where it may be one."""
    if not answer.content or document_of(answer) is not None:
        return ""
    if not _is_json(answer):
        return f"found {answer.headers.get('Content-Type', 'no type')}, wanted JSON"
    return f"found {answer.text[:40]!r}, wanted an object of JSON"


def _is_json(answer: httpx.Response) -> bool:
    kind: str = answer.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower().endswith("json")
