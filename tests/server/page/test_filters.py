"""How values look on a page."""

import math

import pytest

from runwatch_server.page.filters import days, moment, readable, size, told, verbatim


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ({"kind": "lower_lr", "scale": 0.5}, "lower lr, scale 0.5"),
        ({"kind": "rollback", "before_step": 0, "to_step": None}, "rollback, before step 0"),
        (["admin", "read"], "admin, read"),
        (False, "no"),
        ("<b>", "<b>"),
        (3, "3"),
    ],
)
def test_what_the_audit_kept_is_told_without_brackets(value: object, words: str) -> None:
    assert told(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "–"),
        (0, "for ever"),
        (math.inf, "for ever"),
        (1, "1 day"),
        (0.5, "0.5 days"),
        (1e6, "1\u202f000\u202f000 days"),
    ],
)
def test_an_age_is_told_in_days(value: float | None, words: str) -> None:
    assert days(value) == words


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 bytes"),
        (1023, "1\u202f023 bytes"),
        (1024, "1 KiB"),
        (12_950_000, "12.35 MiB"),
        (5 << 40, "5\u202f120 GiB"),
    ],
)
def test_a_size_is_told_in_the_unit_in_which_one_reads_it(num_bytes: int, words: str) -> None:
    assert size(num_bytes) == words


def test_a_row_of_a_log_without_times_happened_nobody_knows_when() -> None:
    assert moment(None) == "–"
    assert "<time" not in moment(82_000.0)
    assert "–" in moment(82_000.0)
    assert "2023-11-14 22:13:20 UTC" in moment(1.7e9)


def test_what_turns_a_text_around_is_read_as_its_code_point_unless_a_form_sends_it_back() -> None:
    assert readable("gpj\u202eexe") == "gpj[U+202E]exe"
    assert readable(verbatim("gpj\u202eexe")) == "gpj\u202eexe"
    assert readable("\u200fتشغيل") == "\u200fتشغيل"
    assert readable(3) == 3
