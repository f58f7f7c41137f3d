"""The pages of docs/reference are those of this commit."""

import pytest
from tests.house.reference.pages import FOLDER, PAGES


@pytest.mark.parametrize("name", sorted(PAGES))
def test_a_page_says_what_the_code_says(name: str) -> None:
    page = (FOLDER / name).read_text(encoding="utf-8")

    assert page == PAGES[name](), "the code changed: run `make docs`"


def test_no_page_is_left_of_what_is_gone() -> None:
    assert {path.name for path in FOLDER.glob("*.md")} == set(PAGES)
