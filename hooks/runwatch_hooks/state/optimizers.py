"""An optimizer's training state: every state tensor and every hyperparameter.

State may be kept outside `state`, in attributes or in an optimizer that is wrapped. Torch's
`state_dict` contains neither, and research code often uses both. SAM and Lookahead step another
optimizer, which holds the moments; others count steps in `self.t`, or keep slow weights in a list.
If a rollback did not restore these, training would continue from a mixture of two steps.

Attributes are restored only in the process that captured them. After a restart the program may have
built its optimizer with other options or on another rank, and options are attributes as well.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Final, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from runwatch_hooks.ranks.shards import is_sharded
from runwatch_hooks.state.outcomes import StateMismatchError
from runwatch_hooks.state.tree import HostCopies, InPlace, Mapped, is_plain_value, tensors_in
from runwatch_hooks.step.layers import optimizer_parameters, steps_as_torchs_own

_THIS_PROCESS: Final = secrets.token_hex(8)
"""Identifies the process. Not its pid, which a later process may be given again."""


class _Bare(Optimizer):
    """Has only the attributes that torch gives to every optimizer."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        """Does nothing."""


@cache
def _torch_attributes() -> frozenset[str]:
    """Names of the attributes that torch itself sets, which are not captured.

    Found on first use: the first optimizer of a process imports `torch._dynamo`, which takes
    seconds, and is made by the program in any case before anything is captured.
    """
    bare = _Bare([torch.zeros(1, device="cpu")], {})
    set_later = {
        "_opt_called",  # by schedulers
        "_step_supports_amp_scaling",
        "found_inf",
        "grad_scale",
    }
    return frozenset(vars(bare)) | set_later


def wrapped_by(optimizer: Optimizer) -> dict[str, Optimizer]:
    """The optimizers in its attributes, and in theirs, at any depth, by attribute path."""
    seen = {id(optimizer)}
    found: dict[str, Optimizer] = {}
    waiting = [("", optimizer)]
    while waiting:
        prefix, holder = waiting.pop()
        for path, value in _optimizers_in(vars(holder)):
            if id(value) not in seen:
                seen.add(id(value))
                found[f"{prefix}{path}"] = value
                waiting.append((f"{prefix}{path}.", value))
    return found


def _optimizers_in(attributes: Mapping[str, object]) -> Iterator[tuple[str, Optimizer]]:
    """Those that are attributes, or lie in a list or mapping that is one, with their paths."""
    for name, value in attributes.items():
        if isinstance(value, Optimizer):
            yield name, value
        elif isinstance(value, (list, tuple, dict)):
            items = cast("Sequence[object] | Mapped", value)
            entries = items.items() if isinstance(items, dict) else enumerate(items)
            for key, item in entries:
                if isinstance(item, Optimizer):
                    yield f"{name}[{key}]", item


def attributes_of(optimizer: Optimizer) -> Mapped:
    """The attributes that are numbers, strings, tensors, or containers of these, not yet copied. In
    mappings keyed by parameters, the keys become the parameters' indices over all groups. `devices`
    are those of tensors that a restore has to create, since a buffer may be empty by then."""
    if steps_as_torchs_own(optimizer):
        return {}  # torch's own optimizers keep no state in attributes
    of_torch = _torch_attributes()
    places = {id(one): place for place, one in enumerate(optimizer_parameters(optimizer))}
    kept: Mapped = {}
    by_parameter: Mapped = {}
    for name, item in vars(optimizer).items():
        if name in of_torch or any(id(one) in places for one in tensors_in(item)):
            continue  # parameters are captured elsewhere, and may be large
        # A defaultdict and the like are kept as plain dicts.
        entries: object = dict(cast(Mapped, item)) if isinstance(item, dict) else item
        if is_keyed := _has_tensor_keys(entries):
            entries = {places.get(id(key), key): one for key, one in cast(Mapped, entries).items()}
        if _looks_up_tensors(entries) or not is_plain_value(entries):
            continue
        (by_parameter if is_keyed else kept)[name] = entries
    devices = {name: one.device for name in kept for one in islice(tensors_in(kept[name]), 1)}
    return {
        "life": _THIS_PROCESS,
        "kept": kept,
        "by_parameter": by_parameter,
        "devices": devices,
    }


def restore_attributes(optimizer: Optimizer, saved: Mapped, in_place: InPlace) -> None:
    """Restore captured attributes in place. Those created since the capture are left unchanged."""
    if saved.get("life") != _THIS_PROCESS:
        return
    attributes = cast(Mapped, vars(optimizer))
    devices = cast("dict[object, torch.device]", saved["devices"])
    for name, item in cast(Mapped, saved["kept"]).items():
        device = devices.get(name, torch.device("cpu"))
        attributes[name] = in_place.put(attributes.get(name), item, device)
    parameters = optimizer_parameters(optimizer)
    for name, entries in cast("dict[object, Mapped]", saved["by_parameter"]).items():
        live = attributes.get(name)
        if isinstance(live, dict):
            _restore_entries(cast(Mapped, live), entries, parameters, in_place)


def _restore_entries(
    live: Mapped, saved: Mapped, parameters: Sequence[Tensor], in_place: InPlace
) -> None:
    for place, parameter in enumerate(parameters):
        if place in saved:
            live[parameter] = in_place.put(live.get(parameter), saved[place], parameter.device)
        else:
            live.pop(parameter, None)


def _looks_up_tensors(value: object) -> bool:
    """Whether it holds tensors as members of sets or keys of mappings. These are found by their
    identity, which copies do not have."""
    if isinstance(value, (set, frozenset)):
        return any(isinstance(one, Tensor) for one in cast("frozenset[object]", value))
    if isinstance(value, dict):
        mapping = cast(Mapped, value)
        return _has_tensor_keys(mapping) or any(map(_looks_up_tensors, mapping.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_looks_up_tensors, cast("Sequence[object]", value)))
    return False


def _has_tensor_keys(value: object) -> bool:
    return isinstance(value, dict) and any(isinstance(key, Tensor) for key in cast(Mapped, value))


_ITSELF: Final = "(itself)"
"""Key for a parameter's state that is not a mapping."""


