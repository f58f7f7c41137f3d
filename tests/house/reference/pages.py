"""The pages that are made from the code."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from tests.house.reference import commands, functions, paths, rules, series, settings

FOLDER: Final = Path(__file__).parents[3] / "docs" / "reference"
PAGES: Final[Mapping[str, Callable[[], str]]] = {
    "builtin-rules.md": rules.rendered,
    "commands.md": commands.rendered,
    "metrics.md": series.rendered,
    "rest.md": paths.rendered,
    "rule-functions.md": functions.rendered,
    "settings.md": settings.rendered,
}
