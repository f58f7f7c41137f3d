"""The project's own markdown: its pages, their links and their code blocks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
_BLOCK: Final = re.compile(r"^( *)```([\w-]*)[^\n]*\n(.*?)^\1```", re.M | re.S)
_LINK: Final = re.compile(r"!?\[[^\]\n]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#{1,6} +(.+?) *$", re.M)


@dataclass(frozen=True, slots=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def pages() -> list[Path]:
    """All of ours that speak of what there is now: the changelog speaks of what was."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]
    return sorted(page for page in found if page.name != "CHANGELOG.md")


def blocks(*languages: str) -> list[Block]:
    return [
        Block(page, text[: found.start()].count("\n") + 1, found[2], _dedented(found))
        for page in pages()
        for text in [page.read_text(encoding="utf-8")]
        for found in _BLOCK.finditer(text)
        if found[2] in languages
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
