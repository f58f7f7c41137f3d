"""What an optimizer keeps beside its `state`: in attributes of its own, or in one that it wraps.

Torch saves neither, and much of research code has both. SAM and Lookahead step another optimizer,
whose moments lie in that one's state; others count their steps in `self.t`, or hold slow weights
in a list. A rollback that left these where they are would train on from a mixture of two times.

Attributes go back within one life of the program only. The next may have built its optimizer with
other options, on another rank, and those are attributes, too.
"""

import secrets
from collections.abc import Sequence
from typing import Final, cast

import torch
from torch import Tensor
from torch.optim import Optimizer

from runwatch_hooks.actions.plain import is_plain_value
from runwatch_hooks.actions.trees import InPlace, Mapped, tensors_in
from runwatch_hooks.seeing.known_optimizers import parameters_of, steps_as_torchs_own

_THIS_LIFE: Final = secrets.token_hex(8)


class _Bare(Optimizer):
    """Has the attributes that torch gives to each."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        """Nothing is stepped."""


_OF_TORCH: Final = frozenset(vars(_Bare([torch.zeros(1)], {}))) | {
    "_opt_called",  # a scheduler's
    "_step_supports_amp_scaling",
    "found_inf",
    "grad_scale",
}


def wrapped_by(optimizer: Optimizer) -> dict[str, Optimizer]:
    """The optimizers that it holds in attributes, and those that they hold, by their paths."""
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
    """Numbers, texts and tensors in attributes, and what holds these; of torch's own there are
    none that move. As they are, to be copied. Where a mapping has parameters for keys, these are
    named by their places in the groups."""
    if steps_as_torchs_own(optimizer):
        return {}
    places = {id(one): place for place, one in enumerate(parameters_of(optimizer))}
    kept: Mapped = {}
    by_parameter: Mapped = {}
    for name, item in cast("dict[str, object]", vars(optimizer)).items():
        if name in _OF_TORCH or any(id(one) in places for one in tensors_in(item)):
            continue  # parameters have their copy, and may be large
        entries = _of_plain_type(item)
        if _has_tensors_for_keys(item):
            entries = {places.get(id(key), key): one for key, one in cast(Mapped, item).items()}
            if not _has_tensors_for_keys(entries) and is_plain_value(entries):
                by_parameter[name] = entries
        elif is_plain_value(entries):
            kept[name] = entries
    return {"life": _THIS_LIFE, "kept": kept, "by_parameter": by_parameter}


def restore_attributes(optimizer: Optimizer, saved: Mapped, in_place: InPlace) -> None:
    """Puts them back, in place. One that is younger than the capture is left alone."""
    if saved.get("life") != _THIS_LIFE:
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
    """A `defaultdict`, say, as the mapping that it is."""
    return dict(cast(Mapped, item)) if isinstance(item, dict) else item


def _has_tensors_for_keys(item: object) -> bool:
    return isinstance(item, dict) and any(isinstance(key, Tensor) for key in cast(Mapped, item))
