"""Whether a gradient is still the one that a clip or an optimizer's step has left."""

from weakref import ref

from torch import Tensor


class Left:
    """How it was left. A backward pass makes another tensor, or writes to this one."""

    def __init__(self, grad: Tensor, num_writes: int) -> None:
        """`num_writes` to it are still to come, and belong to the clip."""
        self._grad = ref(grad)
        self._version = _version_of(grad) + num_writes

    def is_as_left(self, grad: Tensor | None) -> bool:
        return grad is not None and grad is self._grad() and _version_of(grad) <= self._version


def _version_of(grad: Tensor) -> int:
    """Torch's count of writes, which it does not keep for a tensor made in inference mode."""
    return -1 if grad.is_inference() else grad._version  # pyright: ignore[reportPrivateUsage]
