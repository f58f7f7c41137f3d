"""Whether a gradient is unchanged since a clip or an optimizer step."""

from torch import Tensor

from runwatch_hooks.seeing.weak_gradients import WeakGradient, version_of


class GradientVersion:
    """A gradient at one moment. A backward pass replaces the tensor or writes to it. Unscaling by a
    gradient scaler writes to it as well, but torch does not count that."""

    def __init__(self, grad: Tensor, num_writes: int) -> None:
        """`num_writes` is the number of writes by the clip itself that are still to come."""
        self._grad = WeakGradient(grad)
        self._version = self._grad.version + num_writes

    def is_unchanged(self, grad: Tensor | None) -> bool:
        return grad is not None and self._grad.is_of(grad) and version_of(grad) <= self._version
