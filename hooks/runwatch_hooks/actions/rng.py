"""State of random generators: the process-wide ones, and the user's own."""

import random
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray


@runtime_checkable
class HasState(Protocol):
    """An object that can be restored: a scheduler, a sampler, a StatefulDataLoader, an EMA."""

    def state_dict(self) -> dict[str, object]: ...

    def load_state_dict(self, state_dict: dict[str, object], /) -> object: ...


Generator = torch.Generator | np.random.Generator | random.Random


class GeneratorState:
    """A generator with `state_dict` and `load_state_dict`."""

    def __init__(self, generator: Generator) -> None:
        self._generator = generator

    def state_dict(self) -> dict[str, object]:
        generator = self._generator
        if isinstance(generator, torch.Generator):
            return {"torch": generator.get_state()}
        if isinstance(generator, np.random.Generator):
            return {"numpy": dict(generator.bit_generator.state)}
        return {"python": generator.getstate()}

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        generator = self._generator
        if isinstance(generator, torch.Generator):
            generator.set_state(cast(torch.Tensor, state_dict["torch"]))
        elif isinstance(generator, np.random.Generator):
            generator.bit_generator.state = cast("dict[str, object]", state_dict["numpy"])
        else:
            generator.setstate(cast("tuple[object, ...]", state_dict["python"]))


class ProcessRng:
    """The global generators of Python, NumPy, and torch on the CPU and all CUDA devices."""

    def state_dict(self) -> dict[str, object]:
        # CUDA generators keep seed and offset on the host, so reading them is no sync.
        cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]
        return {
            "python": random.getstate(),
            "numpy": np.random.get_state(legacy=False),
            "torch": torch.get_rng_state(),
            "cuda": cuda,
        }

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        random.setstate(cast("tuple[object, ...]", state_dict["python"]))
        np.random.set_state(cast("dict[str, NDArray[np.uint32]]", state_dict["numpy"]))
        torch.set_rng_state(cast(torch.Tensor, state_dict["torch"]))
        cuda = cast("list[torch.Tensor]", state_dict["cuda"])
        if cuda and torch.cuda.device_count() == len(cuda):
            torch.cuda.set_rng_state_all(cuda)
