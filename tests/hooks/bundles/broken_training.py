"""A small training with a fault planted in it, and the other half of its replay.

    python broken_training.py FAULT BUNDLES SPOOL

FAULT is `log` (of a negative number, in the forward pass), `root` (of zero: only its gradient is
infinite), `norm` (of zeros, by hand: only its gradient is), `mask` (of a whole row), or `given`
(a NaN in the data). TRAINED_ON names an accelerator, in the replay too: there a fault is known too
late for the state of before it, so that a good one is kept.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from runwatch_hooks import attach
from runwatch_hooks.bundles import Bundle

kept: dict[str, Any] = {}
if "TRAINED_ON" in os.environ:
    torch.set_default_device(os.environ["TRAINED_ON"])
    kept |= {"allow": ["rollback"], "snapshot_every": 1, "good_after": 1}

FAULT_STEP = 7
STEPS = 11


class Log(nn.Module):
    def forward(self, x: Tensor, is_bad: bool) -> Tensor:
        sign = -1.0 if is_bad else 1.0
        return torch.log(sign * (x.abs() + 1.0))


class Root(nn.Module):
    def forward(self, x: Tensor, is_bad: bool) -> Tensor:
        return torch.sqrt(x * 0.0 if is_bad else x.abs() + 1.0)


class Norm(nn.Module):
    def forward(self, x: Tensor, is_bad: bool) -> Tensor:
        centred = x - (x if is_bad else x.mean())
        return x + centred.square().sum(-1, keepdim=True).sqrt()


class Mask(nn.Module):
    def forward(self, x: Tensor, is_bad: bool) -> Tensor:
        seen = torch.ones(len(x), len(x), dtype=torch.bool).tril()
        seen[0] &= not is_bad
        scores = (x @ x.T).masked_fill(~seen, float("-inf"))
        return scores.softmax(-1) @ x


class Nothing(nn.Module):
    def forward(self, x: Tensor, is_bad: bool) -> Tensor:
        return x


KINDS: dict[str, Callable[[], nn.Module]] = {
    "log": Log, "root": Root, "norm": Norm, "mask": Mask, "given": Nothing,
}  # fmt: skip

Batch = dict[str, Tensor]


class Model(nn.Module):
    def __init__(self, fault: str) -> None:
        super().__init__()
        self.first = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.2)
        self.planted = KINDS[fault]()
        self.last = nn.Linear(4, 1)

    def forward(self, batch: Batch) -> Tensor:
        hidden = self.dropout(self.first(batch["x"]))
        loss: Tensor = self.last(self.planted(hidden, bool(batch["is_bad"]))).square().mean()
        return loss


def batches(fault: str) -> list[Batch]:
    made = [
        {"x": torch.randn(6, 4), "is_bad": torch.tensor(step == FAULT_STEP)}
        for step in range(STEPS)
    ]
    if fault == "given":
        made[FAULT_STEP]["x"][2, 3] = torch.nan
    return made


def main(fault: str, bundles: Path, spool: Path) -> None:
    torch.manual_seed(0)
    torch.set_num_threads(1)
    model = Model(fault)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with attach(model, optimizer, run=fault, bundles=bundles, spool=spool, **kept) as watch:
        for batch in watch.batches(batches(fault)):
            optimizer.zero_grad()
            loss = model(batch)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            watch.step(loss)


def _program(bundle: Bundle, fault: str) -> tuple[nn.Module, Callable[[object], Tensor]]:
    return _with_loss(Model(fault))


def _with_loss(model: nn.Module) -> tuple[nn.Module, Callable[[object], Tensor]]:
    device = torch.get_default_device()  # a bundle's batches lie on the host

    def loss_of(batch: object) -> Tensor:
        placed = {name: one.to(device) for name, one in cast(Batch, batch).items()}
        return cast(Tensor, model(placed))

    return model, loss_of


def log(bundle: Bundle) -> object:
    return _program(bundle, "log")


def root(bundle: Bundle) -> object:
    return _program(bundle, "root")


def norm(bundle: Bundle) -> object:
    return _program(bundle, "norm")


def healed(bundle: Bundle) -> object:
    """As if the fault had been mended."""
    model = Model("log")
    model.planted = Nothing()
    return _with_loss(model)


def mask(bundle: Bundle) -> object:
    return _program(bundle, "mask")


def given(bundle: Bundle) -> object:
    return _program(bundle, "given")


def of_another_size(bundle: Bundle) -> object:
    return _with_loss(nn.Linear(4, 4))


def that_fails(bundle: Bundle) -> object:
    raise OSError("no such corpus")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
