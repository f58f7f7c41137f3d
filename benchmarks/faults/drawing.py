"""What several healthy programs share: how a batch is drawn, and the loss where one classifies."""

from typing import Final

import torch
from benchmarks.faults.loop import Batch
from torch import Tensor, nn
from torch.nn import functional

BATCH: Final = 32


def generator_at(seed: int, step: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed * 1_000_003 + step)


def cross_entropy(model: nn.Module, batch: Batch) -> Tensor:
    inputs, labels = batch
    return functional.cross_entropy(model(inputs), labels)
