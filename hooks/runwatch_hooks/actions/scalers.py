"""A gradient scaler's training state: its scale and its growth tracker."""

from typing import Final, cast

import torch
from torch import Tensor
from torch.amp.grad_scaler import GradScaler

from runwatch_hooks.actions.rng import HasState
from runwatch_hooks.actions.trees import HostCopies, InPlace, Mapped

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
