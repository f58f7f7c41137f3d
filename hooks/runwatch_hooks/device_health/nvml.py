"""What NVIDIA's driver says of a device, asked through NVML (the extra `nvml`).

Never by `nvidia-smi`, a process for each question, which has held up trainings (PyTorch Lightning
issue 189), and never on the training thread: the driver may take milliseconds, or hang with a
device that is lost.
"""

import importlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

SENSORS: Final = ("gpu_mem", "gpu_temp", "gpu_util", "gpu_throttled", "gpu_ecc_errors")


class NvmlError(Exception):
    """NVML is not there, or does not know a device; says which."""


class Nvml:
    """NVML, opened by this process. For one thread at a time."""

    def __init__(self) -> None:
        """Raises NvmlError where the module, the library or the driver is missing."""
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
        """Of the machine, whatever CUDA_VISIBLE_DEVICES says. Raises NvmlError."""
        try:
            return int(self._nvml.nvmlDeviceGetCount())
        except self._nvml.NVMLError as error:
            raise NvmlError(str(error)) from error

    def find(self, uuid: str) -> Any:
        """A device, for `read`; `uuid` as torch has it, without what it is of. Raises NvmlError."""
        for kind in ("GPU", "MIG"):
            with suppress(self._nvml.NVMLError):
                return self._nvml.nvmlDeviceGetHandleByUUID(f"{kind}-{uuid}".encode())
        raise NvmlError(f"NVML knows no device {uuid}")

    def read(self, device: Any) -> dict[str, float]:
        """What the device tells, of `SENSORS`; what it cannot tell, or not now, is left out."""
        numbers: dict[str, float] = {}
        for name, reader in self._readers.items():
            with suppress(self._nvml.NVMLError):
                numbers[name] = reader(device)
        return numbers

    def close(self) -> None:
        with suppress(self._nvml.NVMLError):
            self._nvml.nvmlShutdown()

    def _memory(self, device: Any) -> float:
        """Bytes in use, by whomever."""
        return float(self._nvml.nvmlDeviceGetMemoryInfo(device).used)

    def _temperature(self, device: Any) -> float:
        """Degrees Celsius."""
        return float(self._nvml.nvmlDeviceGetTemperature(device, self._nvml.NVML_TEMPERATURE_GPU))

    def _utilization(self, device: Any) -> float:
        """The share of the last sampling period (up to a second) in which a kernel ran."""
        return float(self._nvml.nvmlDeviceGetUtilizationRates(device).gpu) / 100.0

    def _throttled(self, device: Any) -> float:
        """1 where heat, or a fault of power, holds the clocks down. A power cap does not count:
        a device that works hard is at it all the time."""
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
        """Errors of memory that were found and not put right, since the driver was loaded."""
        nvml = self._nvml
        kind, since = nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED, nvml.NVML_VOLATILE_ECC
        return float(nvml.nvmlDeviceGetTotalEccErrors(device, kind, since))
