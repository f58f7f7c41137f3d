"""The whole training state: captured as owned copies, and restored in place."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, cast
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks.shards import local_of
from runwatch_hooks.signals import is_interrupt
from runwatch_hooks.state.finite import Exemptions, FiniteFlag
from runwatch_hooks.state.loop_state import (
    Generator,
    HasState,
    LiveObjects,
    capture_scaler,
    restore_scaler,
)
from runwatch_hooks.state.optimizers import (
    capture_optimizer,
    check_optimizer,
    living_in,
    optimizer_tensors,
    restore_optimizer,
    wrapped_by,
)
from runwatch_hooks.state.outcomes import StateMismatchError
from runwatch_hooks.state.tree import (
    Captured,
    HostCopies,
    InPlace,
    Mapped,
    is_plain,
    may_be_rewritten,
)
from runwatch_hooks.step.layers import Roster, optimizer_parameters

log = OwnLog(__name__)


def capture_module(module: nn.Module, copies: HostCopies, old: Mapped) -> Mapped:
    """An owned copy, including non-persistent buffers, which `state_dict` leaves out."""
    parts: Mapped = {
        "parameters": dict(module.named_parameters()),
        "buffers": {name: home._buffers[key] for name, home, key in _buffers(module)},  # pyright: ignore[reportPrivateUsage]
        "extra": {name: part.get_extra_state() for name, part in _extra(module)},
    }
    captured = {key: copies.copy(part, old.get(key)) for key, part in parts.items()}
    captured["with_grad"] = [n for n, p in module.named_parameters() if p.grad is not None]
    captured["with_plain_grad"] = [n for n, p in module.named_parameters() if _is_dense(p.grad)]
    captured["trained"] = [n for n, p in module.named_parameters() if p.requires_grad]
    return captured


def check_module(place: str, module: nn.Module, saved: Mapped) -> None:
    """Raises StateMismatchError unless the parameters match the capture and are writable."""
    found = {name: _form(p) for name, p in module.named_parameters()}
    wanted = {name: _form(p) for name, p in cast("dict[str, Tensor]", saved["parameters"]).items()}
    if found != wanted:
        names = [name for name in found | wanted if found.get(name) != wanted.get(name)]
        raise StateMismatchError(
            f"{place}.{names[0]}: found {found.get(names[0], 'no such parameter')}, "
            f"wanted {wanted.get(names[0], 'no such parameter')}"
        )
    for name, parameter in module.named_parameters():
        if not may_be_rewritten(local_of(parameter)):
            raise StateMismatchError(
                f"{place}.{name}: found an inference tensor, which torch does not let anyone write"
            )


def restore_module(
    module: nn.Module, saved: Mapped, in_place: InPlace, *, is_resumed: bool = False
) -> None:
    """Restore a capture in place. `requires_grad` of each parameter is restored too, unless
    `is_resumed`: a restarted program decides that itself."""
    parameters = cast("dict[str, Tensor]", saved["parameters"])
    for name, parameter in module.named_parameters():
        in_place.put(parameter, parameters[name], parameter.device)
    buffers = cast("dict[str, Tensor | None]", saved["buffers"])
    device = next((p.device for p in module.parameters()), torch.device("cpu"))
    for name, home, key in _buffers(module):
        if name not in buffers:  # possibly a cache that its module relies on by now
            log.warning(
                "buffer %s did not exist in the restored state, and is left unchanged", name
            )
        else:
            live = home._buffers[key]  # pyright: ignore[reportPrivateUsage]
            home._buffers[key] = cast("Tensor | None", in_place.put(live, buffers[name], device))  # pyright: ignore[reportPrivateUsage]
    extra = cast(Mapped, saved["extra"])
    for name, part in _extra(module):
        if name in extra:
            part.set_extra_state(HostCopies().copy(extra[name]))
    # In a new process nobody has had a gradient yet, and older captures do not say of what kind.
    made_anew = () if is_resumed else cast("list[str]", saved.get("with_plain_grad", []))
    with_grad = cast("list[str]", saved["with_grad"])
    _clear_gradients(module, frozenset(with_grad), frozenset(made_anew))
    if not is_resumed and "trained" in saved:  # older captures have none
        _freeze_again(module, frozenset(cast("list[str]", saved["trained"])))


def module_tensors(module: nn.Module) -> dict[str, Tensor]:
    """The tensors that must be finite, by name: parameters and buffers."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def _is_dense(grad: Tensor | None) -> bool:
    return type(grad) is Tensor and is_plain(grad)


