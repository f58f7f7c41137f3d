"""Gradients that are hard to read in one pass, each list of them read at once."""

import math
from collections.abc import Callable
from typing import Final

import torch
from torch import Tensor

STRETCH: Final = 65_536
"""Elements that one program of the kernel reads."""
BLOCK: Final = 4_096


def drawn(*sizes: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(len(sizes))
    return [(torch.randn(size, generator=generator) * scale).to(dtype) for size in sizes]


def _with_holes() -> list[Tensor]:
    gradient = drawn(5 * STRETCH)[0]
    gradient[::3] = 0.0
    gradient[1::1000] = -0.0
    gradient[7::5000] = math.nan
    gradient[STRETCH + 5] = math.inf
    gradient[-1] = -math.inf
    return [gradient, *drawn(BLOCK + 1)]


CASES: Final[dict[str, Callable[[], list[Tensor]]]] = {
    "one element": lambda: [torch.tensor([-3.0])],
    "lengths around a block and a program": lambda: drawn(
        BLOCK - 1, BLOCK, BLOCK + 1, STRETCH - 1, STRETCH, STRETCH + 1, 3 * STRETCH + 17
    ),
    "zeros of either sign": lambda: [torch.zeros(3000), -torch.zeros(5), torch.tensor([0.0, 1.0])],
    "nothing but NaN": lambda: [torch.full((BLOCK + 3,), math.nan)],
    "NaN and infinities among others": _with_holes,
    "denormals": lambda: [torch.full((5000,), 1e-45), torch.tensor([1e-45, -1e-40, 1e-38])],
    "squares beyond float32": lambda: [torch.tensor([1e30, 3e38]), torch.full((40_000,), 1e25)],
    "squares below float32": lambda: drawn(40_000, scale=1e-30),
    "all sizes in one": lambda: [torch.tensor([1e-44, 1e-20, 1.0, 1e20]), torch.tensor([1e-44])],
    "bfloat16": lambda: drawn(10, STRETCH + 9, dtype=torch.bfloat16),
    "bfloat16 whose squares overflow": lambda: [torch.full((7,), 1e38, dtype=torch.bfloat16)],
    "float16": lambda: drawn(10, STRETCH + 9, dtype=torch.float16),
    "float16 whose squares overflow": lambda: [torch.full((9000,), 6e4, dtype=torch.float16)],
    "float16 denormals and bad ones": lambda: [
        torch.tensor([6e-8, math.inf, math.nan, 0.0], dtype=torch.float16)
    ],
    "float64, of which a float32 is read": lambda: drawn(300, dtype=torch.float64),
    "every type in one reading": lambda: [
        *drawn(100),
        *drawn(200, dtype=torch.bfloat16),
        *drawn(300, dtype=torch.float16),
        *drawn(400),
    ],
    "memory that is not aligned": lambda: [drawn(STRETCH + 5)[0][1:], *drawn(STRETCH)],
}
