"""The interface that is committed is the one that there is."""

from tests.house.interface import PAGE, rendered


def test_the_description_of_the_interface_is_of_this_commit() -> None:
    assert rendered() == PAGE.read_text(encoding="utf-8"), "the interface changed: run `make docs`"
