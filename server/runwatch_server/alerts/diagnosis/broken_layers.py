"""Which layers' numbers were not finite around the onset of an alert, since when, and what of them.

Legend: N rows, L layers.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from runwatch.nonfinite import ABSENT_32, ABSENT_64
from runwatch.number_texts import count, counted
from runwatch.rules.nonfinite_origin import broken_part, kind_of_elements
from runwatch.vocabulary import RunId
from runwatch_server.errors import NotFoundError
from runwatch_server.telemetry.left_out import with_left_out_layers
from runwatch_server.telemetry.reading import Reader, Window

NEAR_STEPS: Final = 32
"""What broke so few steps before an onset, or after it, has to do with it."""


@dataclass(frozen=True, slots=True)
class _Part:
    """What of a layer may break, and the stats that say so."""

    name: str
    series: str
    greatest: str
    """Itself NaN or infinite where an element is."""
    count: str = ""
    is_backward: bool = False
    """Of the layers of one step the last one is the nearest to where it began."""
    is_in_turns: bool = False
    """Not read at every step."""


GRADIENT: Final = "grad_norm"
_PARTS: Final = (
    _Part("parameter", "param_norm", "param_norm", is_in_turns=True),
    _Part("activation", "act_absmax", "act_absmax", "act_nonfinite"),
    _Part("gradient", GRADIENT, "grad_absmax", "nonfinite", is_backward=True),
)
"""In the order in which a step breaks them. The loss comes before the gradients."""


@dataclass(frozen=True, slots=True, eq=False)
class LayerNorms:
    """A stat of all layers, step by step, where what is not finite is not recorded."""

    names: Sequence[str]
    steps_N: NDArray[np.int64]
    values_NL: NDArray[np.float64]
    broken_NL: NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class BrokenLayers:
    """Layers of which the same broke at one step."""

    step: int
    series: str
    layer: str
    """Where it began, as far as that is known."""
    value: float
    """NaN or infinite."""
    words: str


@dataclass(frozen=True, slots=True)
class LayerReader:
    """Reads the layers of one run around an onset."""

    reader: Reader
    run_id: RunId
    window: Window

    async def read(self, stat: str) -> LayerNorms | None:
        """None where nothing was recorded, or not step by step."""
        try:
            names, series = await self.reader.all_layers(self.run_id, stat, self.window)
        except NotFoundError:
            return None
        if (values_NL := series.values) is None:
            return None
        series = await with_left_out_layers(
            self.reader, self.run_id, names, stat, self.window, series
        )
        broken_NL = series.buckets.nonfinite > 0
        finite_NL = np.where(broken_NL, ABSENT_64, values_NL)
        return LayerNorms(names, series.buckets.steps, finite_NL, broken_NL)

    async def broken(
        self, onset: int, first_layer: str | None, skipped: Sequence[int]
    ) -> list[BrokenLayers]:
        """What broke, in order. `first_layer` is where it began, if that is known. A loss scaler
        breaks the gradients of `skipped` steps on purpose.

        Norms of parameters are read in turns, so those that broke after the gradients say nothing
        of when.
        """
        breaks: dict[_Part, dict[int, list[str]]] = {}
        for part in _PARTS:
            norms = await self.read(part.series)
            excused = skipped if part.is_backward else ()
            breaks[part] = {} if norms is None else _by_step(norms, onset, excused)
        first_step = min((step for steps in breaks.values() for step in steps), default=onset)
        found: list[BrokenLayers] = []
        for part, steps in breaks.items():
            if not steps or (part.is_in_turns and min(steps) > first_step):
                continue
            is_origin = not found and (first_layer is not None or not part.is_backward)
            found += await self._told(part, steps, first_layer, is_origin=is_origin)
        return sorted(found, key=lambda one: one.step)

    async def _told(
        self,
        part: _Part,
        steps: Mapping[int, Sequence[str]],
        first_layer: str | None,
        *,
        is_origin: bool,
    ) -> list[BrokenLayers]:
        """Those of the first step, and all that followed."""
        (first, layers), *others = steps.items()
        layer = _nearest(part, layers, first_layer)
        kind, share = await self._what(part, layer, first)
        value = math.inf if kind == "infinite" else math.nan
        words = f"{part.name} of {counted(len(layers), 'layer')} at step {count(first)}"
        if is_origin:
            more = len(layers) - 1
            with_it = f", {counted(more, 'more layer')} with it" if more else ""
            words = f"{layer}: {part.name} {kind}{share} at step {count(first)}{with_it}"
        found = [BrokenLayers(first, part.series, layer, value, words)]
        if others and not part.is_in_turns:
            second, last = others[0][0], others[-1][0]
            num = sum(len(names) for _, names in others)
            when = "at" if second == last else "by"
            words = f"{part.name} of {counted(num, 'more layer')} {when} step {count(last)}"
            found.append(BrokenLayers(second, part.series, others[0][1][-1], math.nan, words))
        return found

    async def _what(self, part: _Part, layer: str, step: int) -> tuple[str, str]:
        """NaN or infinite, and how many elements."""
        sizes = await self.reader.layer_sizes(self.run_id)
        greatest, norm, num = [
            await self._value(layer, stat, step)
            for stat in (part.greatest, part.series, part.count)
        ]
        return kind_of_elements(greatest, norm), broken_part(num, sizes.get(layer), norm)

    async def _value(self, layer: str, stat: str, step: int) -> float:
        """Not recorded, where the run has no such stat."""
        try:
            series = await self.reader.layer_series(self.run_id, layer, stat, self.window)
        except NotFoundError:
            return float(ABSENT_32)
        at = np.flatnonzero(series.buckets.steps == step)
        if series.values is None or not at.size:
            return float(ABSENT_32)
        return float(np.float32(series.values[at[0], 0]))


def _by_step(norms: LayerNorms, onset: int, excused: Sequence[int]) -> dict[int, list[str]]:
    """The layers that broke near the onset, in the model's order, by the step at which each did
    first; not those that had been broken for long."""
    broken_NL = norms.broken_NL & ~np.isin(norms.steps_N, excused)[:, np.newaxis]
    found: dict[int, list[str]] = {}
    for column in np.flatnonzero(broken_NL.any(axis=0)).tolist():
        step = int(norms.steps_N[int(broken_NL[:, column].argmax())])
        if abs(step - onset) <= NEAR_STEPS:
            found.setdefault(step, []).append(norms.names[column])
    return dict(sorted(found.items()))


def _nearest(part: _Part, layers: Sequence[str], first_layer: str | None) -> str:
    if first_layer is not None and first_layer in layers:
        return first_layer
    return layers[-1] if part.is_backward else layers[0]