def capture_optimizer(
    optimizer: Optimizer,
    copies: HostCopies,
    old: Mapped,
    own: Mapping[int, Tensor] | None = None,
    names: Mapping[int, str] | None = None,
) -> Mapped:
    """An owned copy, with parameters identified by their index over all groups. It includes copies
    of the optimizers that this one wraps.

    `own` are parameters that belong to no module, by index; the others are captured with their
    modules. `names` are the modules' names of parameters, by the parameters' ids.
    """
    captured = _capture_one(optimizer, copies, old, own, names)
    olds = cast("dict[str, Mapped]", old.get("wrapped", {}))
    captured["wrapped"] = {
        path: _capture_one(one, copies, olds.get(path, {}), None, names)
        for path, one in wrapped_by(optimizer).items()
    }
    return captured


def _capture_one(
    optimizer: Optimizer,
    copies: HostCopies,
    old: Mapped,
    own: Mapping[int, Tensor] | None,
    names: Mapping[int, str] | None,
) -> Mapped:
    states = {
        index: _entries(optimizer.state[parameter])
        for index, parameter in enumerate(optimizer_parameters(optimizer))
        if parameter in optimizer.state
    }
    parts: Mapped = {
        "groups": [_options(group) for group in _groups(optimizer)],
        "states": states,
        "parameters": dict(own or {}),
        "others": _others(optimizer),
        "attributes": attributes_of(optimizer),
    }
    captured = {key: copies.copy(part, old.get(key)) for key, part in parts.items()}
    captured["sizes"] = _sizes(optimizer)
    captured["names"] = _names(optimizer, names or {})
    captured["on_host"] = _on_host(optimizer)
    captured["sharded"] = {
        index: [key for key, item in state.items() if isinstance(item, Tensor) and is_sharded(item)]
        for index, state in states.items()
    }
    return captured


def check_optimizer(
    place: str, optimizer: Optimizer, saved: Mapped, names: Mapping[int, str]
) -> None:
    """Raises StateMismatchError unless the groups, and the optimizer's own parameters, match the
    capture."""
    _check_one(place, optimizer, saved, names)
    for path, one, part in _wrapped(optimizer, saved):
        _check_one(f"{place}.{path}", one, part, names)


