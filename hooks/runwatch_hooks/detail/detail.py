"""Histograms and activations of single steps: collected during a step, sent after its row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
import torch
from torch import Tensor, nn

from runwatch.histograms import NUM_BINS, HistogramKind, Histograms, pack_histograms
from runwatch.layouts import Layer, Layout
from runwatch_hooks.detail.activation_sums import NUM_SUMS, STATS, joined, stats_of, sums_of
from runwatch_hooks.detail.bits import Departures, Lot
from runwatch_hooks.detail.log2_counts import count_log2
from runwatch_hooks.detail.module_taps import ModuleTaps
from runwatch_hooks.detail.schedule import Due, Schedule
from runwatch_hooks.faults import Faults
from runwatch_hooks.statistics.readback import to_device
from runwatch_hooks.step.row import Row

_ROW_BYTES: Final = 2**19
"""Limit on the histograms of one row: half of the limit of a frame's header."""
_SUMS: Final = "sums"
"""Of activations, beside the kinds of histograms."""

Counted = tuple[HistogramKind, tuple[str, ...], list[Lot]]


@dataclass(frozen=True, slots=True, eq=False)
class Closeup:
    """The measurements of one step, which may still be in transit from a device."""

    counted: tuple[Counted, ...]
    modules: tuple[str, ...]
    sums: list[Lot]

    def is_there(self) -> bool:
        return all(lot.is_there() for lot in self._lots())

    def rows(self, step: int, segment: int, at: float) -> list[Row]:
        """Rows that follow the step's own. Only valid once `is_there`."""
        rows = self._activation_rows(step, segment, at)
        histograms: list[Histograms] = []
        for part in self._histograms(step):
            if sum(one.num_bytes for one in (*histograms, part)) > _ROW_BYTES:
                rows.append(Row(step, segment, at, {}, histograms=tuple(histograms)))
                histograms = []
            histograms.append(part)
        if histograms:
            rows.append(Row(step, segment, at, {}, histograms=tuple(histograms)))
        return rows

    def _activation_rows(self, step: int, segment: int, at: float) -> list[Row]:
        sums = np.zeros((len(self.modules), NUM_SUMS))
        for lot in self.sums:
            sums[lot.rows] = lot.values()
        if not sums.any():
            return []
        layout = Layout(tuple(Layer(name) for name in self.modules), STATS)
        return [Row(step, segment, at, {}, layout, stats_of(sums).reshape(-1))]

    def _histograms(self, step: int) -> list[Histograms]:
        packed: list[Histograms] = []
        for kind, names, lots in self.counted:
            counts = np.zeros((len(names), NUM_BINS), np.int64)
            for lot in lots:
                counts[lot.rows] = lot.values()
            held = np.flatnonzero(counts.any(axis=1)).tolist()
            if held:
                packed += pack_histograms(
                    step, kind, tuple(names[place] for place in held), counts[held]
                )
        return packed

    def _lots(self) -> list[Lot]:
        return [*self.sums, *(lot for _, _, lots in self.counted for lot in lots)]


