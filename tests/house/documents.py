"""The project's own markdown: its pages, their links and their code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
NOT_RUN: Final = re.compile(r"<!-- not run: ((?:(?!-->).)+?) -->\s*\Z", re.S)
"""Stands before a block that the tests leave out, and says why."""
_HAS: Final = re.compile(r"<!-- the reader has: (\w+) -->\s*\Z")
_NAMED: Final = re.compile(r"`([\w./-]+\.\w+)`:\s*(?:<!--.*?-->\s*)?\Z", re.S)
_BLOCK: Final = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^\1```", re.M | re.S)
_LINK: Final = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.M)


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str
    before: str
    """The page up to the block."""

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def why_not_run(self) -> str | None:
        """What the comment before it says; None where it is to be run."""
        found = NOT_RUN.search(self.before)
        return None if found is None else " ".join(found[1].split())

    @property
    def is_service(self) -> bool:
        """Whether it goes on until Ctrl-C, and other blocks speak to it."""
        return self.language == "sh" and "runwatch serve" in self.text

    @property
    def possessions(self) -> str | None:
        """What the reader has at hand here: the name of a function that gives it."""
        found = _HAS.search(self.before)
        return None if found is None else found[1]

    @property
    def file(self) -> str | None:
        """The file that the block is, where the words before it end in `NAME`: with a colon."""
        found = _NAMED.search(self.before)
        return None if found is None else found[1]


def pages() -> list[Path]:
    """All of ours that speak of what there is now: the changelog speaks of what was."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if page.name != "CHANGELOG.md")


def blocks(*languages: str) -> list[Block]:
    """Those of these languages, or all, in the order in which they stand."""
    return [
        Block(
            page,
            text[: found.start()].count("\n") + 1,
            found[2],
            _dedented(found),
            text[: found.start()],
        )
        for page in pages()
        for text in [page.read_text(encoding="utf-8")]
        for found in _BLOCK.finditer(text)
        if not languages or found[2] in languages
    ]


def _dedented(found: re.Match[str]) -> str:
    return "\n".join(line.removeprefix(found[1]) for line in found[3].split("\n"))


def prose(page: Path) -> str:
    """A page without its code blocks."""
    return _BLOCK.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[str]:
    """Those to places of ours; what lies on the internet is not ours to check."""
    for target in _LINK.findall(prose(page)):
        if not target.startswith(("http://", "https://", "mailto:")):
            yield target


def anchors(page: Path) -> set[str]:
    """The names that headings get, as GitHub makes them."""
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        for heading in _HEADING.findall(prose(page))
    }
