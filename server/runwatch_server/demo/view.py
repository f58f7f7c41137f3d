"""The demo's display: a bar for each training, and a line for each event."""

import math
import time
from types import TracebackType
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn
from rich.table import Table

from runwatch_server.demo.events import DemoEvent
from runwatch_server.demo.outcome import LAST_STEPS, Mode, Outcome

_COLOURS: Final = {"alert": "bold red", "command": "bold yellow", "trainer": "bold green"}
_LINE_EVERY_STEPS: Final = 100
"""Steps between lines if there is no terminal to draw bars on."""


class View:
    """Draws bars on a terminal, and writes plain lines elsewhere."""

    def __init__(self, console: Console, num_steps: int) -> None:
        self._console = console
        self._num_steps = num_steps
        self._tasks: dict[Mode, TaskID] = {}
        self._bars = Progress(
            TextColumn("  {task.description:<12}"),
            BarColumn(bar_width=40),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]:>7}"),
            console=console,
            disable=not console.is_terminal,
        )
        self._started_at = time.monotonic()

    def __enter__(self) -> "View":
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bars.stop()

    def show_text(self, text: str) -> None:
        self._console.print(text, highlight=False)

    def begin(self, mode: Mode) -> None:
        self._tasks[mode] = self._bars.add_task(mode.value, total=self._num_steps, loss="")

    def progress(self, mode: Mode, step: int, loss: float) -> None:
        """Show that a step has ended; after a rollback the bar moves back."""
        shown = _shown(loss)
        self._bars.update(self._tasks[mode], completed=step + 1, loss=shown)
        if not self._console.is_terminal and (step + 1) % _LINE_EVERY_STEPS == 0:
            self.show_text(f"  {mode.value:<12} step {step + 1} of {self._num_steps}, loss {shown}")

    def show_event(self, event: DemoEvent) -> None:
        colour = _COLOURS.get(event.kind, "")
        elapsed_s = time.monotonic() - self._started_at
        self._console.print(
            f"  {elapsed_s:5.1f} s  [{colour}]{event.kind:<8}[/] {escape(event.text)}",
            highlight=False,
        )

    def show_outcome(self, outcome: Outcome) -> None:
        self._console.print()
        self._console.print(_table(outcome))
        back = outcome.rolled_back_to
        if outcome.detected_step is not None and back is not None:
            self.show_text(
                f"Fault at step {outcome.fault_step}, seen at step {outcome.detected_step}, "
                f"rolled back to step {back} after step {outcome.rolled_back_at}: "
                f"{outcome.steps_repeated} steps trained again, none before them lost."
            )
        if outcome.is_identical:
            self.show_text("The protected run ends in the clean run's losses, bit for bit.")
        for words in outcome.shortcomings():
            self._console.print(f"[bold red]Not as promised:[/] {escape(words)}", highlight=False)


def _table(outcome: Outcome) -> Table:
    table = Table(title=f"Mean loss of the last {LAST_STEPS} steps")
    for heading in ("training", "final loss", "against clean"):
        table.add_column(heading, justify="left" if heading == "training" else "right")
    for mode in Mode:
        ratio = outcome.ratio(mode)
        against = "" if mode is Mode.CLEAN else f"{ratio - 1:+.1%}"
        table.add_row(mode.value, _shown(outcome.final_loss(mode)), against)
    return table


def _shown(loss: float) -> str:
    return f"{loss:.3f}" if math.isfinite(loss) and abs(loss) < 1000 else f"{loss:.3g}"
