"""A training state on its way to the host, or arrived there."""

from dataclasses import dataclass

from runwatch_hooks.actions.finite import FiniteFlag
from runwatch_hooks.actions.trees import Mapped


@dataclass(slots=True, eq=False)
class Captured:
    """A captured state, on the host. `tree` may be read only once `is_ready`."""

    tree: Mapped
    flag: FiniteFlag

    def is_ready(self) -> bool:
        return self.flag.is_ready()

    def wait(self) -> None:
        """Wait until the copies from accelerators have arrived."""
        self.flag.wait()

    @property
    def is_finite(self) -> bool:
        """Whether all parameters, buffers and optimizer states are finite. Valid once ready."""
        return self.flag.value()