def _clear_gradients(
    module: nn.Module, with_grad: frozenset[str], made_anew: frozenset[str]
) -> None:
    """Set gradients to None where there was none at the capture, and to zero elsewhere. Those that
    are gone since, as after an error that the program has caught, are `made_anew`.

    They are zeroed in place, because DDP buckets and CUDA graphs hold their addresses. Optimizers
    skip parameters without a gradient, but not those with a gradient of zero (weight decay,
    momentum): an expert that was idle at the capture must be idle again.
    """
    for name, parameter in module.named_parameters():
        if name not in with_grad:
            parameter.grad = None
        elif parameter.grad is not None:
            local_of(parameter.grad).detach().zero_()
        elif name in made_anew:
            parameter.grad = torch.zeros_like(parameter)


def _freeze_again(module: nn.Module, trained: frozenset[str]) -> None:
    """Restore `requires_grad`. A layer that the program unfroze or froze after the captured step
    must not be trained, or stay frozen, before that step is reached again."""
    changed = {
        name: parameter
        for name, parameter in module.named_parameters()
        if parameter.is_leaf and parameter.requires_grad != (name in trained)
    }
    for name, parameter in changed.items():
        parameter.requires_grad_(name in trained)
    if changed:  # a loop that counts by itself may not repeat the freezing or unfreezing
        log.warning(
            "requires_grad was restored by the rollback: %d parameters, the first of them %s",
            len(changed),
            next(iter(changed)),
        )


def _form(tensor: Tensor) -> str:
    part = local_of(tensor)
    return f"{part.dtype} {list(part.shape)}"


def _buffers(module: nn.Module) -> list[tuple[str, nn.Module, str]]:
    """(full name, its module, its key) of every buffer, including those that are None."""
    return [
        (f"{prefix}.{key}" if prefix else key, part, key)
        for prefix, part in _parts(module)
        for key in part._buffers  # pyright: ignore[reportPrivateUsage]
    ]


def _extra(module: nn.Module) -> list[tuple[str, nn.Module]]:
    """Modules with extra state, such as the scales of FP8 layers."""
    return [
        (name, part)
        for name, part in _parts(module)
        if type(part).get_extra_state is not nn.Module.get_extra_state
    ]


def _parts(module: nn.Module) -> list[tuple[str, nn.Module]]:
    return list(cast("Iterator[tuple[str, nn.Module]]", module.named_modules()))


_MOST_ATTEMPTS: Final = 10
"""To restore a state, however often Ctrl-C is pressed. An object of the program's that raises
SystemExit each time must not hold the training here."""


@dataclass(frozen=True, slots=True, eq=False)
class Restored:
    """A state that was restored."""

    refused: list[str]
    """Names of objects that refused their state, and are left as they were."""
    interrupt: BaseException | None
    """What interrupted it, such as Ctrl-C, to be raised once the rollback is recorded."""


