"""The pages that are made from the code."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.house.reference import commands, paths, rules, settings

FOLDER: Final = Path(__file__).parents[3] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "builtin-rules.md": rules.rendered,
    "commands.md": commands.rendered,
    "rest.md": paths.rendered,
    "settings.md": settings.rendered,
}
