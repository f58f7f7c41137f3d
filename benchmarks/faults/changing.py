"""Healthy programs whose task changes while they train: their loss leaps, and is meant to."""

from copy import deepcopy
from typing import Final

import torch
from benchmarks.faults.drawing import BATCH, cross_entropy, generator_at
from benchmarks.faults.loop import Batch, Program
from benchmarks.faults.models import MLP
from torch import Tensor, nn
from torch.nn import functional

_TASK_STEPS: Final = 180
_TARGET_STEPS: Final = 100


def new_classes(seed: int) -> Program:
    """Ten classes that come two at a time; each pair is known before the next one comes."""
    model = MLP((144, 96, 10))
    patterns = torch.randn(10, 144, generator=torch.Generator().manual_seed(7))

    def batch(step: int) -> Batch:
        generator = generator_at(seed, step)
        first = 2 * min(step // _TASK_STEPS, 4)
        labels = torch.randint(first, first + 2, (BATCH,), generator=generator)
        return patterns[labels] + torch.randn(BATCH, 144, generator=generator), labels

    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    return Program(model=model, optimizer=optimizer, batch_at=batch, loss_of=cross_entropy)


def q_learning(seed: int) -> Program:
    """A DQN: what it is to predict is made by a copy of it, which is renewed now and then."""
    model = MLP((6, 64, 64, 3))
    target = deepcopy(model)
    world = 0.3 * torch.randn(6, 6, generator=torch.Generator().manual_seed(1))

    def batch(step: int) -> Batch:
        generator = generator_at(seed, step)
        states = torch.randn(2 * BATCH, 6, generator=generator)
        return (
            torch.full((len(states),), step),
            states,
            torch.randint(3, (2 * BATCH,), generator=generator),
        )

    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        step, states, actions = batch
        if int(step[0]) % _TARGET_STEPS == 0:
            target.load_state_dict(model.state_dict())
        with torch.no_grad():
            after = (states @ world + 0.3 * actions[:, None]).tanh()
            worth = (after[:, 0] > 0).float() + 0.97 * target(after).max(1).values
        return functional.mse_loss(model(states).gather(1, actions[:, None])[:, 0], worth)

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Program(model=model, optimizer=optimizer, batch_at=batch, loss_of=loss_of)
