"""Converts a log to the messages that import it into a service: a run, its attempts and their
frames.

All ids derive from the log's content, so that importing it again finds everything already there.
Steps that the log skipped are filled with 'not recorded' if they are few: a frame's steps are
consecutive, and one frame per row would be far more to send.

Shapes: N steps of a frame, R rows, M metrics, C columns of the layout.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from runwatch.frames import MAX_STEPS, Frame
from runwatch.layouts import Layer, Layout
from runwatch.messages import AttemptOpen, RunOpen
from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.rules import Rows
from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_server.importing.run_log import RunLog

HAS_TIMES: Final = "has_times"
"""A key in the run's configuration: false if its rows were only counted as seconds."""
_MAX_FILLED_STEPS: Final = 16
_MAX_FRAME_BYTES: Final = 4 * 2**20
"""Unpacked bytes: half of what the service accepts compressed, since random numbers do not
compress."""


@dataclass(frozen=True)
class Parcel:
    """One log that is imported into a project."""

    log: RunLog
    project: str

    @cached_property
    def digest(self) -> bytes:
        """SHA-256 of the project and of the contents of all rows."""
        found = hashlib.sha256(self.project.encode())
        for rows in self.log.stretches:
            names = (rows.metric_names, rows.layer_names, rows.stat_names)
            found.update(repr((rows.attempt, rows.segment, rows.metrics.shape, names)).encode())
            for numbers in (rows.steps, rows.times, rows.metrics, rows.stats):
                found.update(np.ascontiguousarray(numbers).tobytes())
        return found.digest()

    @property
    def num_steps(self) -> int:
        """The steps that its frames hold: the log's, and those it skipped in between."""
        pieces = (piece for rows in self.log.stretches for piece in _pieces(rows))
        return sum(int(piece.steps[-1] - piece.steps[0]) + 1 for piece in pieces)

    @property
    def attempts(self) -> list[int]:
        return list(dict.fromkeys(rows.attempt for rows in self.log.stretches))

    @property
    def run_id(self) -> RunId:
        return RunId(self._ulid(self.digest))

    @cached_property
    def layout(self) -> Layout | None:
        rows = self.log.stretches[0]
        if not rows.layer_names:
            return None
        return Layout(tuple(Layer(name) for name in rows.layer_names), rows.stat_names)

    def run(self, name: str) -> RunOpen:
        return RunOpen(
            run_id=self.run_id,
            name=name,
            project=self.project,
            config={
                "imported_from": self.log.name,
                "notes": list(self.log.notes),
                HAS_TIMES: self.log.has_times,
            },
        )

    def attempt(self, attempt: int) -> AttemptOpen:
        first = self.stretches(attempt)[0]
        return AttemptOpen(
            token=hashlib.sha256(self.digest + bytes(str(attempt), "ascii")).hexdigest(),
            started_at=float(first.times[0]),
            resume_step=int(first.steps[0]),
            live=False,
        )

    def stretches(self, attempt: int) -> list[Rows]:
        return [rows for rows in self.log.stretches if rows.attempt == attempt]

    def frames(self, attempt: int, opened_as: int) -> Iterator[Frame]:
        """The frames of an attempt of the log, which the service knows by a number of its own."""
        pieces = (piece for rows in self.stretches(attempt) for piece in _pieces(rows))
        for seq, rows in enumerate(pieces, start=1):
            yield _frame(rows, self.layout, attempt=opened_as, seq=seq)

    def _ulid(self, digest: bytes) -> str:
        time_ms = int(self.log.stretches[0].times[0] * 1000) if self.log.has_times else 0
        return ulid(time_ms, digest[:10])


def _pieces(rows: Rows) -> Iterator[Rows]:
    """Rows cut where a frame has to end."""
    row_bytes = 8 * (1 + len(rows.metric_names)) + 4 * rows.stats[0].size
    most_steps = max(1, min(MAX_STEPS, _MAX_FRAME_BYTES // row_bytes))
    steps = rows.steps.tolist()
    start = 0
    for row in range(1, len(steps)):
        gap = steps[row] - steps[row - 1]
        if not 1 <= gap <= _MAX_FILLED_STEPS or steps[row] - steps[start] >= most_steps:
            yield rows.between(start, row)
            start = row
    yield rows.between(start, len(steps))


def _frame(rows: Rows, layout: Layout | None, *, attempt: int, seq: int) -> Frame:
    first_step = int(rows.steps[0])
    places_R = rows.steps - first_step
    num_steps = int(places_R[-1]) + 1
    metrics_NM = np.full((num_steps, len(rows.metric_names)), ABSENT_64)
    metrics_NM[places_R] = rows.metrics
    num_columns = 0 if layout is None else layout.num_columns
    stats_NC = np.full((num_steps, num_columns), ABSENT_32, np.float32)
    stats_NC[places_R] = rows.stats.reshape(rows.num_rows, num_columns)
    return Frame(
        attempt=attempt,
        rank=0,
        seq=seq,
        segment=rows.segment,
        first_step=first_step,
        times=np.interp(np.arange(num_steps), places_R, rows.times),
        metric_names=rows.metric_names,
        metrics=metrics_NM,
        layout_hash="" if layout is None else layout.hash,
        stats=stats_NC,
    )
