"""Converts nested values to the few types that `torch.load(weights_only=True)` reads.

A checkpoint that needs pickle could run arbitrary code, and would not load once a user's class has
moved. So values of any other type are refused when a checkpoint is written.
"""

from collections import Counter, OrderedDict
from typing import Final, cast

import numpy as np
import torch
from torch import Tensor

from runwatch_hooks.actions.errors import NotPlainError
from runwatch_hooks.actions.trees import Mapped

_ARRAY: Final = "__runwatch_array__"
_NUMBER: Final = "__runwatch_number__"
_SCALARS: Final = (bool, int, float, complex, str, bytes, type(None), torch.Size, torch.dtype)


def to_plain(value: object, place: str = "state") -> object:
    """The value in plain types; tensors are kept. Raises NotPlainError, which names the place."""
    if type(value) in _SCALARS or isinstance(value, (Tensor, torch.device)):
        return value.detach() if isinstance(value, Tensor) else value
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain_array(cast("np.ndarray[tuple[int, ...], np.dtype[np.generic]]", value), place)
    if type(value) in (dict, OrderedDict, Counter):
        mapping = cast(Mapped, value)
        plain = {to_plain(k, place): to_plain(v, f"{place}.{k}") for k, v in mapping.items()}
        return plain if type(value) is dict else type(mapping)(plain)
    if type(value) in (list, tuple, set):
        items = cast("list[object]", value)
        plain_items = [to_plain(item, f"{place}[{i}]") for i, item in enumerate(items)]
        return type(items)(plain_items)
    raise NotPlainError(
        f"{place}: found a {type(value).__module__}.{type(value).__qualname__}, wanted tensors, "
        "arrays, numbers, text, or lists and dicts of them"
    )


def is_plain_value(value: object) -> bool:
    """Whether `to_plain` accepts it."""
    try:
        to_plain(value)
    except NotPlainError:
        return False
    return True


def from_plain(value: object) -> object:
    """The inverse of `to_plain`."""
    if type(value) in (dict, OrderedDict, Counter):
        mapping = cast(Mapped, value)
        if mapping.keys() == {_ARRAY}:
            return cast(Tensor, mapping[_ARRAY]).numpy()
        if mapping.keys() == {_NUMBER}:
            return cast(Tensor, mapping[_NUMBER]).numpy()[()]
        entries = {from_plain(key): from_plain(item) for key, item in mapping.items()}
        return entries if type(value) is dict else type(mapping)(entries)
    if type(value) in (list, tuple, set):
        items = cast("list[object]", value)
        return type(items)(from_plain(item) for item in items)
    return value


def _plain_array(
    array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]", place: str
) -> dict[str, Tensor]:
    try:
        tensor = torch.from_numpy(np.array(array))  # pyright: ignore[reportUnknownMemberType]
        # a copy that owns its memory, also of a scalar
    except TypeError as error:
        raise NotPlainError(f"{place}: found an array of {array.dtype}, wanted numbers") from error
    return {_NUMBER if isinstance(array, np.generic) else _ARRAY: tensor}
