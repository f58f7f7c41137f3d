"""What an optimizer keeps outside its `state`: in attributes, or in an optimizer that it wraps.

Torch saves neither, and research code often has both. SAM and Lookahead step another optimizer,
which holds the moments; others count their steps in `self.t`, or keep slow weights in a list. A
rollback that left these alone would continue from a mixture of two points in time.

Attributes are restored only in the process that captured them. After a restart the program may
have built its optimizer with other options, or on another rank, and options are attributes too.
"""

import secrets
from collections.abc import Sequence
from functools import cache
from typing import Final, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.actions.plain import is_plain_value
from runwatch_hooks.actions.trees import InPlace, Mapped, tensors_in
from runwatch_hooks.seeing.known_optimizers import parameters_of, steps_as_torchs_own

_THIS_PROCESS: Final = secrets.token_hex(8)


class _Bare(Optimizer):
    """An optimizer with only the attributes that torch gives to every optimizer."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        """Steps nothing."""


@cache
def _names_of_torch() -> frozenset[str]:
    """The attributes that torch, its schedulers and its gradient scaler set on an optimizer.

    Computed on first use: torch imports its compiler with the first optimizer that is made.
    """
    return frozenset(vars(_Bare([torch.zeros(1, device="cpu")], {}))) | {
        "_opt_called",  # set by schedulers
        "_step_supports_amp_scaling",
        "found_inf",
        "grad_scale",
    }


def wrapped_by(optimizer: Optimizer) -> dict[str, Optimizer]:
    """The optimizers that it holds in attributes, and those that they hold, by attribute path."""
    seen = {id(optimizer)}
    found: dict[str, Optimizer] = {}
    waiting = [("", optimizer)]
    while waiting:
        prefix, holder = waiting.pop()
        for name, value in vars(holder).items():
            if isinstance(value, Optimizer) and id(value) not in seen:
                seen.add(id(value))
                found[f"{prefix}{name}"] = value
                waiting.append((f"{prefix}{name}.", value))
    return found


def attributes_of(optimizer: Optimizer) -> Mapped:
    """The numbers, texts and tensors in its attributes, also in lists and dictionaries. The values
    are the live ones, for the caller to copy. Keys that are parameters become their index over all
    groups. Empty for torch's own optimizers, which keep nothing in attributes that changes."""
    if steps_as_torchs_own(optimizer):
        return {}
    places = {id(one): place for place, one in enumerate(parameters_of(optimizer))}
    kept: Mapped = {}
    by_parameter: Mapped = {}
    for name, item in cast("dict[str, object]", vars(optimizer)).items():
        if name in _names_of_torch() or any(id(one) in places for one in tensors_in(item)):
            continue  # parameters are captured elsewhere, and may be large
        entries = _of_plain_type(item)
        if _has_tensors_for_keys(item):
            entries = {places.get(id(key), key): one for key, one in cast(Mapped, item).items()}
            if not _has_tensors_for_keys(entries) and is_plain_value(entries):
                by_parameter[name] = entries
        elif is_plain_value(entries):
            kept[name] = entries
    return {"life": _THIS_PROCESS, "kept": kept, "by_parameter": by_parameter}


def restore_attributes(optimizer: Optimizer, saved: Mapped, in_place: InPlace) -> None:
    """Restore attributes in place. Those created since the capture are left alone."""
    if saved.get("life") != _THIS_PROCESS:
        return
    attributes = cast(Mapped, vars(optimizer))
    for name, item in cast(Mapped, saved["kept"]).items():
        attributes[name] = in_place.put(attributes.get(name), item, torch.device("cpu"))
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


def _of_plain_type(item: object) -> object:
    """Any dictionary (such as a `defaultdict`) as a plain one."""
    return dict(cast(Mapped, item)) if isinstance(item, dict) else item


def _has_tensors_for_keys(item: object) -> bool:
    return isinstance(item, dict) and any(isinstance(key, Tensor) for key in cast(Mapped, item))
