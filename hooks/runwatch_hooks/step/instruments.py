"""The optional parts of a watch beside its probe, and the order of installing and removing them."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from runwatch_hooks.bundles import Witness
from runwatch_hooks.detail import Detail
from runwatch_hooks.device_health import DeviceSensors
from runwatch_hooks.faults import Faults
from runwatch_hooks.governor import Governor
from runwatch_hooks.guard import Guard
from runwatch_hooks.state import LrScale, Notes
from runwatch_hooks.step.own_time import OwnTime
from runwatch_hooks.step.probe import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """Each is None if it was not asked for or belongs to another rank."""

    witness: Witness | None = None
    """Writes diagnostic bundles."""
    guard: Guard | None = None
    """Turns steps that would spoil the weights into no-ops."""
    detail: Detail | None = None
    """Measures histograms and activations."""
    own_time: OwnTime | None = None
    """Measures how long this rank computes before it waits for others; with several ranks only."""
    governor: Governor | None = None
    """Limits the cost of watching, by reading less of some steps."""
    sensors: DeviceSensors | None = None
    """Read temperature, memory and utilisation of the devices."""

    def install(self, probe: Probe, lr_scale: LrScale) -> None:
        """Install all parts and the probe, in the order in which their step hooks must run."""
        if self.guard is not None:  # outside the LR scale: it restores the schedule's own rate
            self.guard.install()
        lr_scale.install()  # before the probe, which reads the rate that the schedule set
        probe.install()
        if self.own_time is not None:
            self.own_time.install()

    def begin_step(
        self, step: int, segment: int, faults: Faults, tell: Callable[[Notes], None]
    ) -> None:
        """The next step is about to be trained. `tell` receives events of bundles written since."""
        if self.witness is not None:
            with faults.guard("bundle", self.witness.disable):
                self.witness.begin_step(step, segment)
                tell(Notes(events=tuple(self.witness.events(time.time()))))
        if self.detail is not None:
            with faults.guard("detail", self.detail.close):
                self.detail.begin_step(step)

    def remove(self, faults: Faults) -> None:
        """Remove all parts, except the witness, which may still be writing a bundle."""
        with faults.guard("guard"):
            if self.guard is not None:
                self.guard.remove()
            if self.own_time is not None:
                self.own_time.remove()
        with faults.guard("devices"):
            if self.sensors is not None:
                self.sensors.close()
        with faults.guard("detail"):
            if self.detail is not None:
                self.detail.close()
