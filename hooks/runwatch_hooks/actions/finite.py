"""Whether tensors hold nothing but finite numbers, found in one read and without waiting."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from runwatch_hooks.measuring.host_memory import locks_pages
from runwatch_hooks.measuring.marks import has_passed, set_mark, wait_for
from runwatch_hooks.ranks.shards import local_of


class FiniteFlag:
    """One verdict over many tensors, as they are now; from an accelerator it arrives later."""

    def __init__(self, tensors: Iterable[Tensor], devices: Iterable[torch.device] = ()) -> None:
        """It is ready once all that was queued before it has passed: on the tensors' devices, and
        on `devices`."""
        by_device: dict[torch.device, list[Tensor]] = {}
        for given in tensors:
            tensor = local_of(given)
            if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex()):
                by_device.setdefault(tensor.device, []).append(tensor.detach())
        self._flags = [_to_host(all_finite(group)) for group in by_device.values()]
        self._marks = [set_mark(device) for device in by_device.keys() | set(devices)]

    def is_ready(self) -> bool:
        """Once this was so, nothing is asked of a device any more."""
        self._marks = [mark for mark in self._marks if not has_passed(mark)]
        return not self._marks

    def wait(self) -> None:
        for mark in self._marks:
            wait_for(mark)

    def value(self) -> bool:
        return all(bool(flag) for flag in self._flags)


def names_of_nonfinite(tensors: Mapping[str, Tensor]) -> list[str]:
    """Which of the tensors hold NaN or infinity. Waits for the GPU."""
    return [name for name, tensor in tensors.items() if not _is_finite(tensor)]


def _is_finite(tensor: Tensor) -> bool:
    flag = FiniteFlag([tensor])
    flag.wait()
    return flag.value()


def all_finite(tensors: Sequence[Tensor]) -> Tensor:
    """Whether all of one device's tensors, none of them empty, are finite; on that device."""
    by_type: dict[torch.dtype, list[Tensor]] = {}
    for tensor in map(_real, tensors):
        by_type.setdefault(tensor.dtype, []).append(tensor)
    extremes = [torch.stack(_extremes(mates)) for mates in by_type.values()]
    return torch.stack([of_type.isfinite().all() for of_type in extremes]).all()


def _extremes(tensors: list[Tensor]) -> list[Tensor]:
    """Of tensors of one type: NaN or infinite exactly where an element is, as unlike a sum of
    squares they cannot overflow."""
    # For 240 MB on one core of a CPU: aminmax 31 ms, foreach norm 256 ms, isfinite().all()
    # 232 ms. On a GPU the foreach norm is one launch for all tensors.
    if tensors[0].device.type == "cpu":
        return [extreme for tensor in tensors for extreme in torch.aminmax(tensor)]
    return list(torch._foreach_norm(tensors, float("inf")))  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]


def _real(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor.resolve_conj())
    return tensor.float() if tensor.itemsize == 1 else tensor  # FP8 has few kernels of its own


def _to_host(flag: Tensor) -> Tensor:
    if flag.device.type == "cpu":
        return flag
    host = torch.empty_like(flag, device="cpu", pin_memory=locks_pages(flag.device))
    return host.copy_(flag, non_blocking=True)
