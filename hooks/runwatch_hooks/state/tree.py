"""Trees of tensors and plain values: copied to the host, compared, and restored in place.

`state_dict()` of a module or optimizer aliases the live tensors, so a snapshot made of it would
change with them. And `load_state_dict` gives an optimizer new tensors, while CUDA graphs, buckets
and compiled steps hold the old addresses. Hence `HostCopies` and `InPlace`.

Of a sharded tensor, each rank copies its own part, as a plain tensor.
"""

import copy
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar, cast

import numpy as np
import torch
from torch import Tensor

from runwatch_hooks.ranks.shards import local_of
from runwatch_hooks.state.finite import FiniteFlag
from runwatch_hooks.state.outcomes import NotPlainError
from runwatch_hooks.statistics.readback import locks_pages

Elements = tuple[int, tuple[int, ...], tuple[int, ...]]
"""Address of the first element, shape, strides. Identifies a tensor's elements."""


def elements_of(tensor: Tensor) -> Elements:
    """The elements of a tensor. The address alone would not tell a view of a part from the
    whole."""
    part = local_of(tensor)
    if not is_plain(part) or not part.numel():
        return (id(tensor), (), ())  # empty tensors all have the address 0
    return (part.data_ptr(), tuple(part.shape), part.stride())


def rewrite(live: Tensor, saved: Tensor) -> None:
    """Copy saved values into a tensor. If it holds them already it is not written to, because its
    memory may be read-only, such as a mapped file that the program only reads."""
    repeated = _repeated(live)
    live, saved = _once(live, repeated), _once(saved, repeated)
    if live.device.type != "cpu" or not is_same(live, saved):
        live.copy_(saved, non_blocking=True)


def may_be_rewritten(live: Tensor, saved: Tensor | None = None) -> bool:
    """Whether torch allows writing to it, and its elements can hold the saved values."""
    repeated = _repeated(live)
    fits = saved is None or not repeated or _repeats(saved, repeated)
    return fits and not live.is_inference()


def is_plain(tensor: Tensor) -> bool:
    """Whether it is strided: not sparse, nested, quantised, or in another format."""
    return tensor.layout is torch.strided and not (tensor.is_nested or tensor.is_quantized)


def is_same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are equal to the bit (-0.0 is not 0.0). False if that cannot be seen
    without leaving the host's memory."""
    for tensor in (one, other):
        if not is_plain(tensor) or tensor.device.type != "cpu":
            return False
        if tensor.is_conj() or tensor.is_neg():
            return False
    return torch.equal(_bits(one), _bits(other))


def _bits(tensor: Tensor) -> Tensor:
    lying = tensor.detach().contiguous()
    return lying.as_strided((lying.numel(),), (1,)).view(torch.uint8)


def _repeated(tensor: Tensor) -> tuple[int, ...]:
    """The dimensions along which a single element is repeated, as by `expand`."""
    if not is_plain(tensor):
        return ()
    lying = enumerate(zip(tensor.shape, tensor.stride(), strict=True))
    return tuple(dim for dim, (size, stride) in lying if size > 1 and stride == 0)


def _once(tensor: Tensor, repeated: Sequence[int]) -> Tensor:
    for dim in repeated:
        tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _repeats(tensor: Tensor, repeated: Sequence[int]) -> bool:
    return is_same(_once(tensor, repeated).expand_as(tensor), tensor)


_Value = TypeVar("_Value")

Living = Callable[[], Iterable[object]]
"""Returns the objects of the training, which stay the same in every copy."""

_UNCHANGING: Final = (bool, int, float, complex, str, bytes, type(None))


class OwnCopies:
    """The deep copies of one capture or restore. An object that occurs twice is copied once.

    A scheduler may hold another scheduler, and that one its optimizer; an optimizer's group may
    name the module that it steps. If these were copied as well, a schedule would move the learning
    rate of a copy after a rollback.
    """

    def __init__(self, living: Living) -> None:
        self._living = living
        self._memo: dict[int, object] = {}

    def copy(self, value: _Value) -> _Value:
        if isinstance(value, _UNCHANGING):
            return value
        if not self._memo:  # only now, because most states hold no such value
            self._memo = {id(one): one for one in self._living()}
        return copy.deepcopy(value, self._memo)


Mapped = dict[object, object]

_COPIED_MAPPINGS: Final = (dict, OrderedDict, Counter)