class TrainingState:
    """The objects of a training program that hold its state.

    `extra` holds other stateful objects: a StatefulDataLoader, a sampler, an EMA, the program's own
    random generators. Python's, NumPy's and torch's global generators are always included.
    Optimizers are held weakly: a capture's part of one that the program has dropped is ignored.

    Capture and restore only at a boundary between steps. Inside an optimizer's step, the scheduler
    and the scaler have yet to step, and would change what was restored.
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
        """`own` is state of the hook itself."""
        self.modules = dict(modules)
        self._roster = Roster(optimizers)
        self._unused: WeakKeyDictionary[Optimizer, Mapped] = WeakKeyDictionary()
        """Later optimizers -> their state before their first step, for captures older than them."""
        self.scalers = tuple(scalers)
        self._objects = LiveObjects(schedulers, extra or {}, own or {})
        self._exemptions = Exemptions()
        self._exemptions.look_at(self._module_tensors())

    @property
    def optimizers(self) -> dict[int, Optimizer]:
        """The optimizers that the program still holds, numbered in the order they were added."""
        return self._roster.living()

    def follow(self, optimizer: Optimizer) -> None:
        """Include an optimizer that was created later, before its first step.

        One that shares another's groups, as a wrapper does, counts as that other one. One that
        another wraps is included with it.
        """
        for one in self.optimizers.values():
            is_wrapped = any(inner is optimizer for inner in wrapped_by(one).values())
            if is_wrapped or one.param_groups is optimizer.param_groups:
                return
        if not optimizer.state:  # otherwise its beginning is unknown: older captures do not fit
            self._unused[optimizer] = capture_optimizer(optimizer, self._copies(), {})
        self._roster.add(optimizer)

    def capture(self, into: Captured | None = None) -> Captured:
        """Capture the state, in the buffers of an older capture if one is given."""
        old = {} if into is None else into.tree
        self._exemptions.look_at(self._module_tensors())
        names = self._names()
        copies = self._copies()
        tree: Mapped = {
            "modules": {
                name: capture_module(module, copies, _part(old, "modules", name))
                for name, module in self.modules.items()
            },
            "optimizers": {
                index: capture_optimizer(
                    item,
                    copies,
                    _part(old, "optimizers", index),
                    self._own_parameters(item),
                    names,
                )
                for index, item in self.optimizers.items()
            },
            "scalers": {
                index: capture_scaler(item, copies) for index, item in enumerate(self.scalers)
            },
            "objects": self._objects.capture(copies, cast(Mapped, old.get("objects", {}))),
        }
        return Captured(tree, self._finite_flag(copies))

    def capture_bare(self, *, with_optimizers: bool) -> Captured:
        """Capture only modules, scalers and, if asked, optimizers. May be called inside an
        optimizer's step: the result is for inspection, and cannot be restored."""
        copies = self._copies()
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
        """Bytes on this rank of the modules' tensors, and of the optimizers'."""
        modules = [one for item in self.modules.values() for one in module_tensors(item).values()]
        optimizers = [one for item in self.optimizers.values() for one in optimizer_tensors(item)]
        return _num_bytes(modules), _num_bytes(optimizers)

    def check(self, tree: Mapped) -> None:
        """Raises StateMismatchError if a capture does not fit the live objects. Whether objects
        with a `load_state_dict` of their own accept their state shows only when it is loaded."""
        optimizers = self.optimizers
        self._check(self._completed(tree, optimizers), optimizers)

    def restore(
        self, tree: Mapped, *, is_agreed: bool = False, is_resumed: bool = False
    ) -> list[str]:
        """Restore a capture in place. It can be restored any number of times.

        Raises StateMismatchError, with nothing changed, if it does not fit the live objects or one
        of them refuses its state. With `is_agreed`, the other ranks restore theirs whatever happens
        here; an object that refuses is then left as it is, and its name is returned, because
        weights restored on some ranks only would diverge for good. `is_resumed` says that the
        capture is from an earlier process. An interrupt, such as Ctrl-C, is raised when all is
        restored.
        """
        restored = self.restore_whole(tree, is_agreed=is_agreed, is_resumed=is_resumed)
        if restored.interrupt is not None:
            raise restored.interrupt
        return restored.refused

    def restore_whole(
        self, tree: Mapped, *, is_agreed: bool = False, is_resumed: bool = False
    ) -> Restored:
        """Like `restore`, but hands over what interrupted it instead of raising it."""
        optimizers = self.optimizers
        tree = self._completed(tree, optimizers)
        self._check(tree, optimizers)
        interrupt: BaseException | None = None
        for _ in range(_MOST_ATTEMPTS):
            try:
                refused = self._put_in(tree, optimizers, is_agreed=is_agreed, is_resumed=is_resumed)
                return Restored(refused, interrupt)
            except BaseException as error:
                if not is_interrupt(error):
                    raise
                interrupt = error  # half a state would be worse than either of the two: again
        assert interrupt is not None
        raise interrupt

    def _put_in(
        self,
        tree: Mapped,
        optimizers: Mapping[int, Optimizer],
        *,
        is_agreed: bool,
        is_resumed: bool,
    ) -> list[str]:
        objects = cast(Mapped, tree["objects"])
        refused = self._objects.load(objects, is_agreed=is_agreed, living=self._living)
        in_place = InPlace(self._living)
        # Not in inference mode: the training could not write to what is made there.
        with torch.inference_mode(mode=False), torch.no_grad():
            for name, module in self.modules.items():
                saved = _part(tree, "modules", name)
                restore_module(module, saved, in_place, is_resumed=is_resumed)
            for index, optimizer in optimizers.items():
                part = _part(tree, "optimizers", index)
                restore_optimizer(optimizer, part, in_place, is_resumed=is_resumed)
            for index, scaler in enumerate(self.scalers):
                restore_scaler(scaler, _part(tree, "scalers", index), in_place)
        return refused

    def _completed(self, tree: Mapped, optimizers: Mapping[int, Optimizer]) -> Mapped:
        """A capture adapted to the live objects: optimizers created after it are added as they were
        before their first step, dropped ones are left out, and missing state of the hook itself is
        added as it is now."""
        held = self._of_this_life(cast("dict[int, Mapped]", tree["optimizers"]), optimizers)
        unused = {
            index: self._unused[one] for index, one in optimizers.items() if one in self._unused
        }
        objects = self._objects.completed(cast(Mapped, tree["objects"]))
        return {**tree, "optimizers": {**unused, **held}, "objects": objects}

    def _of_this_life(
        self, saved: Mapping[int, Mapped], optimizers: Mapping[int, Optimizer]
    ) -> dict[int, Mapped]:
        """Optimizer parts by the numbers used in this process, without dropped optimizers.

        In an earlier process, other optimizers may have come and gone before them. If it used
        numbers that this one has not, the parts are matched in order.
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
        names = self._names()
        for index, optimizer in optimizers.items():
            saved = _part(tree, "optimizers", index)
            check_optimizer(f"optimizer {index}", optimizer, saved, names)

    def _copies(self) -> HostCopies:
        return HostCopies(self._living)

    def _living(self) -> Iterator[object]:
        """The program's own objects, which a state may refer to."""
        yield from living_in(self.modules.values(), self.optimizers.values())
        yield from self.scalers
        yield from self._objects.given

    def _finite_flag(self, copies: HostCopies) -> FiniteFlag:
        tensors = self._exemptions.others(self._module_tensors())
        for optimizer in self.optimizers.values():
            tensors.extend(optimizer_tensors(optimizer))
            tensors.extend(self._own_parameters(optimizer).values())
        return FiniteFlag(tensors, copies.devices)

    def _module_tensors(self) -> dict[str, Tensor]:
        return {
            f"{module_name}.{name}": tensor
            for module_name, module in self.modules.items()
            for name, tensor in module_tensors(module).items()
        }

    def _names(self) -> dict[int, str]:
        """Names of the modules' parameters, by their ids."""
        return {
            id(parameter): f"{module_name}.{name}"
            for module_name, module in self.modules.items()
            for name, parameter in module.named_parameters()
        }

    def _own_parameters(self, optimizer: Optimizer) -> dict[int, Tensor]:
        """Tensors that an optimizer steps and no module holds, by their index in its groups:
        DeepSpeed's flat buffers, or tensors that the program keeps by itself."""
        held = {id(one) for module in self.modules.values() for one in module.parameters()}
        stepped = enumerate(optimizer_parameters(optimizer))
        return {index: one for index, one in stepped if id(one) not in held}


def _part(tree: Mapped, kind: str, name: object) -> Mapped:
    return cast(Mapped, cast(Mapped, tree.get(kind, {})).get(name, {}))


def _num_bytes(tensors: Iterable[Tensor]) -> int:
    return sum(part.numel() * part.element_size() for part in map(local_of, tensors))
