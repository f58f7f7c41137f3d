"""From verdicts to alerts: each row moves the alert of its rule, and what is news is described.

Legend: R rows of a stretch, C columns (layers, or one for the run), F failing columns.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from runwatch.alerts import Change, Moment, Reason
from runwatch.rules.block import Block
from runwatch.rules.episodes import Culprits, Episode
from runwatch.rules.nonfinite_rule import Origin
from runwatch.rules.reporting import name_layers
from runwatch.rules.standing import Standing
from runwatch.rules.transitions import Transition
from runwatch.rules.windows import Bools, Floats, Indices

Found = list[tuple[int, Transition]]
"""Transitions, each with the row of the block that brought it."""

Look = Callable[[int, Indices], tuple[Floats, Floats]]
"""(F,) what the rule looks at in a row's columns, and how far each is beyond its limit."""

OriginOfRow = Callable[[int], Origin | None]


@dataclass(frozen=True, slots=True)
class Verdicts:
    """Of consecutive rows."""

    first_row: int
    failing_RC: Bools
    known_RC: Bools

    def before(self, stop: int) -> "Verdicts":
        return Verdicts(self.first_row, self.failing_RC[:stop], self.known_RC[:stop])


def follow(
    standing: Standing,
    verdicts: Verdicts,
    look: Look,
    block: Block,
    backward: bool,
    origin_of_row: OriginOfRow | None = None,
) -> Found:
    """Move the alert row by row; healthy rows of a quiet rule change nothing and are passed."""
    num_rows = len(verdicts.failing_RC)
    first = 0
    if standing.is_quiet:
        failing_rows = np.flatnonzero(verdicts.failing_RC.any(axis=1))
        first = int(failing_rows[0]) if failing_rows.size else num_rows
    found: Found = []
    for offset in range(first, num_rows):
        row = verdicts.first_row + offset
        now = Moment(int(block.rows.steps[row]), float(block.rows.times[row]))
        before = standing.alert
        for change in standing.judge(verdicts.failing_RC[offset], verdicts.known_RC[offset], now):
            if change.is_news:
                origin = None if origin_of_row is None else origin_of_row(row)
                _describe(standing, change, look, block, row, backward, origin)
                found.append((row, standing.tell(change, before, now, block.rows.rank)))
            before = standing.alert
    return found


def _describe(
    standing: Standing,
    change: Change,
    look: Look,
    block: Block,
    row: int,
    backward: bool,
    origin: Origin | None,
) -> None:
    """Name whom the change is about. Those who failed stay named when they have recovered."""
    failing_F = np.flatnonzero(standing.failing_L)
    if change.reason in (Reason.CLEARED, Reason.RECOVERED, Reason.CLEARED_EARLY):
        _show_recovery(standing, look, row)
        return
    values_F, excess_F = look(row, failing_F)
    excess_L = np.zeros(len(standing.columns))
    excess_L[failing_F] = excess_F
    alert = standing.alert
    assert alert is not None
    began_L = standing.failing_L & (standing.onset_steps_L == alert.onset.step)
    culprits = name_layers(
        standing.columns, standing.failing_L, began_L, excess_L, backward=backward
    )
    if origin is not None:
        culprits = _with_origin(culprits, origin, standing.columns)
    value = float(values_F[int(np.argmax(excess_F))])
    if standing.episode is None:
        standing.episode = Episode(block.rows.attempt, block.rows.segment, culprits, value)
    else:
        standing.refresh_episode(culprits, value)


def _with_origin(culprits: Culprits, origin: Origin, columns: tuple[str, ...]) -> Culprits:
    """Culprits of the rule whose first column is the run's."""
    first = None if origin.layer is None else columns[1 + origin.layer]
    return replace(culprits, first=first, origin=origin.words.format(layer=first))


def _show_recovery(standing: Standing, look: Look, row: int) -> None:
    assert standing.episode is not None
    worst = standing.episode.culprits.worst
    column = standing.columns.index(worst) if worst in standing.columns else 0
    values, _ = look(row, np.array([column]))
    standing.refresh_episode(standing.episode.culprits, float(values[0]))