def _check_one(place: str, optimizer: Optimizer, saved: Mapped, names: Mapping[int, str]) -> None:
    found, wanted = _sizes(optimizer), saved["sizes"]
    if found != wanted:
        raise StateMismatchError(f"{place}: found groups of {found} parameters, wanted {wanted}")
    _check_order(place, optimizer, saved, names)
    living = optimizer_parameters(optimizer)
    for index, parameter in _own_parameters(saved).items():
        if living[index].shape != parameter.shape:
            raise StateMismatchError(
                f"{place}, parameter {index}: found {list(living[index].shape)}, "
                f"wanted {list(parameter.shape)}"
            )


def _check_order(place: str, optimizer: Optimizer, saved: Mapped, names: Mapping[int, str]) -> None:
    """Raises StateMismatchError if the parameters come in another order. Moments restored to other
    parameters would go unnoticed where the shapes are equal."""
    captured = cast("list[str]", saved.get("names", []))  # older captures have none
    for index, (found, wanted) in enumerate(zip(_names(optimizer, names), captured, strict=False)):
        if found and wanted and found != wanted:
            raise StateMismatchError(
                f"{place}, parameter {index} of all groups: found {found}, wanted {wanted}"
            )


def restore_optimizer(
    optimizer: Optimizer, saved: Mapped, in_place: InPlace, *, is_resumed: bool = False
) -> None:
    """Restore a capture in place; states created since are removed. After a restart of the program
    (`is_resumed`) the optimizer keeps its attributes, which the program has set anew."""
    wrapped = [(one, part) for _, one, part in _wrapped(optimizer, saved)]
    for one, part in [(optimizer, saved), *wrapped]:
        _restore_one(one, part, in_place)
        if not is_resumed:
            restore_attributes(one, cast(Mapped, part.get("attributes", {})), in_place)


def _wrapped(optimizer: Optimizer, saved: Mapped) -> Iterator[tuple[str, Optimizer, Mapped]]:
    """The optimizers that it wraps, each with its part of the capture, if there is one: older
    captures have none."""
    parts = cast("dict[str, Mapped]", saved.get("wrapped", {}))
    for path, one in wrapped_by(optimizer).items():
        if path in parts:
            yield path, one, parts[path]


def _restore_one(optimizer: Optimizer, saved: Mapped, in_place: InPlace) -> None:
    for group, options in zip(
        _groups(optimizer), cast("list[Mapped]", saved["groups"]), strict=True
    ):
        for key in [key for key in _options(group) if key not in options]:
            del group[key]
        device = _device_of(group)
        for key, option in options.items():
            group[key] = in_place.put(group.get(key), option, device)
    states = cast("dict[int, Mapped]", saved["states"])
    on_host = cast("dict[int, list[str]]", saved["on_host"])
    sharded = cast("dict[int, list[str]]", saved.get("sharded", {}))
    _restore_others(optimizer, cast(Mapped, saved.get("others", {})), in_place)
    own = _own_parameters(saved)
    for index, parameter in enumerate(optimizer_parameters(optimizer)):
        if index in own:
            in_place.put(parameter, own[index], parameter.device)
        if index not in states:
            optimizer.state.pop(parameter, None)
        else:
            live = _entries(optimizer.state.get(parameter, {}))
            _make_shards(live, states[index], sharded.get(index, []), parameter)
            _restore_state(live, states[index], parameter.device, on_host[index], in_place)
            cast(Mapped, optimizer.state)[parameter] = live.get(_ITSELF, live)


def _restore_others(optimizer: Optimizer, saved: Mapped, in_place: InPlace) -> None:
    state = cast(Mapped, optimizer.state)
    for key in _others(optimizer).keys() - saved.keys():
        del state[key]
    for key, item in saved.items():
        state[key] = in_place.put(state.get(key), item, torch.device("cpu"))


