"""Remembers the batches of the last steps, and the states of torch's generators.

Batches are referenced, not copied, because a copy would cost time at every step. If the loop
changes one in place, the changed batch is kept, with a note.
"""

import dataclasses
import sys
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from runwatch_hooks.state.outcomes import NotPlainError
from runwatch_hooks.state.tree import Mapped, to_plain

MAX_STEPS: Final = 8
"""Steps remembered. On an accelerator a fault is known one to three steps later."""
MAX_BYTES: Final = 64 * 2**20
"""Limit on the remembered batches and generator states."""
NO_LOADER: Final = "the loop does not go over watch.batches(loader)"
TOO_LARGE: Final = f"more than {MAX_BYTES // 2**20} MiB"


@dataclass(slots=True, eq=False)
class StepMemory:
    """The batches of one step; several if gradients are accumulated."""

    rng: Mapped
    """States of torch's generators at the end of the step before."""
    batches: list[object] = field(default_factory=list[object])
    rngs: list[Mapped] = field(default_factory=list[Mapped])
    """States of torch's generators when each batch was given out."""
    versions: list[list[int]] = field(default_factory=list[list[int]])
    num_bytes: int = 0
    refusal: str = ""
    """Why none of its batches is kept; empty otherwise."""

    def add(self, batch: object) -> None:
        if self.refusal:
            return
        rng = torch_rng()
        try:
            self.num_bytes += num_bytes_of(batch) + num_bytes_of(rng)
        except NotPlainError as error:  # it could not be written, and its size is unknown
            self._refuse(str(error))
            return
        if self.num_bytes > MAX_BYTES:
            self._refuse(f"the step's batches have {TOO_LARGE}")
            return
        self.batches.append(batch)
        self.rngs.append(rng)
        self.versions.append([_version(one) for one in tensors_of(batch)])

    def _refuse(self, why: str) -> None:
        self.refusal, self.num_bytes = why, 0
        for held in (self.batches, self.rngs, self.versions):
            held.clear()

    @property
    def note(self) -> str:
        """The bundle's note on the batches; empty if there is nothing to say."""
        if self.refusal:
            return self.refusal
        if not self.batches:
            return NO_LOADER
        now = [[_version(one) for one in tensors_of(batch)] for batch in self.batches]
        return "" if now == self.versions else "the loop changed the batch in place; it is as after"


class BatchMemory:
    """The memory of the current step and some before it."""

    def __init__(self) -> None:
        self._steps: OrderedDict[int, StepMemory] = OrderedDict()

    def begin_step(self, step: int) -> None:
        """A step begins. After a rollback, what is remembered of this step and later ones is
        dropped."""
        for later in [one for one in self._steps if one >= step]:
            del self._steps[later]
        self._steps[step] = StepMemory(torch_rng())
        while len(self._steps) > MAX_STEPS or self._num_bytes > MAX_BYTES:
            self._steps.popitem(last=False)

    def add(self, batch: object) -> None:
        """A batch was given out for the current step."""
        if self._steps:
            next(reversed(self._steps.values())).add(batch)

    def find(self, step: int) -> StepMemory | None:
        return self._steps.get(step)

    def clear(self) -> None:
        self._steps.clear()

    @property
    def _num_bytes(self) -> int:
        return sum(one.num_bytes for one in self._steps.values())


def torch_rng() -> Mapped:
    """States of torch's global generators, from which layers draw. Python's and NumPy's are left
    out: reading them takes 0.4 ms, forty times as long."""
    cuda: list[Tensor] = []
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        cuda = torch.cuda.get_rng_state_all()
    return {"torch": torch.get_rng_state(), "cuda": cuda}


def tensors_of(value: object) -> Iterator[Tensor]:
    """All tensors in a nested value, in order."""
    return (leaf for leaf, _ in _leaves(value, "") if isinstance(leaf, Tensor))


def num_bytes_of(batch: object) -> int:
    """The size of a batch's contents. Raises NotPlainError if they cannot be written, even after
    `plain_batch`."""
    return sum(_num_bytes(leaf, place) for leaf, place in _leaves(batch, "batch"))


def _leaves(value: object, place: str) -> Iterator[tuple[object, str]]:
    """The innermost values of a nested value with their paths, in order."""
    items = _items(value)
    if items is None:
        yield value, place
        return
    for key, item in items:
        yield from _leaves(item, f"{place}.{key}")


def _items(value: object) -> Iterable[tuple[object, object]] | None:
    """The items of a container; None for any other value."""
    if isinstance(value, Mapping):
        return cast("Mapping[object, object]", value).items()
    if isinstance(value, (list, tuple, set)):
        return enumerate(cast("list[object]", value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return ((one.name, getattr(value, one.name)) for one in dataclasses.fields(value))
    return None


def _num_bytes(leaf: object, place: str) -> int:
    if isinstance(leaf, Tensor):
        return leaf.numel() * leaf.element_size()
    if isinstance(leaf, np.ndarray):
        return _bytes_of_array(cast("NDArray[Any]", leaf), place)
    to_plain(leaf, place)
    return sys.getsizeof(leaf)


def _bytes_of_array(array: NDArray[Any], place: str) -> int:
    if array.dtype.kind not in "biufc":  # arrays of text or objects: `to_plain` raises
        to_plain(array, place)
    return array.nbytes


def plain_batch(value: object) -> object:
    """A batch as dicts, lists and tuples. Similar types (Hugging Face's BatchEncoding, named
    tuples, dataclasses) are converted, because their classes cannot be loaded safely."""
    if isinstance(value, Mapping):
        mapping = cast("Mapping[object, object]", value)
        return {key: plain_batch(item) for key, item in mapping.items()}
    if isinstance(value, (list, tuple)):
        items = [plain_batch(item) for item in cast("list[object]", value)]
        return items if isinstance(value, list) else tuple(items)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {one.name: plain_batch(getattr(value, one.name)) for one in fields}
    return value


def _version(tensor: Tensor) -> int:
    """Torch's count of writes to a tensor; 0 for one made in inference mode, which has none."""
    return 0 if tensor.is_inference() else tensor._version  # pyright: ignore[reportPrivateUsage]
