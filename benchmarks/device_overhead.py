"""What does watching cost a training on an accelerator, and does it ever wait for the device?

All that is to be known of a card, by one command on a machine that has one:

    python -m benchmarks.device_overhead

First the kernel by itself (`benchmarks.device_kernel`). Then a GPT of 124 M parameters, in bfloat16
under autocast, fused AdamW, by steps of 16 384 and of 65 536 tokens (gradients of four batches
added up): bare loops and a watched one take turns in one process, in an order shuffled anew each
round, each with a model and an optimizer of its own. A turn ends when the device is done; a round
gives each variant's time as a multiple of the bare loop's in it; medians, and bootstrap intervals.
At last some steps of each under torch's profiler: how often the host waited, how many kernels ran,
and how long. Wanted: a ratio of 1.005 at most, and not one wait more than the bare loop has.

Without a card a small model is trained on the CPU, which says nothing about a card and shows that
the program runs.
"""

import argparse
import copy
import gc
import random
import statistics
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, cast

import torch
from benchmarks import device_kernel
from benchmarks.harness import machine, markdown_table, median_interval
from torch import Tensor, nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile

from runwatch_hooks import Watch, attach
from runwatch_hooks.demo.training import GPT, Shape

_CUDA: Final[Any] = torch.cuda  # torch leaves these functions without types


@dataclass(frozen=True, slots=True)
class Size:
    """A model, the rows of its batch, and the tokens of its steps."""

    shape: Shape
    num_rows: int
    tokens: tuple[int, ...]


SIZES: Final = {
    "124M": Size(
        Shape(vocabulary=50_257, context=1024, width=768, heads=12, blocks=12), 16, (16_384, 65_536)
    ),
    "small": Size(Shape(vocabulary=64, context=16, width=16, heads=2, blocks=2), 2, (32, 128)),
}
WARM_UP: Final = 3
PROFILED: Final = 3
WAITS: Final = (
    "StreamSynchronize", "DeviceSynchronize", "EventSynchronize", "cudaMemcpy", "hipMemcpy",
)  # fmt: skip
"""Ends of names of what makes the host wait, as CUDA and ROCm call it; copies that are not waited
for are called cudaMemcpyAsync. The profiler waits once for the device, at its end."""


class Trained:
    """A training of its own, from the same weights as the others."""

    def __init__(
        self, model: nn.Module, batches: Sequence[Tensor], num_batches: int, *, compiled: bool
    ) -> None:
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4, fused=True)
        self.watch: Watch | None = None
        self.seconds: list[float] = []
        """Of a step, turn by turn."""
        self._batches = batches
        self._num_batches = num_batches
        self._device = batches[0].device
        self._forward = cast(Any, torch.compile)(self.model) if compiled else self.model
        self._num_forward = 0

    def turn(self, num_steps: int) -> None:
        finish(self._device)
        began = time.perf_counter()
        for _ in range(num_steps):
            self.step()
        finish(self._device)
        self.seconds.append((time.perf_counter() - began) / num_steps)

    def step(self) -> None:
        losses = [self._backward() for _ in range(self._num_batches)]
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.watch is not None:
            self.watch.step(losses[-1])

    def _backward(self) -> Tensor:
        letters = self._batches[self._num_forward % len(self._batches)]
        self._num_forward += 1
        with torch.autocast(self._device.type, dtype=torch.bfloat16):
            logits: Tensor = self._forward(letters[:, :-1])
            loss = functional.cross_entropy(logits.flatten(0, 1), letters[:, 1:].flatten())
        torch.autograd.backward(loss / self._num_batches)
        return loss.detach()


def finish(device: torch.device) -> None:
    """Until the device has done all that is queued."""
    if device.type == "cuda":
        _CUDA.synchronize(device)


@dataclass(slots=True)
class Profile:
    """Of a step."""

    num_waits: float
    num_launched: float
    device_ms: float


def profiled(trained: Trained, device: torch.device) -> Profile:
    activities = [ProfilerActivity.CPU]
    if device.type == "cuda":
        activities.append(ProfilerActivity.CUDA)
    with profile(activities=activities) as found:
        for _ in range(PROFILED):
            trained.step()
    events = list(cast(Any, found).key_averages())
    kernels = [one for one in events if one.device_type.name == "CUDA"]
    return Profile(
        num_waits=sum(one.count for one in events if one.key.endswith(WAITS)) / PROFILED,
        num_launched=sum(one.count for one in kernels) / PROFILED,
        device_ms=sum(one.self_device_time_total for one in kernels) / 1000.0 / PROFILED,
    )


