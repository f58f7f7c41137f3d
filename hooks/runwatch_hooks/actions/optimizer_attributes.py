"""State that an optimizer keeps outside `state`: in its attributes, or in an optimizer it wraps.

Torch's `state_dict` contains neither, and research code often uses both. SAM and Lookahead step
another optimizer, which holds the moments; others count steps in `self.t`, or keep slow weights in
a list. If a rollback did not restore these, training would continue from a mixture of two steps.

Attributes are restored only in the process that captured them. After a restart the program may have
built its optimizer with other options or on another rank, and options are attributes as well.
"""

import secrets
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import islice
from typing import Final, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.actions.plain import is_plain_value
from runwatch_hooks.actions.trees import InPlace, Mapped, tensors_in
from runwatch_hooks.seeing.known_optimizers import parameters_of, steps_as_torchs_own

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
    places = {id(one): place for place, one in enumerate(parameters_of(optimizer))}
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
    parameters = parameters_of(optimizer)
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
