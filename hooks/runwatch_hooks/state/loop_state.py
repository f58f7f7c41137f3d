"""The state of a loop's other objects: schedulers, loaders, random generators and scalers.

This is the only part of the training state that runs other people's code, which may refuse a state.
"""

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Protocol, cast, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.signals import is_of_a_signal
from runwatch_hooks.state.outcomes import StateMismatchError
from runwatch_hooks.state.tree import HostCopies, InPlace, Living, Mapped


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


_ITERATOR: Final = "_iterator"
_NEXT: Final = "next_iter_state"
_NOBODYS: Final = "_runwatch_attribute_of_nobody"


class LoaderPosition:
    """A StatefulDataLoader with its generators, as an object with state.

    The loader creates its iterator when it is asked for its state, and again after a state was
    loaded. A new iterator draws its seeds, from torch's global generator or its own. So asking for
    the position would change the random numbers of the training.
    """

    def __init__(self, loader: HasState) -> None:
        self._loader = loader

    def state_dict(self) -> dict[str, object]:
        """Position and generators. If the loader has no iterator yet, none is created: the position
        is the state that its first iterator will be created from."""
        loader: Any = self._loader
        has_begun = getattr(loader, _ITERATOR) is not None
        return {
            "has_begun": has_begun,
            "position": loader.state_dict() if has_begun else (getattr(loader, _NEXT) or {}),
            "generators": [one.get_state() for one in _generators_of(loader)],
        }

    def load_state_dict(self, state_dict: dict[str, object], /) -> None:
        """If there was an iterator at the capture, it is created here. What it draws is then drawn
        before the generators are restored, and the loop draws the same numbers as before."""
        self._loader.load_state_dict(cast("dict[str, object]", state_dict["position"]))
        if state_dict["has_begun"]:
            self._loader.state_dict()
        saved = cast("list[torch.Tensor]", state_dict["generators"])
        for generator, state in zip(_generators_of(self._loader), saved, strict=True):
            generator.set_state(state)


def draws_by_itself(item: object) -> bool:
    """Whether it is a loader that needs a `LoaderPosition`. It may be wrapped in an object that
    passes attributes on, but not in one that answers to every name."""
    return _has(item, _ITERATOR) and _has(item, _NEXT) and not _has(item, _NOBODYS)


def _has(item: object, name: str) -> bool:
    try:
        getattr(item, name)
    except Exception:  # noqa: BLE001  a `__getattr__` may raise anything, such as KeyError
        return False
    return True


def _generators_of(loader: object) -> list[torch.Generator]:
    """The loader's generators, given to it or made for its sampler. torchdata itself restores them
    to the beginning of the epoch and draws its order again, but not its seeds."""
    holders = (loader, getattr(loader, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    generators = [one for one in found if isinstance(one, torch.Generator)]
    return list({id(one): one for one in generators}.values())


log = OwnLog(__name__)


class LiveObjects:
    """These objects, by name. Python's, NumPy's and torch's global generators are always
    included."""

    def __init__(
        self,
        schedulers: Sequence[HasState],
        extra: Mapping[str, HasState | Generator],
        own: Mapping[str, HasState],
    ) -> None:
        """`own` is state of the hook itself. Captures without it can be restored as well."""
        self.given = (*schedulers, *extra.values())
        self._all: dict[str, HasState] = {
            f"scheduler{index}": item for index, item in enumerate(schedulers)
        }
        self._generators: dict[str, HasState] = {"rng": ProcessRng()}
        for name, item in extra.items():
            if isinstance(item, HasState):
                self._all[f"extra.{name}"] = _seen_through(item)
            else:
                self._generators[f"extra.{name}"] = GeneratorState(item)
        self._own = {f"own.{name}": item for name, item in own.items()}
        self._all |= self._own
        self._all |= self._generators  # last: restoring the others may draw from them

    def __iter__(self) -> Iterator[str]:
        return iter(self._all)

    def capture(self, copies: HostCopies, old: Mapped) -> Mapped:
        """Owned copies of their states."""
        return {
            name: copies.copy(item.state_dict(), old.get(name)) for name, item in self._all.items()
        }

    def completed(self, saved: Mapped) -> Mapped:
        """A capture with the hook's own current state where it has none, and without state of the
        hook that no longer exists."""
        known = {
            name: state
            for name, state in saved.items()
            if name in self._own or not str(name).startswith("own.")
        }
        missing = self._own.keys() - known.keys()
        return {**known, **{name: self._own[name].state_dict() for name in missing}}

    def load(self, saved: Mapped, *, is_agreed: bool, living: Living = tuple) -> list[str]:
        """Restore each object. If one refuses its state, all are put back as they were and
        StateMismatchError is raised. If `is_agreed`, only that one is put back, and the names of
        such objects are returned. States may refer to the `living`, which are not copied."""

        def copied(state: object) -> dict[str, object]:
            return cast("dict[str, object]", HostCopies(living).copy(state))

        generators = {name: copied(one.state_dict()) for name, one in self._generators.items()}
        before: dict[str, dict[str, object]] = {}
        refused: list[str] = []
        for name, item in self._all.items():
            before[name] = generators[name] if name in generators else copied(item.state_dict())
            try:
                item.load_state_dict(copied(saved[name]))
            except Exception as error:
                if is_of_a_signal(error):
                    raise
                if not is_agreed:
                    self._put_back(before | generators)
                    raise StateMismatchError(f"{name}: refuses its state ({error})") from error
                log.warning("%s refused its saved state, and is left unchanged: %s", name, error)
                self._put_back({name: before[name]})
                refused.append(name)
        return refused

    def _put_back(self, states: Mapping[str, dict[str, object]]) -> None:
        for name, state in states.items():
            try:
                self._all[name].load_state_dict(state)
            except Exception as error:  # noqa: BLE001  # the others must still be put back
                log.warning("%s refused even its own previous state: %s", name, error)


def _seen_through(item: HasState) -> HasState:
    return LoaderPosition(item) if draws_by_itself(item) else item


_TENSORS: Final = ("_scale", "_growth_tracker")
_OPTIONS: Final = (
    "_init_scale",
    "_init_growth_tracker",
    "_growth_factor",
    "_backoff_factor",
    "_growth_interval",
)


def capture_scaler(scaler: HasState, copies: HostCopies) -> Mapped:
    """An owned copy. From torch's scaler the tensors are copied directly, because its `state_dict`
    is a sync (`get_scale` calls `item()`) and its `load_state_dict` makes new tensors."""
    if isinstance(scaler, GradScaler):
        parts = {key: getattr(scaler, key, None) for key in (*_TENSORS, *_OPTIONS)}
        return cast(Mapped, copies.copy(parts))
    return cast(Mapped, copies.copy({"state": scaler.state_dict()}))


def restore_scaler(scaler: HasState, saved: Mapped, in_place: InPlace) -> None:
    if not isinstance(scaler, GradScaler):
        state = HostCopies().copy(saved["state"])
        scaler.load_state_dict(cast("dict[str, object]", state))
        return
    for key in _OPTIONS:
        if saved[key] is not None:
            setattr(scaler, key, saved[key])
    for key in _TENSORS:
        live = cast("Tensor | None", getattr(scaler, key, None))
        device = torch.device(getattr(scaler, "_device", "cpu"))
        setattr(scaler, key, in_place.put(live, saved[key], device))
    # What the scaler noted between `unscale_` and `update` belongs to a step that is undone.
    getattr(scaler, "_per_optimizer_states", {}).clear()
