"""The runbooks of docs/runbooks, shipped with the service: what to do when a rule fires."""

import re
from functools import cache
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_FOLDERS: Final = (_HERE / "docs" / "runbooks", _HERE.parents[1] / "docs" / "runbooks")
"""Where they are in an installed package, and in a checkout."""

_ANNOTATION: Final = re.compile(r"(?:docs/runbooks/)?([a-z0-9-]{1,64})\.md")


_SENTENCE: Final = re.compile(r".+?[.](?=\s|$)", re.DOTALL)
_MARKS: Final = re.compile(r"\[([^]]*)\]\([^)]*\)|`")
"""Markdown to strip: of a link all but its text, and backquotes."""


def runbook_names() -> list[str]:
    """The names of all runbooks, sorted."""
    return sorted({path.stem for folder in _FOLDERS for path in folder.glob("*.md")})


def read_runbook(name: str) -> str | None:
    """A runbook's Markdown. The name is only compared, so it never becomes part of a path."""
    for folder in _FOLDERS:
        for path in folder.glob("*.md"):
            if path.stem == name:
                return path.read_text("utf-8")
    return None


@cache
def first_sentence(annotation: str) -> str:
    """The first sentence of one of our runbooks, which says what its rule detects.

    Empty for an address of somebody else's.
    """
    ours = _ANNOTATION.fullmatch(annotation)
    text = read_runbook(ours[1]) if ours is not None else None
    paragraphs = [] if text is None else text.split("\n\n")
    told = (one for one in paragraphs if not one.startswith(("#", "Severity:")))
    found = _SENTENCE.match(next(told, "").strip())
    return _MARKS.sub(r"\1", " ".join(found[0].split())) if found is not None else ""


def runbook_url(annotation: str, base: str = "") -> str:
    """The link to a rule's runbook.

    One of ours is a page below the service's address `base`; any other address stays as it is.
    Empty if a browser could not open it.
    """
    ours = _ANNOTATION.fullmatch(annotation)
    if ours is not None:
        return f"{base}/runbooks/{ours[1]}" if ours[1] in runbook_names() else ""
    return annotation if annotation.startswith(("https://", "http://")) else ""