class Detail:
    """The detail of one process. Used by the training thread. A step without detail costs one
    comparison."""

    def __init__(
        self, modules: Mapping[str, nn.Module], schedule: Schedule, faults: Faults
    ) -> None:
        self._faults = faults
        self._modules = modules
        self._schedule = schedule
        self._due = Due()
        self._taps: ModuleTaps | None = None
        self._is_closed = False
        self._departures = Departures()
        self.num_lost = 0
        """Steps that lost something because a ring of buffers was full."""
        self._notices: list[str] = []
        self._has_told_silence = False
        self._clear()

    @property
    def takes_histograms(self) -> bool:
        """Whether histograms of the current step are wanted."""
        return self._due.histograms

    def ask(self, next_step: int, num_steps: int) -> None:
        """Measure everything at the next `num_steps` steps."""
        self._schedule.ask(next_step, num_steps)

    def begin_step(self, step: int) -> None:
        """A step is about to be trained."""
        if self._is_closed:
            return
        self._due = self._schedule.next(step)
        if self._due.histograms or self._due.activations:
            self._drop()  # what a step has left that was interrupted, as by Ctrl-C in a notebook
        if self._due.activations:
            # Created each time: the model may have been compiled, or have other modules by now.
            self._taps = ModuleTaps(self._modules, self._see, self._faults, self.close)
            self._taps.open()

    def take_gradients(self, grads: Mapping[str, Tensor], scale: Tensor | None) -> None:
        """Count the gradients of layers, divided by `scale`. Of several readings in a step the last
        counts."""
        with torch.no_grad():
            for name, grad in grads.items():
                self._put(HistogramKind.GRADIENTS, name, count_log2(grad, scale))

    def take_weights(self, tensors: Mapping[str, Tensor]) -> None:
        """Count the weights of layers, before the first optimizer step in this row."""
        known = self._counts[HistogramKind.WEIGHTS]
        with torch.no_grad():
            for name, tensor in tensors.items():
                if name not in known:
                    self._put(HistogramKind.WEIGHTS, name, count_log2(tensor))

    def end_step(self) -> Closeup | None:
        """The measurements of the step; None if nothing was wanted."""
        due, self._due = self._due, Due()
        if self._taps is None and not due.histograms:
            return None
        modules = () if self._taps is None else self._taps.names
        if self._taps is not None:
            self._note_silence(self._taps)
        self._close_taps()
        num_lost_before = self._departures.num_lost
        closeup = Closeup(
            counted=tuple(
                (
                    kind,
                    tuple(found),
                    self._departures.send(kind, list(range(len(found))), [*found.values()]),
                )
                for kind, found in self._counts.items()
                if found
            ),
            modules=modules,
            sums=self._departures.send(_SUMS, [*self._sums], [*self._sums.values()]),
        )
        self.num_lost += self._departures.num_lost > num_lost_before
        self._clear()
        return closeup

    def forget(self, next_step: int) -> None:
        """After a rollback: do not repeat requests that were answered before it."""
        self._schedule.forget(next_step)

    def take_notices(self) -> list[str]:
        notices, self._notices = self._notices, []
        return notices

    def close(self) -> None:
        """Stop measuring, and remove all hooks from the modules."""
        self._is_closed = True
        self._due = Due()
        self._drop()

    def _see(self, place: int, output: Tensor) -> None:
        """Called inside the model's forward pass, where nothing may be raised."""
        with torch.no_grad():
            sums = sums_of(output)
            if sums is None:
                return
            before = self._sums.get(place)
            self._sums[place] = (
                sums if before is None else joined(before, to_device(sums, before.device))
            )
            if self._due.histograms and self._taps is not None:
                name = self._taps.names[place]
                counts = count_log2(output)
                known = self._counts[HistogramKind.ACTIVATIONS].get(name)
                if counts is not None and known is not None:
                    counts = known + to_device(counts, known.device)
                self._put(HistogramKind.ACTIVATIONS, name, counts)

    def _put(self, kind: HistogramKind, name: str, counts: Tensor | None) -> None:
        if counts is not None:
            self._counts[kind][name] = counts

    def _note_silence(self, taps: ModuleTaps) -> None:
        if self._sums or self._has_told_silence:
            return
        self._has_told_silence = True
        why = "it is compiled" if not taps.names else "it is compiled, or did not run in this step"
        self._notices.append(f"no module of the model tells what it returns: {why}")

    def _drop(self) -> None:
        self._close_taps()
        self._clear()

    def _close_taps(self) -> None:
        if self._taps is not None:
            self._taps.close()
            self._taps = None

    def _clear(self) -> None:
        self._sums: dict[int, Tensor] = {}
        self._counts: dict[HistogramKind, dict[str, Tensor]] = {kind: {} for kind in HistogramKind}
