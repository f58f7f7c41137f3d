"""What others wrote is read on a terminal, never obeyed by it."""

import json

import pytest

from runwatch.terminal_text import readable, readable_json, readable_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b]0;mine\x07run", "?]0;mine?run"),
        ("\x9b2Jrun", "?2Jrun"),
        ("lost\rsaved\x08\x7f", "lost?saved??"),
        ("\u202enur", "?nur"),
        ("file\udcff", "file?"),
    ],
)
def test_what_commands_a_terminal_becomes_a_question_mark(text: str, shown: str) -> None:
    assert readable(text) == shown


def test_what_people_write_stays() -> None:
    text = "12\u202f000 steps\tüber 你好 👩\u200d🔬\nnext line"

    assert readable(text) == text


def test_a_text_cannot_pass_for_two_lines() -> None:
    assert readable_line("calm\ncritical: Forged") == "calm?critical: Forged"


def test_programs_get_the_same_value() -> None:
    document = json.dumps({"name": "\x9b2J\x7f\u202e\x1b"}, ensure_ascii=False)
    told = readable_json(document)

    assert told.isascii()
    assert json.loads(told) == json.loads(document)
