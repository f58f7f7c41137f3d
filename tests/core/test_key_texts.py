"""Keys as people give them, and what is said of those that are none."""

import pytest

from runwatch.key_texts import fault_of_key, trimmed

WANTED = "wanted a key: letters, digits, '-' and '_'"


def test_a_key_ends_before_the_line_does() -> None:
    assert trimmed(" runwatch_a_b\r\n") == "runwatch_a_b"
    assert fault_of_key("runwatch_a_b-c") == ""


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("hunter\r2", f"found '\\r' at place 7 of 8, {WANTED}"),
        ("hünter2", f"found 'ü' at place 2 of 7, {WANTED}"),
        ("hunter\udcff2", f"found '\\udcff' at place 7 of 8, {WANTED}"),
        ("https://me:hunter2@a/hunter2", f"found the address https://a, {WANTED}"),
    ],
)
def test_of_what_is_no_key_one_character_or_a_host_is_told(text: str, fault: str) -> None:
    assert fault_of_key(text) == fault
