"""Tables of the command line: what is to be copied can be."""

import io
import re

from rich.console import Console

from runwatch_server.cli.tables import print_list, print_table

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


def listed(*rows: tuple[object, ...], is_terminal: bool) -> str:
    out = io.StringIO()
    console = Console(file=out, force_terminal=is_terminal, width=80, no_color=True)
    print_list(("id", "name", "state", "created_at"), rows, console)
    return re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())


def test_a_list_fits_80_columns_with_ids_as_short_as_they_differ() -> None:
    at = "2026-11-25T03:20:23.569947Z"
    name = "a-name-that-is-longer-than-the-line-" * 3
    rows = ((RUN_ID, name, "training", at), (f"{RUN_ID[:11]}Z", "two\nlines", "finished", None))
    text = listed(*rows, is_terminal=True)

    assert max(map(len, text.splitlines())) <= 80
    assert f"{RUN_ID[:12]}  " in text
    assert f"{RUN_ID[:11]}Z  " in text
    assert name in "".join(line[14:].split("  ")[0].strip() for line in text.splitlines()[1:])
    assert "11-25 03:20Z" in text
    assert "two?lines" in text


def test_a_list_in_a_pipe_has_whole_ids_and_times() -> None:
    text = listed((RUN_ID, "small", "training", "2026-11-25T03:20:23.5Z"), is_terminal=False)

    assert f" {RUN_ID} " in text
    assert "2026-11-25T03:20:23Z" in text


def test_a_name_in_brackets_is_a_name() -> None:
    assert "lr[/]0.1[red]" in printed((RUN_ID, None, "lr[/]0.1[red]", "training", ""))


def test_a_name_of_two_lines_makes_no_two_rows() -> None:
    lines = printed((RUN_ID, None, "two\nlines", "training", "")).splitlines()

    (row,) = (line for line in lines if RUN_ID in line)
    assert "two?lines" in row


def test_a_moment_is_told_to_the_second() -> None:
    text = printed((RUN_ID, None, "2026-11-25T03:20:23.569947Z", "2026-11-25T03:20:23Z", ""))

    assert text.count(" 2026-11-25T03:20:23Z ") == 2
