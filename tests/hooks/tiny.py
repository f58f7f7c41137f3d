"""A GPT small enough for a test, and the loops of a script that knows nothing of us."""

from collections.abc import Callable, Iterable

import torch
from tests.hooks.recorder import RecordingLine
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from runwatch.vocabulary import RunId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.ranks import SharedAttempt, alone
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options

TEAM = alone(SharedAttempt(RunId("0" * 26), "0" * 26, 0.0))
"""Of one process."""

VOCABULARY, WIDTH, LENGTH, BATCH = 17, 12, 8, 4

MakeOptimizer = Callable[[Iterable[nn.Parameter]], Optimizer]


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        mixed = self.dropout(self.out(mixed))
        return torch.add(x, mixed)


class TinyGpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten())


def tiny_gpt(seed: int = 0) -> TinyGpt:
    torch.manual_seed(seed)
    return TinyGpt()


def batch() -> tuple[Tensor, Tensor]:
    """Drawn from torch's global generator: a hook that touches it changes the losses."""
    tokens = torch.randint(VOCABULARY, (BATCH, LENGTH + 1))
    return tokens[:, :-1], tokens[:, 1:]


def train_one(model: TinyGpt, optimizer: Optimizer, max_norm: float | None = None) -> Tensor:
    optimizer.zero_grad()
    loss: Tensor = model(*batch())
    torch.autograd.backward(loss)
    if max_norm is not None:
        clip_grad_norm_(model.parameters(), max_norm)
    optimizer.step()
    return loss


def watched(
    model: nn.Module,
    *optimizers: Optimizer,
    line: RecordingLine,
    options: Options | None = None,
    scalers: tuple[torch.amp.GradScaler, ...] = (),
    schedulers: tuple[LRScheduler, ...] = (),
) -> LiveWatch:
    objects = Objects(
        modules={"": model}, optimizers=optimizers, scalers=scalers, schedulers=schedulers
    )
    return build_watch(objects, options or Options(), line.open, TEAM)
