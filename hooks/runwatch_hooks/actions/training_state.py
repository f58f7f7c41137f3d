"""Everything that must go back when a run goes back, captured as owned copies and put in place."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.actions.errors import StateMismatchError
from runwatch_hooks.actions.finite import FiniteFlag, names_of_nonfinite
from runwatch_hooks.actions.loaders import LoaderPosition, draws_by_itself
from runwatch_hooks.actions.modules import (
    capture_module,
    check_module,
    module_tensors,
    restore_module,
)
from runwatch_hooks.actions.optimizers import (
    capture_optimizer,
    check_optimizer,
    optimizer_tensors,
    restore_optimizer,
)
from runwatch_hooks.actions.rng import Generator, GeneratorState, HasState, ProcessRng
from runwatch_hooks.actions.scalers import capture_scaler, restore_scaler
from runwatch_hooks.actions.trees import HostCopies, InPlace, Mapped
from runwatch_hooks.ranks.shards import local_of
from runwatch_hooks.seeing.known_optimizers import Roster, parameters_of


@dataclass(slots=True, eq=False)
class Captured:
    """The state after a step, on the host. Read `tree` only once `is_ready`."""

    tree: Mapped
    flag: FiniteFlag

    def is_ready(self) -> bool:
        return self.flag.is_ready()

    def wait(self) -> None:
        """Until copies that an accelerator still makes have arrived."""
        self.flag.wait()

    @property
    def is_finite(self) -> bool:
        """Whether every parameter, buffer and optimizer state is; asked once it is ready."""
        return self.flag.value()


class TrainingState:
    """The objects of a training program that hold its state.

    `extra` holds what else moves as the program trains: a StatefulDataLoader, a sampler, an EMA,
    random generators of its own. Python's, NumPy's and torch's global generators are always in.
    Of optimizers the program decides how long they live: what a capture holds of one that is gone
    is left alone.

    To be called at a step's boundary only: inside an optimizer's step the scheduler and the
    scaler still follow, and would move what was put back.
    """

    def __init__(
        self,
        modules: Mapping[str, nn.Module],
        optimizers: Sequence[Optimizer],
        schedulers: Sequence[HasState] = (),
        scalers: Sequence[HasState] = (),
        extra: Mapping[str, HasState | Generator] | None = None,
        own: Mapping[str, HasState] | None = None,
    ) -> None:
        """`own` is state of the hook's: it goes along, and a capture that has none of it fits."""
        self.modules = dict(modules)
        self._roster = Roster(optimizers)
        self._unused: WeakKeyDictionary[Optimizer, Mapped] = WeakKeyDictionary()
        """Later optimizers as they were before their first step: in no older capture."""
        self.scalers = tuple(scalers)
        self._objects: dict[str, HasState] = {
            f"scheduler{index}": item for index, item in enumerate(schedulers)
        }
        self._generators: dict[str, HasState] = {"rng": ProcessRng()}
        for name, item in (extra or {}).items():
            if isinstance(item, HasState):
                self._objects[f"extra.{name}"] = _seen_through(item)
            else:
                self._generators[f"extra.{name}"] = GeneratorState(item)
        self._own = {f"own.{name}": item for name, item in (own or {}).items()}
        self._objects |= self._own
        self._objects |= self._generators  # last, in this order they are put back
        # Masks are full of -inf by design: what is not finite before the first step is no fault.
        buffers = {f"{n}.{b}": t for n, m in self.modules.items() for b, t in m.named_buffers()}
        self._exempt = frozenset(names_of_nonfinite(buffers))

    @property
    def optimizers(self) -> dict[int, Optimizer]:
        """Those that the program still keeps, by the number of their coming."""
        return self._roster.living()

    def follow(self, optimizer: Optimizer) -> None:
        """Take in an optimizer that was made later, before its first step.

        One that takes another's groups over, as a wrapper does, is that other one.
        """
        if any(one.param_groups is optimizer.param_groups for one in self.optimizers.values()):
            return
        if not optimizer.state:  # else older captures do not fit: nobody knows where it began
            self._unused[optimizer] = capture_optimizer(optimizer, HostCopies(), {})
        self._roster.add(optimizer)

    def capture(self, into: Captured | None = None) -> Captured:
        """Owned copies, made in the buffers of an older capture where one is given."""
        old = {} if into is None else into.tree
        copies = HostCopies()
        tree: Mapped = {
            "modules": {
                name: capture_module(module, copies, _part(old, "modules", name))
                for name, module in self.modules.items()
            },
            "optimizers": {
                index: capture_optimizer(
                    item, copies, _part(old, "optimizers", index), self._own_parameters(item)
                )
                for index, item in self.optimizers.items()
            },
            "scalers": {
                index: capture_scaler(item, copies) for index, item in enumerate(self.scalers)
            },
            "objects": {
                name: copies.copy(item.state_dict(), _part(old, "objects", name))
                for name, item in self._objects.items()
            },
        }
        return Captured(tree, self._finite_flag(copies))

    def capture_bare(self, *, with_optimizers: bool) -> Captured:
        """Modules, scalers and perhaps optimizers alone, which may also be asked for inside an
        optimizer's step: to be looked at, not to be put back."""
        copies = HostCopies()
        tree: Mapped = {
            "modules": {name: capture_module(one, copies, {}) for name, one in self.modules.items()}
        }
        if with_optimizers:
            tree["optimizers"] = {
                index: capture_optimizer(item, copies, {})
                for index, item in self.optimizers.items()
            }
        tree["scalers"] = {
            index: capture_scaler(item, copies) for index, item in enumerate(self.scalers)
        }
        return Captured(tree, self._finite_flag(copies))

    def num_bytes(self) -> tuple[int, int]:
        """Of what lies here of the modules' tensors, and of the optimizers'."""
        modules = [one for item in self.modules.values() for one in module_tensors(item).values()]
        optimizers = [one for item in self.optimizers.values() for one in optimizer_tensors(item)]
        return _num_bytes(modules), _num_bytes(optimizers)

    def check(self, tree: Mapped) -> None:
        """Raises StateMismatchError where a capture's tree does not fit the living objects; what
        those of other people's classes refuse shows only as they are given it."""
        optimizers = self.optimizers
        self._check(self._completed(tree, optimizers), optimizers)

    def restore(self, tree: Mapped) -> None:
        """Puts a capture's tree back, in place; it can be put back any number of times.

        Raises StateMismatchError, with nothing changed, where it does not fit the living objects
        or one of them refuses its part.
        """
        optimizers = self.optimizers
        tree = self._completed(tree, optimizers)
        self._check(tree, optimizers)
        self._load_objects(cast(Mapped, tree["objects"]))
        in_place = InPlace()
        with torch.no_grad():
            for name, module in self.modules.items():
                restore_module(module, _part(tree, "modules", name), in_place)
            for index, optimizer in optimizers.items():
                restore_optimizer(optimizer, _part(tree, "optimizers", index), in_place)
            for index, scaler in enumerate(self.scalers):
                restore_scaler(scaler, _part(tree, "scalers", index), in_place)

    def _completed(self, tree: Mapped, optimizers: Mapping[int, Optimizer]) -> Mapped:
        """With the optimizers that came after it, as they were before their first step, without
        those that are gone; and with the hook's own state that it lacks as that is now, without
        what nobody has any more."""
        held = self._of_this_life(cast("dict[int, Mapped]", tree["optimizers"]), optimizers)
        unused = {
            index: self._unused[one] for index, one in optimizers.items() if one in self._unused
        }
        objects = {
            name: saved
            for name, saved in cast(Mapped, tree["objects"]).items()
            if name in self._own or not str(name).startswith("own.")
        }
        for name in self._own.keys() - objects.keys():
            objects[name] = self._own[name].state_dict()
        return {**tree, "optimizers": {**unused, **held}, "objects": objects}

    def _of_this_life(
        self, saved: Mapping[int, Mapped], optimizers: Mapping[int, Optimizer]
    ) -> dict[int, Mapped]:
        """Parts of optimizers by the numbers that they have now, without those that are gone.

        In another life of the run others may have come and gone before them: where it knew numbers
        that this one has not given, the first is the first of ours, and so on.
        """
        if all(map(self._roster.has_given, saved)):
            return {number: part for number, part in saved.items() if number in optimizers}
        if len(saved) != len(optimizers):
            return dict(saved)
        return dict(
            zip(sorted(optimizers), (saved[number] for number in sorted(saved)), strict=True)
        )

    def _check(self, tree: Mapped, optimizers: Mapping[int, Optimizer]) -> None:
        for kind, found in (
            ("modules", self.modules),
            ("optimizers", optimizers),
            ("scalers", range(len(self.scalers))),
            ("objects", self._objects),
        ):
            wanted = cast(Mapped, tree[kind])
            if set(found) != set(wanted):
                raise StateMismatchError(f"{kind}: found {list(found)}, wanted {list(wanted)}")
        for name, module in self.modules.items():
            check_module(name, module, _part(tree, "modules", name))
        for index, optimizer in optimizers.items():
            check_optimizer(f"optimizer {index}", optimizer, _part(tree, "optimizers", index))

    def _load_objects(self, saved: Mapped) -> None:
        """The only part that runs other people's code: where it fails, what it did is undone.

        The generators come last, since others may draw from them as they are put back.
        """
        generators = {name: _copied(one.state_dict()) for name, one in self._generators.items()}
        before: dict[str, dict[str, object]] = {}
        for name, item in self._objects.items():
            before[name] = generators[name] if name in generators else _copied(item.state_dict())
            try:
                item.load_state_dict(_copied(saved[name]))
            except Exception as error:
                for earlier, state in (before | generators).items():
                    self._objects[earlier].load_state_dict(state)
                raise StateMismatchError(f"{name}: refuses its state ({error})") from error

    def _finite_flag(self, copies: HostCopies) -> FiniteFlag:
        tensors = [
            tensor
            for module_name, module in self.modules.items()
            for name, tensor in module_tensors(module).items()
            if f"{module_name}.{name}" not in self._exempt
        ]
        for optimizer in self.optimizers.values():
            tensors.extend(optimizer_tensors(optimizer))
            tensors.extend(self._own_parameters(optimizer).values())
        return FiniteFlag(tensors, copies.devices)

    def _own_parameters(self, optimizer: Optimizer) -> dict[int, Tensor]:
        """Those that an optimizer steps and no module holds, by their place in its groups: flat
        buffers (DeepSpeed's), tensors that the program keeps by itself."""
        held = {id(one) for module in self.modules.values() for one in module.parameters()}
        stepped = enumerate(parameters_of(optimizer))
        return {index: one for index, one in stepped if id(one) not in held}


def _seen_through(item: HasState) -> HasState:
    return LoaderPosition(item) if draws_by_itself(item) else item


def _part(tree: Mapped, kind: str, name: object) -> Mapped:
    return cast(Mapped, cast(Mapped, tree.get(kind, {})).get(name, {}))


def _num_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in map(local_of, tensors))


def _copied(state: object) -> dict[str, object]:
    return cast("dict[str, object]", HostCopies().copy(state))
