"""Which column of a frame's matrix is which: the layers and stats of a run, registered once."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import msgspec

from runwatch.errors import LayoutError

MAX_LAYERS: Final = 20_000
MAX_STATS: Final = 64
MAX_NAME_BYTES: Final = 256


class Layer(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A named parameter tensor."""

    name: str
    shape: tuple[int, ...] = ()
    dtype: str = ""
    aliases: tuple[str, ...] = ()
    """Other names of the same tensor, where weights are tied."""

    @property
    def num_elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True)
class Layout:
    """The columns of a frame: every stat of every layer, stat by stat.

    Column `s * len(layers) + l` holds stat `s` of layer `l`, so that one stat over all layers
    is contiguous: the shape in which rules and heat maps read.
    """

    layers: tuple[Layer, ...]
    stats: tuple[str, ...]

    def __post_init__(self) -> None:
        _check_names("layers", [layer.name for layer in self.layers], MAX_LAYERS)
        _check_names("stats", list(self.stats), MAX_STATS)
        for index, layer in enumerate(self.layers):
            if any(size < 0 for size in layer.shape):
                raise LayoutError(f"layers[{index}].shape: found {layer.shape}, wanted sizes >= 0")

    @property
    def num_columns(self) -> int:
        return len(self.layers) * len(self.stats)

    @cached_property
    def layer_names(self) -> tuple[str, ...]:
        return tuple(layer.name for layer in self.layers)

    @cached_property
    def output_sizes(self) -> tuple[int, ...]:
        """How many outputs the model may have: the last layer is mostly its head's, if that is not
        tied to another layer."""
        heads = [*self.layers[-1:], *(layer for layer in self.layers if layer.aliases)]
        return tuple(layer.shape[0] for layer in heads if layer.shape)

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """Elements of each layer whose shape is known: a module whose output is read has none."""
        return {layer.name: layer.num_elements for layer in self.layers if layer.shape}

    @cached_property
    def hash(self) -> str:
        """SHA-256, in hex, of the canonical JSON of `to_document`."""
        return hashlib.sha256(msgspec.json.encode(self.to_document(), order="sorted")).hexdigest()

    def to_document(self) -> dict[str, object]:
        return {
            "layers": [msgspec.to_builtins(layer) for layer in self.layers],
            "stats": self.stats,
        }

    @classmethod
    def from_document(cls, document: object) -> "Layout":
        """The layout of a parsed JSON document. Raises LayoutError."""
        try:
            parsed = msgspec.convert(document, _Document)
        except msgspec.ValidationError as error:
            raise LayoutError(f"layout: {error}") from error
        return cls(layers=parsed.layers, stats=parsed.stats)


class _Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    layers: tuple[Layer, ...]
    stats: tuple[str, ...]


def _check_names(place: str, names: list[str], limit: int) -> None:
    if len(names) > limit:
        raise LayoutError(f"{place}: found {len(names)}, wanted at most {limit}")
    for index, name in enumerate(names):
        if not 0 < len(name.encode()) <= MAX_NAME_BYTES:
            raise LayoutError(
                f"{place}[{index}]: found a name of {len(name.encode())} bytes, "
                f"wanted 1 to {MAX_NAME_BYTES}"
            )
    if len(set(names)) != len(names):
        twice = next(name for index, name in enumerate(names) if name in names[:index])
        raise LayoutError(f"{place}: found {twice!r} twice, wanted every name once")
