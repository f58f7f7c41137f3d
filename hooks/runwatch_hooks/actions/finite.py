"""Whether tensors hold nothing but finite numbers, found in one read and without waiting."""

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor

from runwatch_hooks.ranks.shards import local_of


class FiniteFlag:
    """One verdict over many tensors, as they are now; on a GPU it arrives later."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        by_device: dict[torch.device, list[Tensor]] = {}
        for given in tensors:
            tensor = local_of(given)
            if tensor.numel() and (tensor.is_floating_point() or tensor.is_complex()):
                by_device.setdefault(tensor.device, []).append(tensor.detach())
        self._flags = [_to_host(all_finite(group)) for group in by_device.values()]
        self._events: list[torch.cuda.Event] = []
        for device in by_device:
            if device.type == "cuda":
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(torch.cuda.current_stream(device))
                self._events.append(event)

    def is_ready(self) -> bool:
        return all(event.query() for event in self._events)  # type: ignore[no-untyped-call]

    def wait(self) -> None:
        for event in self._events:
            event.synchronize()

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
    tensors = [_real(tensor) for tensor in tensors]
    # The extremes are NaN or infinite exactly where an element is: unlike a sum of squares they
    # cannot overflow. For 240 MB on one core of a CPU: aminmax 31 ms, foreach norm 256 ms,
    # isfinite().all() 232 ms. On a GPU the foreach norm is one launch for all tensors.
    if tensors[0].device.type == "cpu":
        extremes = [extreme for tensor in tensors for extreme in torch.aminmax(tensor)]
    else:
        extremes = list(torch._foreach_norm(tensors, float("inf")))  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
    return torch.stack([extreme.double() for extreme in extremes]).isfinite().all()


def _real(tensor: Tensor) -> Tensor:
    if tensor.is_complex():
        return torch.view_as_real(tensor)
    return tensor.float() if tensor.itemsize == 1 else tensor  # FP8 has few kernels of its own


def _to_host(flag: Tensor) -> Tensor:
    if not flag.is_cuda:
        return flag
    host = torch.empty_like(flag, device="cpu", pin_memory=True)
    return host.copy_(flag, non_blocking=True)
