"""Norms of gradients before clipping, as computed by the clip itself.

After clipping by norm, no gradient is an outlier any more, but the step still goes in an outlier's
direction. The clip has computed the norm on every rank, so using it costs nothing.
"""

import os
from collections.abc import Iterable

from torch import Tensor
from torch.nn import utils as nn_utils
from torch.nn.utils import clip_grad

from runwatch_hooks.faults import Faults
from runwatch_hooks.ranks.shards import whole
from runwatch_hooks.step.torch_hooks import TorchSubscriptions, argument, is_capturing, tensors_at
from runwatch_hooks.wraps import Arguments, Keywords, Listeners


class ClippedNorms:
    """The norms of clips since each parameter's last step."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults
        self._subscriptions = TorchSubscriptions()
        self._norms: dict[int, Tensor] = {}
        """Parameter's id -> norm of the last clip over it."""
        self._pid = os.getpid()

    def install(self) -> None:
        listeners = Listeners(before=self._before_clip)
        for module, prefix in ((clip_grad, "_"), (nn_utils, "")):
            self._subscriptions.listen(module, f"{prefix}clip_grads_with_norm_", listeners)

    def remove(self) -> None:
        self._subscriptions.release()
        self._norms = {}

    def take(self, parameters: Iterable[Tensor]) -> Tensor | None:
        """The norm of the clip over all these parameters, which is then forgotten; None if there
        was no clip, or several over parts of them."""
        norms = [self._norms.pop(id(one), None) for one in parameters]
        first = norms[0] if norms else None
        return first if all(one is first for one in norms) else None

    def _before_clip(self, args: Arguments, kwargs: Keywords) -> None:
        if os.getpid() != self._pid or is_capturing():
            return
        with self._faults.guard("guard, clip", self.remove):
            parameters = tensors_at(args, kwargs, 0, "parameters")
            norm = whole(argument(args, kwargs, 2, "total_norm").detach())
            if norm is not None:
                self._norms |= dict.fromkeys(map(id, parameters), norm.float().reshape(()))
