"""Frames split into smaller ones because the service found them too large (413).

The sequence numbers that the service sees have no gaps: after a frame that became n pieces, all
later numbers increase by n - 1. Splits are written to disk before a piece is sent, so that a
repetition, by this process or by `sync`, sends the same bytes under the same numbers.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise

from runwatch.codec import decode_frame
from runwatch.frames import Frame
from runwatch_hooks.transport.records import Record
from runwatch_hooks.transport.spool_folder import Splits


class SplitLedger:
    """Which records were split, and at which of their steps each piece begins."""

    def __init__(
        self, splits: Mapping[int, tuple[int, ...]], save: Callable[[Splits], None]
    ) -> None:
        self._splits = dict(splits)
        self._save = save

    def wire_seq(self, seq: int) -> int:
        """The sequence number under which a record, or its first piece, is sent."""
        return seq + sum(len(starts) - 1 for cut, starts in self._splits.items() if cut < seq)

    def is_cut(self, seq: int) -> bool:
        return seq in self._splits

    def pieces(self, record: Record) -> list[Frame]:
        frame = decode_frame(record.payload)
        starts = self._splits.get(record.seq, (0,))
        return [piece_of(frame, *ends) for ends in pairwise((*starts, frame.num_steps))]

    def cut(self, record: Record, index: int) -> bool:
        """Halve one piece of a record; False if it is a single step already.

        The pieces before it are already stored by the service, and keep their numbers.
        """
        num_steps = decode_frame(record.payload).num_steps
        starts = self._splits.get(record.seq, (0,))
        first, last = (*starts, num_steps)[index : index + 2]
        if last - first < 2:
            return False
        middle = (first + last) // 2
        self._splits[record.seq] = (*starts[: index + 1], middle, *starts[index + 1 :])
        self._save(self._splits)
        return True


def piece_of(frame: Frame, first: int, last: int) -> Frame:
    """A range of a frame's steps; events and histograms go with the first piece."""
    return replace(
        frame,
        first_step=frame.first_step + first,
        times=frame.times[first:last],
        metrics=frame.metrics[first:last],
        stats=frame.stats[first:last],
        events=frame.events if first == 0 else (),
        histograms=frame.histograms if first == 0 else (),
    )
