"""Copies nested values with tensors to the host, and restores them in place.

`state_dict()` of a module or optimizer aliases the live tensors, so a snapshot made of it would
change with them. And `load_state_dict` gives an optimizer new tensors, while CUDA graphs, buckets
and compiled steps hold the old addresses. Hence these two classes.

Of a sharded tensor, each rank copies its own part, as a plain tensor.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Sequence
from typing import Final, cast

import torch
from torch import Tensor

from runwatch_hooks.actions.elements import (
    Elements,
    elements_of,
    is_same,
    may_be_rewritten,
    rewrite,
)
from runwatch_hooks.actions.own_copies import Living, OwnCopies
from runwatch_hooks.ranks.shards import local_of
from runwatch_hooks.statistics.readback import locks_pages

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
