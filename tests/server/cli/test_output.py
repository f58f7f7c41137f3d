"""No text of a run commands the terminal that it is printed on."""

import io
import math
import re
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest
from rich.console import RenderableType
from rich.text import Text

from runwatch.commands import CommandState
from runwatch.vocabulary import PolicyMode, RunState, Severity
from runwatch_server import cli
from runwatch_server.cli.live_screen import changes, line, screen
from runwatch_server.cli.output import OurConsole
from runwatch_server.cli.run_overview import (
    AlertOverview,
    CommandOverview,
    Curve,
    RunFacts,
    RunOverview,
)
from runwatch_server.cli.tables import print_table
from runwatch_server.cli.worst_layers import LayerOverview

EVIL = "\x1b[2J\x9b1mEVIL"
SHOWN = "?[2J?1mEVIL"


def printed(what: RenderableType) -> str:
    out = io.StringIO()
    OurConsole(file=out, force_terminal=True, color_system=None, width=200).print(what)
    return out.getvalue()


def test_words_in_markup_and_in_lines_are_harmless() -> None:
    assert printed(EVIL) == printed(Text(EVIL)) == f"{SHOWN}\n"


def test_a_table_stays_straight() -> None:
    out = io.StringIO()
    print_table(("name", "state"), [(EVIL, "ok"), ("calm", "ok")], OurConsole(file=out))
    lines = out.getvalue().splitlines()

    assert SHOWN in out.getvalue()
    assert len({len(line) for line in lines}) == 1


def test_no_part_of_the_live_screen_is_obeyed() -> None:
    run = RunFacts("01", EVIL, "p", RunState.FAILED, PolicyMode.OBSERVE, 1, 5)
    overview = RunOverview(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        run=run,
        latest={EVIL: 1.0},
        steps_per_s=1.0,
        curves=[Curve(EVIL, [1.0, 2.0])],
        layers=[LayerOverview(EVIL, "grad_norm", 1.0, 2.0)],
        alerts=[AlertOverview("a", EVIL, Severity.CRITICAL, "firing", 5, EVIL)],
        has_had_alerts=True,
        commands=[CommandOverview("c", {"kind": EVIL, EVIL: EVIL}, CommandState.PROPOSED, "")],
        reason=EVIL,
    )
    told = printed(screen(overview, note=EVIL, width=80))

    assert not set(told) & {"\x1b", "\x9b"}
    assert told.count(SHOWN) == 10


def test_a_screen_of_80_columns_keeps_the_newest_end_of_a_curve() -> None:
    run = RunFacts("01", "a run", "p", RunState.TRAINING, PolicyMode.OBSERVE, 1, 5)
    falling: list[float | None] = [*([9.0] * 59), math.nan]
    overview = RunOverview(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        run=run,
        latest={},
        steps_per_s=1.0,
        curves=[Curve("loss_scale", falling), Curve("loss", [-1.234e-10 * n for n in range(60)])],
        layers=[],
        alerts=[],
        has_had_alerts=False,
        commands=[CommandOverview("0" * 26, {"kind": "stop"}, CommandState.PROPOSED, "")],
    )
    out = io.StringIO()
    OurConsole(file=out, width=80, force_terminal=True, no_color=True).print(
        screen(overview, note="", width=80)
    )
    lines = out.getvalue().splitlines()

    (broken,) = (line for line in lines if "loss_scale" in line)
    assert "▁╳  nan" in re.sub(r"\x1b\[[0-9;]*m", "", broken)
    (falling_line,) = (line for line in lines if line.startswith("loss "))
    assert "-7.281e-09" in falling_line
    assert "to -3.46e-09" in falling_line
    assert f"runwatch approve {'0' * 26}" in out.getvalue()


@pytest.mark.parametrize(
    ("resolution", "outcome", "words"),
    [
        ("run_ended", "", "was still open when the run ended"),
        ("settled_worse", "loss settled at 2.6", "not recovered: loss settled at 2.6"),
    ],
)
def test_a_run_that_was_left_in_trouble_is_not_called_calm(
    resolution: str, outcome: str, words: str
) -> None:
    alert = AlertOverview(
        *("a", "NonFinite", Severity.CRITICAL, "resolved", 5, "NaN"),
        resolution=resolution,
        outcome=outcome,
    )
    overview = RunOverview(
        at=datetime(2026, 1, 1, tzinfo=UTC),
        run=RunFacts("01", "r", "p", RunState.FINISHED, PolicyMode.OBSERVE, 1, 5),
        latest={},
        steps_per_s=None,
        curves=[],
        layers=[],
        alerts=[],
        has_had_alerts=True,
        commands=[],
        left=[alert],
    )
    firing = msgspec.structs.replace(alert, state="firing", resolution=None)
    before = msgspec.structs.replace(overview, alerts=[firing], left=[])

    shown = printed(screen(overview, note="", width=80))
    assert f"critical NonFinite  {words}" in " ".join(shown.split(" "))
    assert "no alert fires" not in shown
    assert line(overview).endswith("1 not recovered")
    assert list(changes(before, overview)) == [f"  alert    critical NonFinite: {words}"]


def test_all_commands_print_through_the_one_console() -> None:
    files = [path for path in Path(cli.__path__[0]).glob("*.py") if path.name != "output.py"]

    assert [path.name for path in files if " Console(" in path.read_text()] == []
