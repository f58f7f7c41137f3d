"""`runwatch demo`: a run breaks at step 500, and Runwatch rolls it back."""

import importlib.util
import signal
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from runwatch.extras import pip_install
from runwatch_server.cli.output import AsJson, OurConsole, print_facts
from runwatch_server.demo.client import Client
from runwatch_server.demo.errors import DemoError
from runwatch_server.demo.outcome import Outcome
from runwatch_server.demo.runner import DemoRunner
from runwatch_server.demo.service_process import ServiceProcess
from runwatch_server.demo.trainers import TrainingPlan
from runwatch_server.demo.view import View
from runwatch_server.secret_files import make_folder


def demo(
    keep: Annotated[
        bool, typer.Option(help="Leave the service running and keep its data.")
    ] = False,
    folder: Annotated[
        Path | None, typer.Option("--dir", help="Keep everything in this new folder.")
    ] = None,
    as_json: AsJson = False,
    steps: Annotated[int, typer.Option(min=100, help="Steps of each training.")] = 600,
    fault_step: Annotated[int, typer.Option(min=1, help="The step that goes wrong.")] = 500,
    seed: Annotated[int, typer.Option(help="Seed of the model and of the order of the text.")] = 0,
) -> None:
    """Train a small GPT three times: clean, broken, and broken with Runwatch watching.

    Starts a service of its own, on SQLite and a free port of this machine, and trains on the source
    code of Python's standard library. Exits with 1 if the run was not saved.
    """
    console = OurConsole(stderr=as_json)
    # As with Ctrl-C, the service and the trainings end with us.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    _check(console, folder, steps=steps, fault_step=fault_step)
    try:
        with _folder(folder, keep=keep) as place:
            plan = TrainingPlan(steps=steps, seed=seed, fault_step=fault_step)
            outcome = _run(console, place, plan, keep=keep)
    except DemoError as error:
        console.print(
            f"[bold red]The demo could not go on:[/] {escape(str(error))}", highlight=False
        )
        raise typer.Exit(1) from error
    if as_json:
        print_facts(outcome.to_document())
    if outcome.shortcomings():
        raise typer.Exit(1)


def _run(console: Console, place: Path, plan: TrainingPlan, *, keep: bool) -> Outcome:
    service = ServiceProcess(place)
    is_left_running = False
    try:
        service.start()
        console.print(f"A service is up at {service.url}, its data in {place}", highlight=False)
        with Client(service.url, service.admin_key) as client:
            with View(console, plan.steps) as view:
                outcome = DemoRunner(place, plan, service, client, view).run()
            view.show_outcome(outcome)
        is_left_running = keep
    finally:
        if not is_left_running:
            service.stop()
    if keep:
        _print_address(console, service, place)
    return outcome


def _print_address(console: Console, service: ServiceProcess, place: Path) -> None:
    console.print(
        f"\nThe service still runs: {service.url} (its interface: {service.url}/docs)\n"
        f"  admin key   {service.admin_key}\n"
        f"  data, logs  {place}\n"
        f"  end it      kill {service.pid}",
        highlight=False,
        soft_wrap=True,
    )


@contextmanager
def _folder(given: Path | None, *, keep: bool) -> Generator[Path]:
    """The folder given, or a temporary one, which stays only with --keep."""
    if given is not None:
        make_folder(given)
        yield given.resolve()
    elif keep:
        yield Path(tempfile.mkdtemp(prefix="runwatch-demo-"))
    else:
        with tempfile.TemporaryDirectory(prefix="runwatch-demo-") as name:
            yield Path(name)


def _check(console: Console, folder: Path | None, *, steps: int, fault_step: int) -> None:
    faults = {
        f"The demo trains with PyTorch, which is not installed: {pip_install('torch')}": (
            importlib.util.find_spec("torch") is None
        ),
        f"--dir: found {folder} in use, wanted a new or empty folder": (
            folder is not None and folder.exists() and any(folder.iterdir())
        ),
        f"--fault-step: found {fault_step}, wanted one before the last of {steps} steps": (
            not fault_step < steps
        ),
    }
    for words, is_wrong in faults.items():
        if is_wrong:
            console.print(words, style="bold red", highlight=False, markup=False)
            raise typer.Exit(2)
