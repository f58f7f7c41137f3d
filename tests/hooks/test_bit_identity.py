"""A script trains to the same bits with the hook and without."""

import math
from collections.abc import Callable

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import BATCH, batch, tiny_gpt, watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from runwatch_hooks.settings.options import Options

pytestmark = pytest.mark.slow

NUM_STEPS = 200

EVERYTHING = Options(
    allow=("checkpoint", "lower_lr", "rollback", "stop"),
    snapshot_every=7,
    good_after=3,
    histograms=3,
    activations=2,
)


def make(kind: str, model: nn.Module) -> Optimizer:
    parameters = model.parameters()
    match kind:
        case "adamw":
            return torch.optim.AdamW(parameters, lr=1e-2, foreach=True)
        case "adamw-fused":
            return torch.optim.AdamW(parameters, lr=1e-2, fused=True)
        case _:
            return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def train(
    kind: str, body: Callable[[nn.Module, Optimizer], Tensor], line: RecordingLine | None
) -> tuple[list[float], bytes]:
    """The losses of a script, and the bits of its parameters at the end."""
    model = tiny_gpt()
    optimizer = make(kind, model)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, NUM_STEPS)
    watch = watched(model, optimizer, line=line, options=EVERYTHING) if line is not None else None
    losses: list[float] = []
    for _ in range(NUM_STEPS):
        loss = body(model, optimizer)
        scheduler.step()
        if watch is not None:
            watch.step(loss, tokens=BATCH)
        losses.append(loss.item())
    if watch is not None:
        watch.finish()
        assert watch.num_faults == 0
    return losses, b"".join(one.detach().numpy().tobytes() for one in model.parameters())


def plain(model: nn.Module, optimizer: Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = model(*batch())
    torch.autograd.backward(loss)
    optimizer.step()
    return loss


def clipped(model: nn.Module, optimizer: Optimizer) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = model(*batch())
    torch.autograd.backward(loss)
    clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    return loss


def accumulated(model: nn.Module, optimizer: Optimizer) -> Tensor:
    optimizer.zero_grad(set_to_none=False)
    losses = [model(*batch()) / 3 for _ in range(3)]
    for loss in losses:
        torch.autograd.backward(loss)
    clip_grad_norm_(iter(list(model.parameters())), 0.5)
    optimizer.step()
    return torch.stack(losses).sum()


def scaled() -> Callable[[nn.Module, Optimizer], Tensor]:
    """With a loss scaler, an Inf at the fifth step, and a scale that grows until it overflows."""
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=20)
    steps = iter(range(NUM_STEPS))

    def body(model: nn.Module, optimizer: Optimizer) -> Tensor:
        optimizer.zero_grad()
        loss: Tensor = model(*batch())
        torch.autograd.backward(scaler.scale(loss))
        if next(steps) == 5:
            grad = next(model.parameters()).grad
            assert grad is not None
            grad[0, 0] = torch.inf
        scaler.unscale_(optimizer)
        clip_grad_norm_(model.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
        return loss

    return body


@pytest.mark.parametrize("kind", ["adamw", "adamw-fused", "sgd"])
@pytest.mark.parametrize("body", [plain, clipped, accumulated], ids=lambda body: body.__name__)
def test_a_script_trains_to_the_same_bits_with_the_hook(
    kind: str, body: Callable[[nn.Module, Optimizer], Tensor], line: RecordingLine
) -> None:
    without = train(kind, body, None)

    assert train(kind, body, line) == without
    assert len(line.metric("loss")) == NUM_STEPS
    assert sum(bool(row.histograms) for row in line.rows) == math.ceil(NUM_STEPS / 3)
    assert len(line.rows) > NUM_STEPS + NUM_STEPS / 3  # and activations


@pytest.mark.parametrize("kind", ["adamw", "adamw-fused", "sgd"])
def test_so_it_does_with_a_loss_scaler(kind: str, line: RecordingLine) -> None:
    without = train(kind, scaled(), None)

    assert train(kind, scaled(), line) == without
    assert line.metric("skipped")[:8] == [0, 0, 0, 0, 0, 1, 0, 0]
