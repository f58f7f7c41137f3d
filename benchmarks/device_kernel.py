"""Does our kernel read gradients on an accelerator rightly, unwaited for, and at memory's speed?

To be run by whoever has a card (CUDA, or ROCm); without one it says so and ends. First what the
kernel finds is held beside float64 arithmetic, and then it is timed beside a copy of as many bytes
and beside torch's foreach operations, by turns, with events in the stream. A copy reads and writes,
so the speed of memory is twice the bytes that it copies a second, and ours is once those that are
read. All of it runs while torch raises at whatever would wait for the device.

    python -m benchmarks.device_kernel --rounds 50
"""

import argparse
import statistics
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import torch
from benchmarks.harness import machine, markdown_table
from torch import Tensor

from runwatch_hooks.statistics.gpu_reading import (
    DeviceReader,
    ForeachReader,
    has_kernel,
    open_kernel,
)

WIDTH, LAYERS, VOCABULARY = 768, 12, 50_257
"""Of a GPT with 124 M parameters in 148 tensors."""
BLOCK: Final = (
    (WIDTH,), (WIDTH,), (3 * WIDTH, WIDTH), (3 * WIDTH,), (WIDTH, WIDTH), (WIDTH,),
    (WIDTH,), (WIDTH,), (4 * WIDTH, WIDTH), (4 * WIDTH,), (WIDTH, 4 * WIDTH), (WIDTH,),
)  # fmt: skip
AHEAD_CYCLES: Final = 10_000_000
"""Of the device, some 5 ms: in which the host queues the slowest of the works."""
NEUTRAL_BYTES: Final = 2**28
"""Several times what caches hold."""
WANTED_SHARE: Final = 0.8
"""Of the speed of a copy."""


def gradients(device: torch.device, dtype: torch.dtype) -> list[Tensor]:
    shapes = [(VOCABULARY, WIDTH), (1024, WIDTH), *(BLOCK * LAYERS), (WIDTH,), (WIDTH,)]
    torch.manual_seed(0)
    return [torch.randn(shape, device=device).mul_(1e-3).to(dtype).view(-1) for shape in shapes]


def check(reader: DeviceReader, device: torch.device) -> None:
    """Raises ValueError where the kernel finds something else than float64 arithmetic does."""
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        flats = gradients(device, dtype)
        flats[2][:5000] = 0.0
        flats[3][7], flats[4][:3] = torch.nan, torch.inf
        flats[5].fill_(6e4 if dtype is torch.float16 else 1e25)
        flats.append(flats[2][1:])  # memory that is not aligned
        with no_waiting():
            first, again = reader.read(flats).clone(), reader.read(flats).clone()
        if not torch.equal(first, again):
            raise ValueError(f"{dtype}: found other numbers at a second reading, wanted the same")
        torch.testing.assert_close(first, exactly(flats), rtol=1e-5, atol=0.0)


def exactly(flats: Sequence[Tensor]) -> Tensor:
    """(4, N), as `DeviceReader.read`."""
    rows: list[Tensor] = []
    for flat in flats:
        wide = flat.double()
        finite = wide.where(wide.isfinite(), 0.0)
        num_bad = (~wide.isfinite()).sum()
        zeros = (wide == 0.0).sum() / wide.numel()
        rows.append(torch.stack([finite.norm(), finite.abs().max(), num_bad, zeros]).float())
    return torch.stack(rows).T


@contextmanager
def no_waiting() -> Generator[None]:
    """While torch raises at what would make the host wait for the device."""
    cuda = cast(Any, torch.cuda)
    before = cuda.get_sync_debug_mode()
    cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        cuda.set_sync_debug_mode(before)


def milliseconds(works: Sequence[Callable[[], object]], num_rounds: int) -> list[float]:
    """The median of each, by turns; the first rounds, which compile and fill caches, left out. The
    device sleeps before each, so that all of it is queued by then: the host's time is another
    matter. Then it reads other memory, because what follows a copy would pay for the end of it,
    which the cache has yet to write."""
    times: list[list[tuple[Any, Any]]] = [[] for _ in works]
    neutral = torch.ones(NEUTRAL_BYTES // 4, device="cuda")
    total = torch.empty((), device="cuda")
    with no_waiting():
        for _ in range(num_rounds + 5):
            for work, mine in zip(works, times, strict=True):
                begin, end = (cast(Any, torch.cuda.Event)(enable_timing=True) for _ in range(2))
                cast(Any, torch.cuda)._sleep(AHEAD_CYCLES)
                torch.sum(neutral, dim=0, out=total)
                begin.record()
                work()
                end.record()
                mine.append((begin, end))
    torch.cuda.synchronize()
    return [statistics.median(begin.elapsed_time(end) for begin, end in mine[5:]) for mine in times]


def measure(reader: DeviceReader, device: torch.device, num_rounds: int) -> list[list[object]]:
    rows: list[list[object]] = []
    for dtype in (torch.float32, torch.bfloat16):
        flats = gradients(device, dtype)
        num_bytes = sum(flat.numel() * flat.element_size() for flat in flats)
        source = torch.empty(num_bytes, dtype=torch.uint8, device=device)
        target = torch.empty_like(source)
        works: list[Callable[[], object]] = [
            partial(target.copy_, source),
            partial(reader.read, flats),
            partial(ForeachReader().read, flats),
        ]
        copy_ms, kernel_ms, foreach_ms = milliseconds(works, num_rounds)
        share = num_bytes / kernel_ms / (2 * num_bytes / copy_ms)
        rows.append(
            [
                str(dtype).removeprefix("torch."),
                f"{2 * num_bytes / copy_ms / 1e9:.2f}",
                f"{num_bytes / kernel_ms / 1e9:.2f}",
                f"{share:.2f}",
                f"{kernel_ms * 1000:.0f}",
                f"{foreach_ms * 1000:.0f}",
            ]
        )
    return rows


def report(num_rounds: int) -> None:
    """Print what it finds and how fast it is, or why there is nothing to be measured."""
    if not torch.cuda.is_available():
        print("No CUDA or ROCm device answers here: there is nothing to measure.")
        return
    device = torch.device("cuda", torch.cuda.current_device())
    if not has_kernel(device):
        print("Triton is not installed: gradients are read by foreach operations here.")
        return
    reader = open_kernel(device)
    print(f"{torch.cuda.get_device_name(device)}, torch {torch.__version__}, {machine()}")
    check(reader, device)
    print(
        "The kernel finds what float64 finds, twice the same, and nothing waited for the device.\n"
    )
    heading = ["124 M", "copy, TB/s", "kernel, TB/s", "of copy", "kernel, µs", "foreach, µs"]
    print(markdown_table(heading, measure(reader, device, num_rounds)))
    print(f"\nWanted: at least {WANTED_SHARE} of the speed of a copy.")


def main() -> None:
    parser = argparse.ArgumentParser(
        description="The kernel that reads gradients, checked and timed."
    )
    parser.add_argument("--rounds", type=int, default=50)
    report(parser.parse_args().rounds)


if __name__ == "__main__":
    main()
