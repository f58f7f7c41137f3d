"""Stats of layers from arrays, without torch, and a run's totals of the stats of its layers.

No optimizer step is seen in such a program. So an update is the difference between the parameters
of one call and those of the next, on the same kind of sample as for torch tensors.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import MAX_LAYERS, MAX_NAME_BYTES, Layer, Layout
from runwatch.nonfinite import ABSENT_32, is_absent
from runwatch.series import GRADIENT_STATS, PARAMETER_STATS, STAT_SPECS
from runwatch_hooks.statistics.spread import spread_stride

STATS: Final = (*GRADIENT_STATS, *PARAMETER_STATS)
GRAD_NORM: Final = STATS.index("grad_norm")
GRAD_ABSMAX: Final = STATS.index("grad_absmax")
NONFINITE: Final = STATS.index("nonfinite")
ZERO_FRAC: Final = STATS.index("zero_frac")
PARAM_NORM: Final = STATS.index("param_norm")
UPDATE_RATIO: Final = STATS.index("update_ratio")
NUM_SCALED: Final = sum(STAT_SPECS[name].is_scaled for name in STATS)
"""Of the first so many, the loss scale has to be divided out."""


class RunTotals:
    """Combines layers, step by step; remembers norms, which are not read at every step."""

    def __init__(self) -> None:
        self._norms = np.empty(0, np.float32)
        self._norms_layout: Layout | None = None

    def over(
        self, layout: Layout, stats: NDArray[np.float32], *, weights: bool = True
    ) -> dict[str, float]:
        """From stats (S, T): `nonfinite` and `layers_with_grad`; `grad_norm` if there are
        gradients; `param_norm` if `weights` were read."""
        are_recorded = ~is_absent(stats)
        num_nonfinite = _sum(stats[NONFINITE], are_recorded[NONFINITE])
        num_with_grad = np.count_nonzero(are_recorded[GRAD_NORM])
        metrics = {"nonfinite": num_nonfinite, "layers_with_grad": float(num_with_grad)}
        if weights:
            metrics["param_norm"] = self._param_norm(layout, stats, are_recorded)
        if num_with_grad:
            metrics["grad_norm"] = _grad_norm(stats, are_recorded, num_nonfinite)
        return metrics

    def _param_norm(
        self, layout: Layout, stats: NDArray[np.float32], are_recorded: NDArray[np.bool_]
    ) -> float:
        """The norm over the latest known norm of each layer, none older than 8 readings."""
        if layout is not self._norms_layout:
            self._norms_layout = layout
            self._norms = np.zeros(len(layout.layers), np.float32)
        np.copyto(self._norms, stats[PARAM_NORM], where=are_recorded[PARAM_NORM])
        return math.sqrt(float(np.square(self._norms, dtype=np.float64).sum()))


def over_parts(stats: NDArray[np.float32]) -> dict[str, float]:
    """Metrics of the shards on one rank, under names of their own because they are not the
    run's."""
    are_recorded = ~is_absent(stats)
    num_nonfinite = _sum(stats[NONFINITE], are_recorded[NONFINITE])
    metrics = {"local_nonfinite": num_nonfinite}
    if are_recorded[GRAD_NORM].any():
        metrics["local_grad_norm"] = _grad_norm(stats, are_recorded, num_nonfinite)
    return metrics


def _grad_norm(
    stats: NDArray[np.float32], are_recorded: NDArray[np.bool_], num_nonfinite: float
) -> float:
    # On a CPU, a layer's norm is over its finite elements. If there are others, the run's norm is
    # NaN, because they are not counted as NaN or infinite. On an accelerator, the layers' norms
    # are NaN or infinite themselves, and so is the run's.
    squares = np.square(stats[GRAD_NORM], dtype=np.float64)
    norm = math.sqrt(_sum(squares, are_recorded[GRAD_NORM]))
    is_hidden = num_nonfinite != 0.0 and math.isfinite(norm)
    return math.nan if is_hidden else norm


def _sum(
    values: NDArray[np.float32] | NDArray[np.float64], are_recorded: NDArray[np.bool_]
) -> float:
    """The sum of recorded values; NaN if one of them is."""
    return float(values[are_recorded].sum(dtype=np.float64))


Arrays = Any
"""Arrays by layer name, or in nested mappings and lists like JAX's parameters. A single array is
one layer."""

_CHUNK: Final = 65_536
_NUM_SAMPLED: Final = 1024
_ALL_UP_TO: Final = 4096


