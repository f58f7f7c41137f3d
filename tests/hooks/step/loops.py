"""A training of a few linear layers, for tests that are about what is seen of it."""

import torch
from torch import nn
from torch.optim import Optimizer

from runwatch_hooks.watch import Watch


def train(model: nn.Module, optimizer: Optimizer, watch: Watch, steps: int) -> None:
    for _ in range(steps):
        optimizer.zero_grad()
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        watch.step(loss=1.0)
