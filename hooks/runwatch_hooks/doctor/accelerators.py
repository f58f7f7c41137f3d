"""How gradients are read on this machine, and why not in a faster way."""

import importlib.util
import shutil

import torch

from runwatch.extras import pip_install
from runwatch.findings import Finding, Verdict
from runwatch_hooks.device_health import Nvml, NvmlError
from runwatch_hooks.statistics.gradient_sums import NoOnePassError, find_one_pass


def compiled_reading() -> Finding:
    """Whether gradients in host memory are read by the compiled kernel."""
    name = "compiled reading (_one_pass)"
    try:
        find_one_pass()
    except NoOnePassError as error:
        why_not = str(error)
    else:
        return Finding("installed", name, Verdict.GOOD, "in use for gradients in host memory")
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    again = "install runwatch again, which compiles it"
    advice = again if compiler else f"install a C compiler, then {again}"
    return Finding("installed", name, Verdict.NOTE, f"{why_not}; numpy reads instead", advice)


def accelerators() -> list[Finding]:
    """CUDA or ROCm, NVML and Triton."""
    return [
        Finding("installed", "CUDA", Verdict.GOOD, _cuda()),
        _nvml(has_device=bool(torch.cuda.is_available())),
        Finding("installed", "Triton", Verdict.GOOD, _triton()),
    ]


def _cuda() -> str:
    hip = getattr(torch.version, "hip", None)  # AMD devices, which torch calls "cuda" as well
    version = torch.version.cuda if hip is None else f"ROCm {hip}"
    if version is None:
        return "none: this torch was built without it; gradients are read on the CPU"
    if not torch.cuda.is_available():
        return f"built for {version}, but no device or driver answers"
    devices = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return f"{version} on {', '.join(devices)}; gradients are read on the device"


def _nvml(*, has_device: bool) -> Finding:
    """Whether memory, temperature and utilisation of devices are recorded."""
    try:
        nvml = Nvml()
    except NvmlError as error:
        found = f"{error}; memory and temperature of devices are not recorded"
        if not has_device:
            return Finding("installed", "NVML", Verdict.GOOD, found)
        is_there = importlib.util.find_spec("pynvml") is not None
        advice = "" if is_there else pip_install("nvml")
        return Finding("installed", "NVML", Verdict.NOTE, found, advice)
    try:
        found = f"driver {nvml.driver_version()}, {nvml.num_devices()} devices"
    except NvmlError as error:
        return Finding("installed", "NVML", Verdict.NOTE, f"the driver answers: {error}")
    finally:
        nvml.close()
    return Finding("installed", "NVML", Verdict.GOOD, f"{found}; those of a run are recorded")


def _triton() -> str:
    if importlib.util.find_spec("triton") is not None:
        return "installed; a kernel of ours reads each gradient on a device once"
    return "not installed; on a device gradients are read twice, by torch's foreach operations"