class HostCopies:
    """The copies of one capture. A tensor that occurs twice is copied once, and stays shared."""

    def __init__(self, living: Living = tuple) -> None:
        """`living` are not copied, wherever they occur in other objects than containers."""
        self._own = OwnCopies(living)
        self._copies: dict[int, Tensor] = {}
        self._originals: list[Tensor] = []  # kept alive, so that no id is used twice
        self._reused: set[int] = set()
        self.devices: set[torch.device] = set()
        """Devices of the originals. Copies are complete once the work queued there is."""

    def copy(self, value: object, old: object = None) -> object:
        """An owned copy of a nested value, in the buffers of an older copy if they fit.

        Copies from an accelerator go to pinned memory asynchronously. They are complete once the
        work queued on the current stream is.
        """
        if isinstance(value, Tensor):
            return self._copy_tensor(value, old)
        if type(value) in _COPIED_MAPPINGS:
            mapping = cast(Mapped, value)
            old_mapping = cast(Mapped, old) if isinstance(old, dict) else {}
            entries = {key: self.copy(item, old_mapping.get(key)) for key, item in mapping.items()}
            return entries if type(value) is dict else type(mapping)(entries)
        if type(value) in (list, tuple):
            items = cast("list[object] | tuple[object, ...]", value)
            old_items = cast("list[object]", old) if isinstance(old, (list, tuple)) else []
            rest = [None] * (len(items) - len(old_items))
            copies = [self.copy(*pair) for pair in zip(items, [*old_items, *rest], strict=False)]
            return copies if isinstance(value, list) else tuple(copies)
        return self._own.copy(value)

    def _copy_tensor(self, tensor: Tensor, old: object) -> Tensor:
        known = self._copies.get(id(tensor))
        if known is not None:
            return known
        part = local_of(tensor)
        host = old if isinstance(old, Tensor) and self._fits(old, part) else _buffer_for(part)
        self._reused.add(id(host))
        host.copy_(part.detach(), non_blocking=True)
        self.devices.add(part.device)
        self._copies[id(tensor)] = host
        self._originals.append(tensor)
        return host

    def _fits(self, old: Tensor, tensor: Tensor) -> bool:
        return (
            id(old) not in self._reused
            and old.shape == tensor.shape
            and old.dtype == tensor.dtype
            and old.stride() == tensor.stride()
            and old.is_pinned() == locks_pages(tensor.device)
        )


class InPlace:
    """Restores one saved tree into the live one, and keeps the addresses of its tensors."""

    def __init__(self, living: Living = tuple) -> None:
        """`living` are not copied, as in `HostCopies`."""
        self._own = OwnCopies(living)
        self._placed: dict[int, Tensor] = {}
        self._written: dict[Elements, Tensor] = {}
        """Memory already written -> the saved tensor that was written to it."""

    def put(self, live: object, saved: object, device: torch.device) -> object:
        """The restored value, to be stored in place of `live`: the same object, rewritten, wherever
        possible.

        A new tensor is created on the device of the one it replaces, or else on `device`. The saved
        tree is not changed and not aliased.
        """
        if isinstance(saved, Tensor):
            return self._put_tensor(live, saved, device)
        if isinstance(saved, dict):
            return self._put_mapping(live, cast(Mapped, saved), device)
        if type(saved) in (list, tuple):
            return self._put_items(live, cast("list[object]", saved), device)
        return self._own.copy(saved)

    def _put_tensor(self, live: object, saved: Tensor, device: torch.device) -> Tensor:
        known = self._placed.get(id(saved))
        if known is not None:
            return known
        if isinstance(live, Tensor) and self._takes(live, saved):
            rewrite(local_of(live).detach(), saved)
            placed = live
        else:
            place = live.device if isinstance(live, Tensor) else device
            placed = saved.to(place, copy=True)
        self._placed[id(saved)] = placed
        self._written[elements_of(placed)] = saved
        return placed

    def _put_mapping(self, live: object, saved: Mapped, device: torch.device) -> object:
        if not isinstance(live, dict):
            live = type(saved)()
        mapping = cast(Mapped, live)
        for key in [key for key in mapping if key not in saved]:
            del mapping[key]  # created after the capture
        for key, item in saved.items():
            mapping[key] = self.put(mapping.get(key), item, device)
        return mapping

    def _put_items(self, live: object, saved: list[object], device: torch.device) -> object:
        live_items = cast("list[object]", live) if isinstance(live, (list, tuple)) else []
        rest = [None] * (len(saved) - len(live_items))
        pairs = zip([*live_items, *rest], saved, strict=False)
        placed = [self.put(live_item, item, device) for live_item, item in pairs]
        if isinstance(saved, tuple):
            return tuple(placed)
        if isinstance(live, list):
            cast("list[object]", live)[:] = placed
            return cast(object, live)
        return placed

    def _takes(self, live: Tensor, saved: Tensor) -> bool:
        part = local_of(live)
        if part.shape != saved.shape or part.dtype != saved.dtype:
            return False
        written = self._written.get(elements_of(live))
        # Two tensors at the capture may share memory by now: then both must have had equal values.
        if written is not None:
            return is_same(written, saved)
        return may_be_rewritten(part, saved)


def tensors_in(value: object) -> Iterator[Tensor]:
    """All tensors in nested mappings, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict):
        for item in cast(Mapped, value).values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in cast("Sequence[object]", value):
            yield from tensors_in(item)


def _buffer_for(tensor: Tensor) -> Tensor:
    with torch.inference_mode(mode=False):  # what is made there is written only there
        return torch.empty_like(
            tensor, device="cpu", requires_grad=False, pin_memory=locks_pages(tensor.device)
        ).detach()


# A checkpoint that needs pickle could run arbitrary code, and would not load once a user's class
# has moved. So values of any other type are refused when a checkpoint is written.

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


@dataclass(slots=True, eq=False)
class Captured:
    """A captured state, on the host. `tree` may be read only once `is_ready`."""

    tree: Mapped
    flag: FiniteFlag

    def is_ready(self) -> bool:
        return self.flag.is_ready()

    def wait(self) -> None:
        """Wait until the copies from accelerators have arrived."""
        self.flag.wait()

    @property
    def is_finite(self) -> bool:
        """Whether all parameters, buffers and optimizer states are finite. Valid once ready."""
        return self.flag.value()
