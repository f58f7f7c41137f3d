"""The training of the demo: a setting that is healthy, and that one bad step really ruins.

What was tried, with plain SGD, momentum 0.9, and the gradients of step 500 multiplied by ten,
judged by the mean loss of steps 600 to 649 relative to the same run without the fault: a GPT with
pre-norm recovers at every learning rate that trains it (1.02 to 1.04), and so does one without
norms (1.00). Post-norm with GELU is ruined on some seeds and not on others (1.07 to 1.6). Post-norm
with ReLU at a learning rate of 0.3 after 100 warm-up steps was ruined on nine of eleven seeds, at
0.4 after 300 on twelve of thirteen. A warm-up over the whole run allows a higher learning rate, and
the fault is then not recovered from: at 0.6 after 600, as here, each of ten seeds was ruined (1.54
or more), including those that had recovered before. Attention collapses, and the model only knows
the frequencies of letters, at a loss of 3.1.
"""

import sysconfig
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import torch
from torch import Tensor, nn
from torch.nn import functional

from runwatch_hooks.watch import StepReport, Watch

_LOGIT_CAP: Final = 15.0
"""Limit on the logits, as in Gemma 2, so that a ruined run ends with a bad loss and not with
NaN."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Sizes of the model.

    A character-level GPT of the smallest kind that still learns to spell. Shapes: B batch, T
    positions, D width, H heads, d width of a head, V letters.
    """

    vocabulary: int
    context: int = 64
    width: int = 64
    heads: int = 4
    blocks: int = 2


class Attention(nn.Module):
    """Causal self-attention."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.heads
        self.qkv = nn.Linear(shape.width, 3 * shape.width)
        self.out = nn.Linear(shape.width, shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        batch, positions, width = x_BTD.shape
        heads = self.qkv(x_BTD).view(batch, positions, 3, self.heads, width // self.heads)
        query, key, value = heads.permute(2, 0, 3, 1, 4)
        mixed_BHTd = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.out(mixed_BHTd.transpose(1, 2).reshape(batch, positions, width))
        return out


class Block(nn.Module):
    """Attention, then two layers with ReLU, each with post-norm, as in the transformer of 2017.

    Normalising after the residual sum ("post-norm") and ReLU make this model easy to ruin: one
    oversized step leaves dead units, and no path around them.
    """

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attention = Attention(shape)
        self.norm_1 = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, 4 * shape.width)
        self.down = nn.Linear(4 * shape.width, shape.width)
        self.norm_2 = nn.LayerNorm(shape.width)

    def forward(self, x_BTD: Tensor) -> Tensor:
        x_BTD = self.norm_1(x_BTD + self.attention(x_BTD))
        out: Tensor = self.norm_2(x_BTD + self.down(functional.relu(self.up(x_BTD))))
        return out


class GPT(nn.Module):
    """Logits of the next letter, shape (B, T, V), from letters, shape (B, T)."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.letters = nn.Embedding(shape.vocabulary, shape.width)
        self.positions = nn.Embedding(shape.context, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.blocks))
        self.head = nn.Linear(shape.width, shape.vocabulary)
        for embedding in (self.letters, self.positions):
            nn.init.normal_(embedding.weight, std=0.1)

    def forward(self, letters_BT: Tensor) -> Tensor:
        x_BTD = self.letters(letters_BT) + self.positions.weight[: letters_BT.shape[1]]
        for block in self.blocks:
            x_BTD = block(x_BTD)
        logits_BTV: Tensor = self.head(x_BTD)
        return _LOGIT_CAP * torch.tanh(logits_BTV / _LOGIT_CAP)


# Training text that is on every machine: the licence and sources of Python's standard library.
# Nothing is downloaded. The files are listed by name, so that machines with the same Python read
# the same text; files that a distribution has left out are skipped.

FILES: Final = (
    "LICENSE.txt",
    "argparse.py",
    "difflib.py",
    "doctest.py",
    "heapq.py",
    "inspect.py",
    "ipaddress.py",
    "optparse.py",
    "pickle.py",
    "shutil.py",
    "socket.py",
    "statistics.py",
    "subprocess.py",
    "tarfile.py",
    "threading.py",
    "typing.py",
)
"""Half a megabyte of English in docstrings and comments, and of Python around it."""

ALPHABET: Final = "\n" + "".join(map(chr, range(32, 127)))
"""Printable ASCII, so that the vocabulary does not depend on the text."""

_UNKNOWN: Final = ALPHABET.index("?")


