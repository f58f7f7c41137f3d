"""Tables of the command line: what is to be copied can be."""

import io

from rich.console import Console

from runwatch_server.cli.tables import print_table

RUN_ID = "01M7ZB2DFGRYA33HQ5HCF5AQWG"
COLUMNS = ("id", "run_id", "name", "state", "summary")


def printed(*rows: tuple[object, ...], is_terminal: bool = False) -> str:
    out = io.StringIO()
    width = 80 if is_terminal else None
    print_table(COLUMNS, rows, Console(file=out, force_terminal=is_terminal, width=width))
    return out.getvalue()


def test_a_pipe_gets_every_row_whole_and_on_one_line() -> None:
    summary = "gradient norm 240 at step 150, many times what it was " * 4
    lines = printed((RUN_ID, RUN_ID, "small-gpt", "training", summary)).splitlines()

    (row,) = (line for line in lines if RUN_ID in line)
    assert summary.strip() in row


def test_a_narrow_terminal_cuts_no_id() -> None:
    text = printed((RUN_ID, RUN_ID, "a rather long name", "training", "x " * 60), is_terminal=True)

    assert text.count(RUN_ID) == 2


def test_a_name_in_brackets_is_a_name() -> None:
    assert "lr[/]0.1[red]" in printed((RUN_ID, None, "lr[/]0.1[red]", "training", ""))


def test_a_name_of_two_lines_makes_no_two_rows() -> None:
    lines = printed((RUN_ID, None, "two\nlines", "training", "")).splitlines()

    (row,) = (line for line in lines if RUN_ID in line)
    assert "two?lines" in row


def test_a_moment_is_told_to_the_second() -> None:
    text = printed((RUN_ID, None, "2026-11-25T03:20:23.569947Z", "2026-11-25T03:20:23Z", ""))

    assert text.count(" 2026-11-25T03:20:23Z ") == 2
