"""The recipes of CONTRIBUTING name files that exist."""

import re
from typing import Final

import pytest
from tests.house.documents import ROOT

_RECIPES: Final = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Recipes")[2]
_FILES: Final = sorted(set(re.findall(r"`((?:[\w.-]+/)+[\w.-]+)`", _RECIPES)))


def test_the_recipes_name_files() -> None:
    assert len(_FILES) > 10


@pytest.mark.parametrize("file", _FILES)
def test_a_file_that_a_recipe_names_exists(file: str) -> None:
    assert (ROOT / file).exists(), f"CONTRIBUTING names {file}, which does not exist"