class ArrayStats:
    """The layers of one run, step by step. Keeps a sample of each parameter of at most 32 KiB, or
    64 KiB if it is complex."""

    def __init__(self) -> None:
        self._layout: Layout | None = None
        self._samples: dict[str, NDArray[np.float64 | np.complex128]] = {}
        self._norms: dict[str, float] = {}

    def read(
        self,
        gradients: Arrays | None,
        parameters: Arrays | None,
        known: Mapping[str, Mapping[str, float]],
    ) -> tuple[Layout, NDArray[np.float32]]:
        """The layout, and the stats (S, T). `known` are stats computed by the program.

        Raises TypeError or ValueError if something is not an array of numbers.
        """
        grads, params = _flat(gradients), _flat(parameters)
        names = list(dict.fromkeys([*params, *grads, *known]))[:MAX_LAYERS]
        layers = tuple(_layer(name, params.get(name, grads.get(name))) for name in names)
        if self._layout is None or self._layout.layers != layers:
            self._layout = Layout(layers=layers, stats=STATS)
        stats = np.full((len(STATS), len(names)), ABSENT_32, np.float32)
        with np.errstate(all="ignore"):  # values beyond float32 become infinite
            for place, name in enumerate(names):
                if name in grads:
                    _read_gradient(grads[name], stats[:, place])
                if name in params:
                    self._read_parameter(name, params[name], stats[:, place])
                for stat, value in known.get(name, {}).items():
                    stats[STATS.index(stat), place] = value
        return self._layout, stats

    def _read_parameter(
        self, name: str, parameter: NDArray[Any], column: NDArray[np.float32]
    ) -> None:
        column[PARAM_NORM] = norm = math.sqrt(_squares(parameter))
        before, was = self._samples.get(name), self._norms.get(name, 0.0)
        sample = self._samples[name] = _sample(parameter)
        self._norms[name] = norm
        if before is not None and before.shape == sample.shape and sample.size and was != 0.0:
            mean = float(np.mean(np.square(np.abs(sample - before))))
            column[UPDATE_RATIO] = math.sqrt(mean * parameter.size) / was


def _read_gradient(gradient: NDArray[Any], column: NDArray[np.float32]) -> None:
    squares, greatest, num_nonfinite, num_zeros = exact_sums(_chunks(gradient))
    column[GRAD_NORM] = math.sqrt(squares)
    column[GRAD_ABSMAX] = greatest
    column[NONFINITE] = num_nonfinite
    num_read = gradient.size * (2 if np.iscomplexobj(gradient) else 1)
    column[ZERO_FRAC] = num_zeros / max(num_read, 1)


def _squares(array: NDArray[Any]) -> float:
    """Sum of squares of all elements; non-finite if one of them is."""
    return float(sum(float(np.dot(chunk, chunk)) for chunk in _chunks(array)))


def _chunks(array: NDArray[Any]) -> Iterator[NDArray[np.float64]]:
    flat = array.reshape(-1)
    if np.iscomplexobj(flat):  # as pairs of real numbers
        flat = flat.astype(np.complex128).view(np.float64)
    for start in range(0, flat.size, _CHUNK):
        yield flat[start : start + _CHUNK].astype(np.float64)


def _sample(array: NDArray[Any]) -> NDArray[np.float64 | np.complex128]:
    """A copy of fixed, evenly spaced elements."""
    flat = array.reshape(-1)
    if flat.size > _ALL_UP_TO:
        flat = flat[:: spread_stride(array.shape, _NUM_SAMPLED)]
    return flat.astype(np.complex128 if np.iscomplexobj(flat) else np.float64)


def _flat(arrays: object, name: str = "") -> dict[str, NDArray[Any]]:
    """All arrays, each named by the keys that lead to it, joined with dots."""
    if arrays is None:
        return {}
    if not isinstance(arrays, (Mapping, list, tuple)):
        return {_short(name): _array(_short(name), arrays)}
    found: dict[str, NDArray[Any]] = {}
    for key, value in _items(cast(object, arrays)):
        found |= _flat(value, f"{name}.{key}" if name else str(key))
    return found


def _items(arrays: object) -> Iterable[tuple[object, object]]:
    if isinstance(arrays, Mapping):
        return cast("Mapping[object, object]", arrays).items()
    return enumerate(cast("Sequence[object]", arrays))


def _array(name: str, value: object) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype == object or array.dtype.kind in "USO":
        raise TypeError(f"{name}: found {type(value).__name__}, wanted an array of numbers")
    return array


def _short(name: str) -> str:
    """A name cut to the protocol's limit. Its end is kept, which says more than its beginning."""
    return (
        name.replace("\0", "?").encode()[-(MAX_NAME_BYTES - 8) :].decode(errors="ignore") or "layer"
    )


def _layer(name: str, array: NDArray[Any] | None) -> Layer:
    if array is None:
        return Layer(name)
    return Layer(name=name, shape=tuple(array.shape), dtype=str(array.dtype))


def exact_sums(chunks: Iterable[NDArray[np.float64]]) -> tuple[float, float, int, int]:
    """Sum of squares of the finite elements, the greatest magnitude (NaN or infinite if one is),
    the number of non-finite elements, and the number of zeros. `chunks` are one-dimensional."""
    squares, greatest, num_nonfinite, num_zeros = 0.0, 0.0, 0, 0
    for chunk in chunks:
        finite = chunk[np.isfinite(chunk)]
        squares += float(np.dot(finite, finite))
        greatest = float(np.maximum(greatest, np.abs(chunk).max(initial=0.0)))  # keeps a NaN
        num_nonfinite += chunk.size - finite.size
        num_zeros += finite.size - int(np.count_nonzero(finite))
    return squares, greatest, num_nonfinite, num_zeros
