"""Reads NVIDIA devices through NVML (the extra `nvml`).

Not by `nvidia-smi`, which starts a process for each query and has slowed down trainings (PyTorch
Lightning issue 189). And not on the training thread: the driver may take milliseconds, or hang with
a lost device.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

SENSORS: Final = ("gpu_mem", "gpu_temp", "gpu_util", "gpu_throttled", "gpu_ecc_errors")


class NvmlError(Exception):
    """NVML is not available, or does not know a device; the message says which."""


class Nvml:
    """NVML, initialised by this process. Used by one thread at a time."""

    def __init__(self) -> None:
        """Raises NvmlError if the module, the library or the driver is missing."""
        try:
            self._nvml: Any = importlib.import_module("pynvml")
        except ImportError as error:
            raise NvmlError("nvidia-ml-py is not installed") from error
        try:
            self._nvml.nvmlInit()
        except self._nvml.NVMLError as error:
            raise NvmlError(str(error)) from error
        self._readers: Mapping[str, Callable[[Any], float]] = {
            "gpu_mem": self._memory,
            "gpu_temp": self._temperature,
            "gpu_util": self._utilization,
            "gpu_throttled": self._throttled,
            "gpu_ecc_errors": self._ecc_errors,
        }

    def driver_version(self) -> str:
        """Raises NvmlError."""
        try:
            version: str | bytes = self._nvml.nvmlSystemGetDriverVersion()
        except self._nvml.NVMLError as error:
            raise NvmlError(str(error)) from error
        return version.decode() if isinstance(version, bytes) else version

    def num_devices(self) -> int:
        """The number of devices in the machine, ignoring CUDA_VISIBLE_DEVICES. Raises NvmlError."""
        try:
            return int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise NvmlError(str(error)) from error

    def find(self, uuid: str) -> Any:
        """A device handle for `read`; `uuid` is torch's, without NVML's prefix. Raises
        NvmlError."""
        for kind in ("GPU", "MIG"):
            with suppress(self._nvml.NVMLError):
                return self._nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}".encode())
        raise NvmlError(f"NVML knows no device {uuid}")

    def read(self, device: Any) -> dict[str, float]:
        """The device's readings of `SENSORS`; those it cannot give, or not now, are left out."""
        numbers: dict[str, float] = {}
        for name, reader in self._readers.items():
            with suppress(self._nvml.NVMLError):
                numbers[name] = reader(device)
        return numbers

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _memory(self, device: Any) -> float:
        """Bytes in use, by all processes."""
        return float(self._nvml.nvmlDeviceGetMemoryInfo(device).used)

    def _temperature(self, device: Any) -> float:
        """Degrees Celsius."""
        return float(self._nvml.nvmlDeviceGetTemperature(device, self._nvml.NVML_TEMPERATURE_GPU))

    def _utilization(self, device: Any) -> float:
        """The share of the last sampling period (up to a second) in which a kernel ran."""
        return float(self._nvml.nvmlDeviceGetUtilizationRates(device).gpu) / 100.0

    def _throttled(self, device: Any) -> float:
        """1 if the clocks are reduced because of heat or a power fault. A power cap does not count:
        a device under load is at its cap all the time."""
        nvml = self._nvml
        reasons: int = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(device)
        bad = (
            nvml.nvmlClocksThrottleReasonSwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonHwThermalSlowdown
            | nvml.nvmlClocksThrottleReasonHwSlowdown
            | nvml.nvmlClocksThrottleReasonHwPowerBrakeSlowdown
        )
        return float(bool(reasons & bad))

    def _ecc_errors(self, device: Any) -> float:
        """Uncorrected memory errors since the driver was loaded."""
        nvml = self._nvml
        kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return float(nvml.nvmlDeviceGetTotalEccErrors(device, kind, since))
