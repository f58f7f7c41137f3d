"""Layer stats from arrays, without torch: numpy arrays, or anything numpy can convert.

No optimizer step is seen in such a program. So an update is the difference between the parameters
of one call and those of the next, on the same kind of sample as for torch tensors.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from runwatch.layouts import MAX_LAYERS, MAX_NAME_BYTES, Layer, Layout
from runwatch.nonfinite import ABSENT_32
from runwatch_hooks.measuring.exact_sums import exact_sums
from runwatch_hooks.measuring.spread import spread_stride
from runwatch_hooks.measuring.stats import (
    GRAD_ABSMAX,
    GRAD_NORM,
    NONFINITE,
    PARAM_NORM,
    STATS,
    UPDATE_RATIO,
    ZERO_FRAC,
)

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
