"""Reads a rank's devices every few seconds, in a thread of its own."""

import threading
from collections.abc import Sequence
from typing import Any, Final

from runwatch_hooks.device_health.nvml import Nvml, NvmlError
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.uplink.threads import yield_to_training

log = OwnLog(__name__)

INTERVAL_S: Final = 5.0
_CLOSE_TIMEOUT_S: Final = 1.0
_MAX_DEVICES: Final = 16
"""Limit for one rank, which usually has one device."""


class DeviceSensors:
    """A rank's devices. For the training thread, only `close` waits, for up to a second."""

    def __init__(self, nvml: Nvml, devices: Sequence[Any], interval_s: float = INTERVAL_S) -> None:
        """Reads the devices once: only the sensors that answer now are recorded later."""
        self._nvml = nvml
        self._devices = devices
        self._interval_s = interval_s
        self._newest: dict[str, float] | None = self._read()
        self.names = frozenset(self._newest)
        """Names of the metrics. Those of the first device have no number."""
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="runwatch-devices", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def take(self) -> dict[str, float]:
        """The newest reading, once; later rows without a new one leave these metrics out."""
        newest, self._newest = self._newest, None
        return newest or {}

    def close(self) -> None:
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        yield_to_training()
        try:
            while not self._closing.wait(self._interval_s):
                self._newest = {
                    name: value for name, value in self._read().items() if name in self.names
                }
            self._nvml.close()
        except Exception:  # the devices are no longer read, and training goes on
            log.exception(
                "reading devices failed: their memory and temperature are no longer recorded"
            )

    def _read(self) -> dict[str, float]:
        return {
            name if place == 0 else f"{name}.{place}": value
            for place, device in enumerate(self._devices)
            for name, value in self._nvml.read(device).items()
        }


def open_sensors(uuids: Sequence[str], interval_s: float = INTERVAL_S) -> DeviceSensors | None:
    """The sensors of these devices; None if there are no devices, or NVML is not available."""
    if not uuids:
        return None
    try:
        nvml = Nvml()
        devices = [nvml.find(uuid) for uuid in uuids[:_MAX_DEVICES]]
    except NvmlError as error:
        log.info("memory, temperature and utilisation of devices are not recorded: %s", error)
        return None
    return DeviceSensors(nvml, devices, interval_s)