def _restore_state(
    live: Mapped, saved: Mapped, device: torch.device, on_host: list[str], in_place: InPlace
) -> None:
    for key in [key for key in live if key not in saved]:
        del live[key]
    for key, item in saved.items():
        home = torch.device("cpu") if key in on_host else device
        live[key] = in_place.put(live.get(key), item, home)


def _make_shards(live: Mapped, saved: Mapped, keys: list[str], parameter: Tensor) -> None:
    """Create sharded state tensors, laid out like their parameter, in a process that has not made a
    step yet and has none."""
    for key in keys:
        if key not in live:
            dtype = cast(Tensor, saved[key]).dtype
            live[key] = torch.zeros_like(parameter, dtype=dtype, requires_grad=False)


def optimizer_tensors(optimizer: Optimizer) -> Iterator[Tensor]:
    """The tensors that must be finite: all state tensors, each once."""
    known: set[int] = set()
    for one in (optimizer, *wrapped_by(optimizer).values()):
        for tensor in tensors_in(one.state):
            if id(tensor) not in known:
                known.add(id(tensor))
                yield tensor


def _others(optimizer: Optimizer) -> Mapped:
    """State under keys that are not tensors, which torch's `state_dict` allows. Only plain values
    and tensors: others may be anything, such as a module or a function."""
    state = cast(Mapped, optimizer.state)
    return {
        key: item
        for key, item in state.items()
        if not isinstance(key, Tensor) and is_plain_value(key) and is_plain_value(item)
    }


def _entries(state: object) -> Mapped:
    """One parameter's state as a mapping. Torch's `state_dict` also allows states that are not
    mappings, such as a single moment tensor."""
    return cast(Mapped, state) if isinstance(state, dict) else {_ITSELF: state}


def _names(optimizer: Optimizer, names: Mapping[int, str]) -> list[str]:
    """Names of its parameters, in the order of the groups; empty for those of no module."""
    return [names.get(id(parameter), "") for parameter in optimizer_parameters(optimizer)]


def _own_parameters(saved: Mapped) -> dict[int, Tensor]:
    """The optimizer's own parameters in a capture; older captures have none."""
    return cast("dict[int, Tensor]", saved.get("parameters", {}))


def _groups(optimizer: Optimizer) -> list[Mapped]:
    return cast("list[Mapped]", optimizer.param_groups)


def _options(group: Mapped) -> Mapped:
    return {key: option for key, option in group.items() if key != "params"}


def _sizes(optimizer: Optimizer) -> list[int]:
    return [len(cast("list[Tensor]", group["params"])) for group in _groups(optimizer)]


def _device_of(group: Mapped) -> torch.device:
    parameters = cast("list[Tensor]", group["params"])
    return parameters[0].device if parameters else torch.device("cpu")


def _on_host(optimizer: Optimizer) -> dict[int, list[str]]:
    """Which state tensors of each parameter are on the host, wherever the parameter is.

    If everything is on the CPU, this cannot be seen, and Adam's rule for `step` is assumed, so that
    a checkpoint made on a CPU can be resumed on a GPU.
    """
    on_host: dict[int, list[str]] = {}
    index = 0
    for group in _groups(optimizer):
        step_on_host = not (group.get("capturable") or group.get("fused"))
        for parameter in cast("list[Tensor]", group["params"]):
            if parameter in optimizer.state:
                state = cast("dict[str, object]", _entries(optimizer.state[parameter]))
                keys = [key for key, item in state.items() if _is_on_host(item)]
                if parameter.device.type == "cpu":
                    keys = [key for key in keys if key == "step" and step_on_host]
                on_host[index] = keys
            index += 1
    return on_host


def _is_on_host(value: object) -> bool:
    return isinstance(value, Tensor) and value.device.type == "cpu"


def living_in(modules: Iterable[nn.Module], optimizers: Iterable[Optimizer]) -> Iterator[object]:
    """Modules, parameters and buffers, and optimizers, with those that they wrap."""
    for module in modules:
        yield from module.modules()
        yield from module.parameters()
        yield from module.buffers()
    for optimizer in optimizers:
        for one in (optimizer, *wrapped_by(optimizer).values()):
            yield one
            yield from optimizer_parameters(one)
