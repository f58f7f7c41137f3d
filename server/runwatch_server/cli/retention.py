"""`runwatch retention`: how long what is kept, and what goes next."""

from collections.abc import Mapping
from itertools import chain
from typing import Annotated, Any, Final

import typer

from runwatch_server.cli.client import DEFAULT_URL, Token, Url, open_client
from runwatch_server.cli.output import AsJson, say, say_either, say_facts
from runwatch_server.cli.run_names import Run, find_run_id
from runwatch_server.cli.tables import print_table

app = typer.Typer(
    help="How long frames, evidence and rollups are kept.",
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
"""What a round removes, and how a table heads it."""
_Raw = Annotated[
    float | None, typer.Option(min=0, help="Frames as received; 0: for ever. Left out: inherited.")
]
_Evidence = Annotated[float | None, typer.Option(min=0, help="Frames around an alert.")]
_Rollup = Annotated[float | None, typer.Option(min=0, help="Sums of layers' stats.")]


@app.command()
def show(url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False) -> None:
    """Show the days after a run's end, of the service and of projects."""
    with open_client(url, token) as client:
        found = client.request("GET", "/retention").json()
    if as_json:
        say_facts(found)
        return
    said = [("(service)", found["service"])]
    said += [(one["project"], one["ages"]) for one in found["projects"]]
    print_table(("project", *_AGES), ([name, *_words(ages)] for name, ages in said))


@app.command()
def due(url: Url = DEFAULT_URL, token: Token = "", as_json: AsJson = False) -> None:
    """Show what the next round of maintenance removes; removes nothing."""
    with open_client(url, token) as client:
        found = client.request("GET", "/retention/due").json()
    if as_json:
        say_facts(found)
        return
    if not found["runs"]:
        say("Nothing has had its time.")
        return
    columns = chain.from_iterable((heading, "MiB") for heading in _PARTS.values())
    print_table(("run_id", "name", "project", *columns), (_due_row(run) for run in found["runs"]))


@app.command("set")
def set_project(
    project: Annotated[str, typer.Argument(help="Whose runs it is about.")],
    raw_days: _Raw = None,
    evidence_days: _Evidence = None,
    rollup_days: _Rollup = None,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Say how long a project's runs keep what; without an option, as the service has it."""
    ages = {"raw_days": raw_days, "evidence_days": evidence_days, "rollup_days": rollup_days}
    with open_client(url, token) as client:
        body = {"project": project, "ages": ages}
        found = client.request("PATCH", "/retention", json=body).json()
    say_either(f"{project}: {_sentence(ages)}.", found, as_json=as_json)


@app.command()
def pin(
    run: Run,
    off: Annotated[bool, typer.Option("--off", help="Let it go with its time again.")] = False,
    url: Url = DEFAULT_URL,
    token: Token = "",
    as_json: AsJson = False,
) -> None:
    """Keep all of a run, for as long as it is pinned."""
    with open_client(url, token) as client:
        path = f"/runs/{find_run_id(client, run)}/retention"
        found = client.request("PATCH", path, json={"pinned": not off}).json()
    said = "goes with its time" if off else "is pinned: nothing of it goes"
    say_either(f"{run} {said}.", found, as_json=as_json)


def _words(ages: Mapping[str, float | None]) -> list[str]:
    return [_word(ages[name]) for name in _AGES]


def _sentence(ages: Mapping[str, float | None]) -> str:
    """What is said of a project; the rest is as the service has it."""
    own = [f"{_NAMES[name]} {_word(days)}" for name, days in ages.items() if days is not None]
    rest = "all" if not own else "the rest"
    inherited = [f"{rest} as the service has it"] if len(own) < len(ages) else []
    return ", ".join([*own, *inherited])


def _word(days: float | None) -> str:
    if days is None:
        return "inherited"
    return f"{days:g} day{'' if days == 1 else 's'}" if days else "for ever"


def _due_row(run: dict[str, Any]) -> list[object]:
    amounts = [run[part] for part in _PARTS]
    told = [(amount["number"], f"{amount['num_bytes'] / 2**20:.1f}") for amount in amounts]
    return [run["run_id"], run["name"], run["project"], *chain.from_iterable(told)]
