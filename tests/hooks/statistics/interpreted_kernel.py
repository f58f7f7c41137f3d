"""Reads gradients by the accelerator's kernel, in Triton's interpreter on a CPU.

TRITON_INTERPRET=1 python interpreted_kernel.py RESULTS
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import torch
from tests.hooks.statistics.kernel_cases import BLOCK, CASES, STRETCH, drawn
from torch import Tensor

from runwatch_hooks.statistics import gpu_grouped
from runwatch_hooks.statistics.gpu import DeviceStatistics
from runwatch_hooks.statistics.gpu_grouped import GroupedReader
from runwatch_hooks.statistics.gpu_reading import ForeachReader
from runwatch_hooks.statistics.readback import absent
from runwatch_hooks.statistics.samples import sample
from runwatch_hooks.statistics.totals import GRAD_NORM, STATS, UPDATE_RATIO, ZERO_FRAC

CPU = torch.device("cpu")


def read_again() -> list[Tensor]:
    """Tensors of the same lengths at other addresses, as gradients are where they are set to
    None; and others in between, of other lengths."""
    reader = GroupedReader(CPU)
    first, second = drawn(700, 5000), [one + 1.0 for one in drawn(700, 5000)]
    found = [reader.read(first).clone(), reader.read(second).clone()]
    reader.read(drawn(3))
    return [*found, reader.read(first).clone()]


def read_by_turns() -> tuple[list[Tensor], list[int]]:
    """Other tensors at each reading, as with a mixture of experts, by a reader that has room for
    the tables of two sets or three; and what it keeps after each."""
    reader = GroupedReader(CPU, room_bytes=12_000)
    experts = drawn(*range(100, 1000, 100))
    found: list[Tensor] = []
    kept: list[int] = []
    for turn in (0, 1, 2, 3, 0, 4, 5, 6):
        found.append(reader.read(experts[turn : turn + 2]).clone())
        kept.append(reader.num_bytes)
    return found, kept


def statistics_of(grads: list[Tensor]) -> Tensor:
    statistics = DeviceStatistics([torch.ones(one.shape) for one in grads], CPU, GroupedReader(CPU))
    statistics.read_gradients(range(len(grads)), grads, torch.tensor(2.0))
    return statistics.take()


def sizes_in_force() -> tuple[int, int]:
    """Around which the cases are chosen."""
    return gpu_grouped.STRETCH, gpu_grouped._BLOCK  # pyright: ignore[reportPrivateUsage]


def copied(tensors: Sequence[Tensor]) -> list[Tensor]:
    copies = [one.clone() for one in tensors]
    copies[5] = copies[5].new_empty(20, 30)[:, ::2]
    return copies


def samples() -> dict[str, Tensor]:
    """What our kernels say of samples of several types, beside what torch's operations do: before
    a step, in which tensors move, and after it; at last in one that puts them elsewhere."""
    tensors = [
        *drawn(10, 100_000),
        *drawn(5000, dtype=torch.bfloat16),
        *drawn(70, dtype=torch.float16),
        torch.empty(0),
        drawn(600)[0].view(20, 30)[:, ::2],  # leaves gaps: no sample
        *drawn(3),
    ]
    tensors[1][::7], tensors[3][5] = torch.inf, torch.nan
    found: dict[str, Tensor] = {}
    for name, reader in (("ours", GroupedReader(CPU)), ("torch's", ForeachReader())):
        ours = copied(tensors)
        held = reader.open_samples(ours, [sample(one) for one in ours])
        for step in range(2):
            held.remember()
            found[f"{name}, broken, {step}"] = held.broken().clone()
            for one in ours:
                one.mul_(0.5)
            found[f"{name}, squares, {step}"] = held.squares().clone()
        held.remember()
        elsewhere = copied(ours)
        for one in elsewhere:
            one.mul_(0.5)
        others = reader.open_samples(elsewhere, [sample(one) for one in elsewhere])
        assert held.remembered is not None
        others.recall(held.remembered)
        found[f"{name}, squares, 2"] = others.squares().clone()
    return found


def ratios() -> dict[str, Tensor]:
    """What our kernel makes of all that decides about a ratio, in every combination, beside what
    torch's operations do. There are more tensors than one program finishes."""
    sizes = [0.0, 1e-30, 2.0, torch.inf, torch.nan]
    squares, norms, grad_norms, zero_shares, limits = torch.cartesian_prod(
        *map(torch.tensor, (sizes, sizes, sizes, [0.0, 0.7, torch.nan], [0.5, torch.inf]))
    ).T
    found: dict[str, Tensor] = {}
    for name, reader in (("ours", GroupedReader(CPU)), ("torch's", ForeachReader())):
        stats = absent(len(STATS), len(squares), device=CPU)
        stats[UPDATE_RATIO, :-1] = squares[:-1]
        stats[GRAD_NORM], stats[ZERO_FRAC] = grad_norms, zero_shares
        reader.finish_ratios(stats, norms.contiguous(), limits.contiguous())
        found[name] = stats
    return found


def main(results: Path) -> None:
    assert sizes_in_force() == (STRETCH, BLOCK)
    found = {name: GroupedReader(CPU).read(make()).clone() for name, make in CASES.items()}
    transposed = drawn(600)[0].view(20, 30).T
    torch.save(
        {
            "cases": found,
            "again": read_again(),
            "by_turns": read_by_turns(),
            "samples": samples(),
            "ratios": ratios(),
            "stats": statistics_of([*drawn(10), torch.empty(0), transposed]),
        },
        results,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
