"""`runwatch retention`: how long data is kept, and what is removed next."""

from collections.abc import Mapping
from datetime import datetime
from itertools import chain
from typing import Annotated, Final

import msgspec
import typer

from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, print_either, print_facts, print_text
from runwatch_server.cli.run_names import Run, find_run_id
from runwatch_server.cli.tables import print_table

app = typer.Typer(
    help="Show and set how long frames, evidence and rollups are kept.",
    no_args_is_help=True,
    add_completion=False,
)

_AGES: Final = ("raw_days", "evidence_days", "rollup_days")
_NAMES: Final = {
    "raw_days": "frames",
    "evidence_days": "frames around alerts",
    "rollup_days": "rollups",
}
_PARTS: Final = {"frames": "frames", "rollups": "rollup tiles", "histograms": "histograms"}
"""What a round removes, with the heading of its column."""
_WHY: Final = {
    "pinned": "pinned (`runwatch retention pin RUN --off`)",
    "evidence": "around alerts (`--evidence-days`)",
    "not_summed_up": "not summed up yet",
    "lost": "the run was never closed (RUNWATCH_LOST_DAYS)",
}
_Raw = Annotated[
    float | None,
    typer.Option(min=0, help="Days for frames as received; 0: for ever. Default: inherited."),
]
_Evidence = Annotated[float | None, typer.Option(min=0, help="Days for frames around an alert.")]
_Rollup = Annotated[float | None, typer.Option(min=0, help="Days for rollups of layers' stats.")]


class _Ages(msgspec.Struct, frozen=True):
    raw_days: float | None
    evidence_days: float | None
    rollup_days: float | None


class _Project(msgspec.Struct, frozen=True):
    project: str
    ages: _Ages


class _Retention(msgspec.Struct, frozen=True):
    service: _Ages
    projects: list[_Project]


class _Pinned(msgspec.Struct, frozen=True):
    pinned: bool


class _Amount(msgspec.Struct, frozen=True):
    number: int
    num_bytes: int


class _DueRun(msgspec.Struct, frozen=True):
    run_id: str
    name: str
    project: str
    frames: _Amount
    rollups: _Amount
    histograms: _Amount


class _Held(msgspec.Struct, frozen=True):
    run_id: str
    name: str
    why: str
    frames: _Amount
    until: datetime | None


class _Due(msgspec.Struct, frozen=True):
    runs: list[_DueRun]
    held: list[_Held]


@app.command()
def show(url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False) -> None:
    """Show how many days after a run's end data is kept, by the service and by projects."""
    with open_client(url, token) as client:
        found = client.request(_Retention, "GET", "/retention")
    if as_json:
        print_facts(found.document)
        return
    said = [("(service)", found.facts.service)]
    said += [(one.project, one.ages) for one in found.facts.projects]
    print_table(("project", *_AGES), ([name, *_words(ages)] for name, ages in said))


@app.command()
def due(url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False) -> None:
    """Show what the next round of maintenance will remove, and what stays though it is old enough;
    removes nothing itself."""
    with open_client(url, token) as client:
        found = client.request(_Due, "GET", "/retention/due")
    if as_json:
        print_facts(found.document)
        return
    if found.facts.runs:
        columns = chain.from_iterable((heading, "MiB") for heading in _PARTS.values())
        print_table(("run_id", "name", "project", *columns), map(_due_row, found.facts.runs))
    else:
        print_text("Nothing is due for removal.")
    if found.facts.held:
        print_text("Frames that are old enough and stay:")
        print_table(("run_id", "name", "frames", "MiB", "why"), map(_held_row, found.facts.held))


@app.command("set")
def set_project(
    project: Annotated[str, typer.Argument(help="The project whose runs it applies to.")],
    raw_days: _Raw = None,
    evidence_days: _Evidence = None,
    rollup_days: _Rollup = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Set how long the data of a project's runs is kept; without options, as the service does."""
    ages = {"raw_days": raw_days, "evidence_days": evidence_days, "rollup_days": rollup_days}
    with open_client(url, token) as client:
        body = {"project": project, "ages": ages}
        found = client.request(_Retention, "PATCH", "/retention", json=body)
    print_either(f"{project}: {_sentence(ages)}.", found.document, as_json=as_json)


@app.command()
def pin(
    run: Run,
    off: Annotated[bool, typer.Option("--off", help="Unpin it.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Keep all data of a run for as long as it is pinned."""
    with open_client(url, token) as client:
        path = f"/runs/{find_run_id(client, run)}/retention"
        found = client.request(_Pinned, "PATCH", path, json={"pinned": not off})
    said = "is not pinned" if off else "is pinned: none of its data is removed"
    print_either(f"{run} {said}.", found.document, as_json=as_json)


def _words(ages: _Ages) -> list[str]:
    return [_word(getattr(ages, name)) for name in _AGES]


def _sentence(ages: Mapping[str, float | None]) -> str:
    """A project's own ages in words; the rest are the service's."""
    own = [f"{_NAMES[name]} {_word(days)}" for name, days in ages.items() if days is not None]
    rest = "all" if not own else "the rest"
    inherited = [f"{rest} as set for the service"] if len(own) < len(ages) else []
    return ", ".join([*own, *inherited])


def _word(days: float | None) -> str:
    if days is None:
        return "inherited"
    return f"{days:g} day{'' if days == 1 else 's'}" if days else "for ever"


def _due_row(run: _DueRun) -> list[object]:
    amounts: list[_Amount] = [getattr(run, part) for part in _PARTS]
    told = [(amount.number, f"{amount.num_bytes / 2**20:.1f}") for amount in amounts]
    return [run.run_id, run.name, run.project, *chain.from_iterable(told)]


def _held_row(held: _Held) -> list[object]:
    mib = f"{held.frames.num_bytes / 2**20:.1f}"
    why = _WHY.get(held.why, held.why)
    if held.until is not None:
        why += f", until {held.until:%Y-%m-%d}"
    return [held.run_id, held.name, held.frames.number, mib, why]
