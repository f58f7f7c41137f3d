"""What a watch may have beside its probe, and the order in which it is hooked in and taken out."""

import time
from collections.abc import Callable
from dataclasses import dataclass

from runwatch_hooks.actions import LrScale, Notes
from runwatch_hooks.bundles import Witness
from runwatch_hooks.detail import Detail
from runwatch_hooks.device_health import DeviceSensors
from runwatch_hooks.faults import Faults
from runwatch_hooks.governor import Governor
from runwatch_hooks.guard import Guard
from runwatch_hooks.seeing.own_time import OwnTime
from runwatch_hooks.seeing.probe import Probe


@dataclass(frozen=True, slots=True, kw_only=True)
class Instruments:
    """Each is None where it was not asked for, or is another rank's."""

    witness: Witness | None = None
    """Writes diagnostic bundles."""
    guard: Guard | None = None
    """Stops steps that would spoil the weights."""
    detail: Detail | None = None
    """Takes histograms and activations."""
    own_time: OwnTime | None = None
    """Tells how long this rank works by itself, where there are others to compare it with."""
    governor: Governor | None = None
    """Reads less where reading costs much; is told what each step costs."""
    sensors: DeviceSensors | None = None
    """Tell how the devices are."""

    def install(self, probe: Probe, lr_scale: LrScale) -> None:
        """Hook in what hooks in, and the probe in its place among it."""
        if self.guard is not None:  # around the scale: what it puts back is the schedule's rate
            self.guard.install()
        lr_scale.install()  # before the probe, which reads the rate that a schedule set
        probe.install()
        if self.own_time is not None:
            self.own_time.install()

    def begin_step(
        self, step: int, segment: int, faults: Faults, tell: Callable[[Notes], None]
    ) -> None:
        """A step is about to be trained; `tell` hears what there is to tell of earlier ones."""
        if self.witness is not None:
            with faults.guard("bundle", self.witness.disable):
                self.witness.begin_step(step, segment)
                tell(Notes(events=tuple(self.witness.events(time.time()))))
        if self.detail is not None:
            with faults.guard("detail", self.detail.close):
                self.detail.begin_step(step)

    def remove(self, faults: Faults) -> None:
        """Leave the program as it was. The witness goes on: it may still be writing."""
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
