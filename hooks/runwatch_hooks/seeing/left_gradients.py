"""Whether a gradient is still the one that a clip or an optimizer's step has left."""

from torch import Tensor

from runwatch_hooks.seeing.weak_gradients import WeakGradient, version_of


class Left:
    """How it was left. A backward pass makes another tensor, or writes to this one. A gradient
    scaler that takes its scale out writes as well, which torch does not count."""

    def __init__(self, grad: Tensor, num_writes: int) -> None:
        """`num_writes` to it are still to come, and belong to the clip."""
        self._grad = WeakGradient(grad)
        self._version = self._grad.version + num_writes

    def is_as_left(self, grad: Tensor | None) -> bool:
        return grad is not None and self._grad.is_of(grad) and version_of(grad) <= self._version
