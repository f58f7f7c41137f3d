"""The runbooks of docs/runbooks, as they are shipped: what to do when a rule fires."""

import re
from functools import cache
from pathlib import Path
from typing import Final

_HERE: Final = Path(__file__).parent
_FOLDERS: Final = (_HERE / "docs" / "runbooks", _HERE.parents[1] / "docs" / "runbooks")
"""In an installed package, and beside the sources."""

_ANNOTATION: Final = re.compile(r"(?:docs/runbooks/)?([a-z0-9-]{1,64})\.md")


_SENTENCE: Final = re.compile(r".+?[.](?=\s|$)", re.DOTALL)
_MARKS: Final = re.compile(r"\[([^]]*)\]\([^)]*\)|`")
"""A link, of which its words are kept, and what makes code of a word."""


def runbook_names() -> list[str]:
    """Every runbook's name, in order."""
    return sorted({path.stem for folder in _FOLDERS for path in folder.glob("*.md")})


def read_runbook(name: str) -> str | None:
    """A runbook's Markdown; the name is compared, and never becomes part of a path."""
    for folder in _FOLDERS:
        for path in folder.glob("*.md"):
            if path.stem == name:
                return path.read_text("utf-8")
    return None


@cache
def first_sentence(annotation: str) -> str:
    """What the rule of one of our runbooks sees, as it begins; empty for another's address."""
    ours = _ANNOTATION.fullmatch(annotation)
    text = read_runbook(ours[1]) if ours is not None else None
    paragraphs = [] if text is None else text.split("\n\n")
    told = (one for one in paragraphs if not one.startswith(("#", "Severity:")))
    found = _SENTENCE.match(next(told, "").strip())
    return _MARKS.sub(r"\1", " ".join(found[0].split())) if found is not None else ""


def runbook_url(annotation: str, base: str = "") -> str:
    """Where people read a rule's runbook: the page of one of ours, below the service's address
    `base`; another address as it stands; empty where a browser could not open it."""
    ours = _ANNOTATION.fullmatch(annotation)
    if ours is not None:
        return f"{base}/runbooks/{ours[1]}" if ours[1] in runbook_names() else ""
    return annotation if annotation.startswith(("https://", "http://")) else ""
