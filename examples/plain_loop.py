"""A training program of the nanoGPT kind with the three lines of Runwatch.

    python examples/plain_loop.py --steps 300 --checkpoints out/

Reads its own interpreter's typing module, character by character. Every batch is a function of
the step's number, so that a rollback repeats, or skips, exactly the batches that it should.
RUNWATCH_URL and RUNWATCH_TOKEN name the service; without them a spool is written.
"""

import argparse
import json
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from runwatch_hooks import attach

CONTEXT = 32
BATCH = 16


class Block(nn.Module):
    def __init__(self, width: int, num_heads: int) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width)
        self.attn = nn.MultiheadAttention(width, num_heads, dropout=0.1, batch_first=True)
        self.norm2 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        h = self.norm1(x)
        x = x + self.attn(h, h, h, attn_mask=mask, need_weights=False)[0]
        mixed: Tensor = x + self.mlp(self.norm2(x))
        return mixed


class TinyGpt(nn.Module):
    mask: Tensor

    def __init__(self, num_tokens: int, width: int = 64, num_blocks: int = 2) -> None:
        super().__init__()
        self.tokens = nn.Embedding(num_tokens, width)
        self.places = nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, 4) for _ in range(num_blocks))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, num_tokens, bias=False)
        self.register_buffer("mask", torch.full((CONTEXT, CONTEXT), float("-inf")).triu(1))

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.tokens(tokens) + self.places.weight
        for block in self.blocks:
            x = block(x, self.mask)
        logits: Tensor = self.head(self.norm(x))
        return logits


@dataclass(frozen=True)
class Corpus:
    ids: Tensor
    num_tokens: int

    @classmethod
    def of_python(cls) -> "Corpus":
        text = (Path(sysconfig.get_path("stdlib")) / "typing.py").read_text(encoding="utf-8")
        letters = {letter: index for index, letter in enumerate(sorted(set(text)))}
        return cls(torch.tensor([letters[letter] for letter in text]), len(letters))

    def batch(self, step: int) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(step)
        starts = torch.randint(len(self.ids) - CONTEXT - 1, (BATCH,), generator=generator)
        rows = starts[:, None] + torch.arange(CONTEXT + 1)
        tokens = self.ids[rows]
        return tokens[:, :-1], tokens[:, 1:]


def main() -> None:
    arguments = parse()
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(1)
    corpus = Corpus.of_python()
    model = TinyGpt(corpus.num_tokens)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, arguments.steps)

    def train_one(step: int) -> Tensor:
        x, y = corpus.batch(step)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        if step in faults:
            faults.remove(step)  # a passing fault: the second time round it is not there
            for parameter in model.parameters():
                if parameter.grad is not None:
                    parameter.grad.mul_(arguments.fault_factor)
        optimizer.step()
        scheduler.step()
        return loss.detach()

    faults = set(arguments.fault_at)
    with (
        attach(
            model,
            optimizer,
            run=arguments.run,
            scheduler=scheduler,
            checkpoints=arguments.checkpoints,
            snapshot_every=10,
            allow=("checkpoint", "detail", "lower_lr", "rollback", "stop"),
        ) as watch,
        arguments.losses.open("w") as losses,
    ):
        if arguments.checkpoints is not None:
            watch.resume()
        for step in watch.steps(arguments.steps):
            loss = train_one(step)
            report = watch.step(loss, tokens=BATCH * CONTEXT)
            losses.write(json.dumps({"step": step, "loss": float(loss).hex()}) + "\n")
            losses.flush()
            if report.rolled_back_to is not None:
                print(f"step {step}: back to {report.rolled_back_to}", flush=True)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", default="plain-loop")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--checkpoints", type=Path, help="a folder, resumed from if it has any")
    parser.add_argument("--losses", type=Path, default=Path("losses.jsonl"), help="bit for bit")
    parser.add_argument("--fault-at", type=int, action="append", default=[], metavar="STEP")
    parser.add_argument("--fault-factor", type=float, default=float("nan"))
    return parser.parse_args()


if __name__ == "__main__":
    main()
