"""A line that keeps what it is given, and hands out the commands that a test puts in."""

import time

import numpy as np
from numpy.typing import NDArray

from runwatch.commands import Command, Receipt
from runwatch.frames import Event
from runwatch.vocabulary import Phase
from runwatch_hooks.exit_causes import Status
from runwatch_hooks.step.row import Row


class RecordingLine:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.events: list[Event] = []
        self.receipts: list[Receipt] = []
        self.progress: list[tuple[int | None, Phase, float]] = []
        self.commands: list[Command] = []
        self.closed_rows: list[tuple[int, int]] = []
        self.closed: list[tuple[Status, str]] = []
        self.opened_at: list[int] = []

    def open(self, first_step: int) -> "RecordingLine":
        self.opened_at.append(first_step)
        return self

    def service_time(self) -> float:
        return time.time()

    def put_row(self, row: Row) -> None:
        self.rows.append(row)

    def close_row(self, step: int, segment: int) -> None:
        self.closed_rows.append((step, segment))

    def put_event(self, event: Event) -> None:
        self.events.append(event)

    def put_receipt(self, receipt: Receipt) -> None:
        self.receipts.append(receipt)

    def set_progress(self, step: int | None, phase: Phase, lr_scale: float) -> None:
        self.progress.append((step, phase, lr_scale))

    def take_commands(self) -> list[Command]:
        commands, self.commands = self.commands, []
        return commands

    def close(self, status: Status, timeout_s: float = 10.0, *, reason: str = "") -> None:
        self.closed.append((status, reason))

    def metric(self, name: str) -> list[float]:
        """A run metric over the rows that hold it."""
        return [row.metrics[name] for row in self.rows if name in row.metrics]

    def kinds(self) -> list[str]:
        return [event.kind for event in self.events]


def stat(row: Row, name: str) -> NDArray[np.float32]:
    """One stat of a row, over its layers."""
    assert row.layout is not None
    assert row.stats is not None
    stats: NDArray[np.float32] = row.stats.reshape(len(row.layout.stats), -1)
    return np.asarray(stats[row.layout.stats.index(name)])


def of_layer(row: Row, name: str, layer: str) -> float:
    """One stat of one layer."""
    assert row.layout is not None
    return float(stat(row, name)[row.layout.layer_names.index(layer)])
