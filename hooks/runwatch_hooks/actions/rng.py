"""The random generators that a training step draws from: process-wide ones, and the user's own."""

import random
from typing import Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray


@runtime_checkable
class HasState(Protocol):
    """Anything that can be put back: a scheduler, a sampler, a StatefulDataLoader, an EMA."""

    def state_dict(self) -> dict[str, object]: ...

    def load_state_dict(self, state_dict: dict[str, object], /) -> object: ...


Generator = torch.Generator | np.random.Generator | random.Random


class GeneratorState:
    """A generator with the manners of everything else that has state."""

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
    """Python, NumPy's global generator, torch on the CPU and on every CUDA device in use."""

    def state_dict(self) -> dict[str, object]:
        # CUDA's generators keep seed and offset on the host: reading them waits for nothing.
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