def peak_mib(trained: Trained, device: torch.device) -> float:
    """Of the device's memory in one step, above what is held between steps."""
    if device.type != "cuda":
        return float("nan")
    _CUDA.reset_peak_memory_stats(device)
    held = _CUDA.memory_allocated(device)
    trained.step()
    return float(_CUDA.max_memory_allocated(device) - held) / 2**20


def take_turns(variants: dict[str, Trained], num_rounds: int, num_steps: int) -> None:
    order = list(variants.values())
    shuffle = random.Random(1)
    for one in order:
        one.turn(WARM_UP)
        one.seconds.clear()
    for _ in range(num_rounds):
        shuffle.shuffle(order)
        for one in order:
            gc.collect()
            one.turn(num_steps)


def rows_of(variants: dict[str, Trained], tokens: int, device: torch.device) -> list[list[object]]:
    bare = variants["bare"].seconds
    rows: list[list[object]] = []
    for name, one in variants.items():
        ratios = [mine / base for mine, base in zip(one.seconds, bare, strict=True)]
        ratio, low, high = median_interval(ratios)
        seen = profiled(one, device)
        rows.append(
            [
                tokens,
                name,
                f"{1000 * statistics.median(one.seconds):.2f}",
                f"{ratio:.4f}",
                f"{low:.4f} to {high:.4f}",
                f"{seen.num_waits:.1f}",
                f"{seen.num_launched:.0f}",
                f"{seen.device_ms:.2f}",
                f"{peak_mib(one, device):.0f}",
            ]
        )
    return rows


def measure(
    size: Size, tokens: int, device: torch.device, options: argparse.Namespace
) -> list[list[object]]:
    """Raises ValueError where a part of the hook had a fault: what is left says nothing."""
    torch.manual_seed(0)
    model = GPT(size.shape)
    model.head.weight = model.letters.weight  # as GPT-2: 124 M, and not 163
    model.to(device)
    shape = (8, size.num_rows, size.shape.context + 1)
    batches = list(torch.randint(size.shape.vocabulary, shape).to(device))
    num_batches = max(tokens // (size.num_rows * size.shape.context), 1)
    names = ("bare", "bare again", "Runwatch")
    variants = {
        name: Trained(model, batches, num_batches, compiled=options.compile) for name in names
    }
    with tempfile.TemporaryDirectory(prefix="runwatch-bench-") as name, ExitStack() as stack:
        ours = variants["Runwatch"]
        ours.watch = stack.enter_context(
            attach(ours.model, ours.optimizer, run="bench", spool=Path(name), allow=())
        )
        take_turns(variants, options.rounds, options.steps)
        rows = rows_of(variants, tokens, device)
        if num_faults := cast(Any, ours.watch).num_faults:
            raise ValueError(f"found {num_faults} faults of the hook, wanted none: see the log")
    return rows


def main() -> None:
    options = _options()
    size = SIZES[options.model]
    device = torch.device(options.device)
    device_kernel.report(num_rounds=50)
    print(f"\n{machine()}, {device}, a GPT of {options.model}, {options.rounds} rounds\n")
    heading = [
        "tokens a step", "variant", "step, ms", "ratio to bare", "95 % interval",
        "waits a step", "kernels a step", "device, ms a step", "memory in a step, MiB",
    ]  # fmt: skip
    rows = [row for tokens in size.tokens for row in measure(size, tokens, device, options)]
    print(markdown_table(heading, rows))
    print("\nWanted: a ratio of 1.005 at most, and the waits of the bare loop.")


def _options() -> argparse.Namespace:
    has_card = torch.cuda.is_available()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda" if has_card else "cpu")
    parser.add_argument("--model", choices=SIZES, default="124M" if has_card else "small")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--steps", type=int, default=5, help="of each turn")
    parser.add_argument("--compile", action="store_true", help="by torch.compile")
    return parser.parse_args()


if __name__ == "__main__":
    main()