def read_corpus(library: Path | None = None) -> Tensor:
    """The text as one sequence of token ids, shape (tokens,), int64."""
    folder = library or Path(sysconfig.get_path("stdlib"))
    found = [folder / name for name in FILES if (folder / name).is_file()]
    if not found:
        raise FileNotFoundError(
            f"{folder}: found none of Python's own source files, wanted {FILES}"
        )
    text = "\n".join(path.read_text(encoding="utf-8") for path in found)
    ids = {letter: index for index, letter in enumerate(ALPHABET)}
    return torch.tensor([ids.get(letter, _UNKNOWN) for letter in text])


def batch_at(corpus: Tensor, step: int, *, seed: int, batch: int, context: int) -> Tensor:
    """The batch of a step, shape (batch, context + 1).

    It depends on the step alone, so that a run rolled back to an earlier step reads the same batch
    again, without a loader whose position would have to be restored.
    """
    generator = torch.Generator().manual_seed(seed * 1_000_003 + step)
    starts = torch.randint(len(corpus) - context, (batch, 1), generator=generator)
    return corpus[starts + torch.arange(context + 1)]


_PAUSE_S: Final = 0.25
"""After each step that the fault has spoiled. Otherwise the alert would be over half a second later
(20 rows) and the training in three, and a service that a busy disk holds up for longer could not
bring the run back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """Everything that decides the losses, apart from the text."""

    steps: int = 600
    seed: int = 0
    batch: int = 24
    context: int = 64
    lr: float = 0.6
    momentum: float = 0.9
    warmup_steps: int = 600
    snapshot_every: int = 25


@dataclass(slots=True)
class Fault:
    """A transient fault: the gradients of one step are too large, once.

    It depends on the moment, like a flipped bit, and not on the data: when a rollback repeats the
    step, it is healthy. So the fault is not part of the training state.
    """

    step: int
    factor: float = 10.0
    is_over: bool = False

    def strike(self, step: int, parameters: Iterable[nn.Parameter]) -> None:
        """Spoil the gradients if this is the step, for the first time."""
        if self.is_over or step != self.step:
            return
        self.is_over = True
        for parameter in parameters:
            if parameter.grad is not None:
                parameter.grad.mul_(self.factor)


class Training:
    """Model, optimizer and schedule of a setting, trained one step at a time."""

    def __init__(self, setting: Setting, corpus: Tensor, fault: Fault | None) -> None:
        torch.manual_seed(setting.seed)
        self._setting = setting
        self._corpus = corpus
        self._fault = fault
        self.model = GPT(Shape(vocabulary=len(ALPHABET), context=setting.context))
        self.optimizer = torch.optim.SGD(
            self.model.parameters(), lr=setting.lr, momentum=setting.momentum
        )
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: min(1.0, (step + 1) / setting.warmup_steps)
        )

    @property
    def is_spoiled(self) -> bool:
        """Whether the fault has struck. That a rollback has undone it is not known here."""
        return self._fault is not None and self._fault.is_over

    def step(self, step: int) -> Tensor:
        """Train one step; returns its loss."""
        loss = self._loss(step)
        self.optimizer.zero_grad()
        torch.autograd.backward(loss)
        if self._fault is not None:
            self._fault.strike(step, self.model.parameters())
        self.optimizer.step()
        self.scheduler.step()
        return loss.detach()

    def _loss(self, step: int) -> Tensor:
        letters = batch_at(
            self._corpus,
            step,
            seed=self._setting.seed,
            batch=self._setting.batch,
            context=self._setting.context,
        )
        logits: Tensor = self.model(letters[:, :-1])
        return functional.cross_entropy(logits.flatten(0, 1), letters[:, 1:].flatten())


Told = Callable[[int, float, StepReport | None], None]
"""Called for each step with its number, its loss, and the hook's report."""


def train_alone(training: Training, setting: Setting, tell: Told) -> None:
    """The loop as it is without Runwatch."""
    for step in range(setting.steps):
        loss = training.step(step)
        tell(step, loss.item(), None)


def train_watched(training: Training, setting: Setting, tell: Told, watch: Watch) -> None:
    """The same loop with the hook's two lines: `watch.steps`, and `watch.step` after each step."""
    is_saved = False
    for step in watch.steps(setting.steps):
        loss = training.step(step)
        report = watch.step(loss, tokens=setting.batch * setting.context)
        tell(step, loss.item(), report)
        is_saved |= report.rolled_back_to is not None
        if training.is_spoiled and not is_saved:
            time.sleep(_PAUSE_S)
