"""Ways of training, each in a few lines, and each watched by the same call.

    python examples/ways.py amp-fused --steps 100

RUNWATCH_URL and RUNWATCH_TOKEN name the service; without them a spool is written. The loops differ
as people's loops do; what Runwatch needs of each is the two lines that name it.
"""

import argparse
import copy
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint  # pyright: ignore[reportUnknownVariableType]

from runwatch_hooks import Watch, attach

Way = Callable[[int], Watch]


class Mixer(nn.Module):
    """A small network of residual blocks; with `again`, activations are computed twice."""

    def __init__(self, width: int = 32, num_blocks: int = 3, *, again: bool = False) -> None:
        super().__init__()
        self.first = nn.Linear(2, width)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU())
            for _ in range(num_blocks)
        )
        self.last = nn.Linear(width, 1)
        self.again = again

    def forward(self, x: Tensor) -> Tensor:
        h: Tensor = self.first(x)
        for block in self.blocks:
            again = cast(Any, checkpoint)(block, h, use_reentrant=False) if self.again else None
            h = h + (block(h) if again is None else again)
        y: Tensor = self.last(h)
        return y


def batch(size: int = 32) -> tuple[Tensor, Tensor]:
    x = 2 * torch.rand(size, 2) - 1
    return x, torch.sin(3 * x[:, :1]) * torch.cos(2 * x[:, 1:])


def loss_of(model: nn.Module) -> Tensor:
    x, y = batch()
    return F.mse_loss(model(x), y)


def backward(loss: Tensor) -> None:
    torch.autograd.backward(loss)


def accumulation(steps: int) -> Watch:
    """Gradients of four batches a step; one row a step."""
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    watch = attach(model, optimizer, run="accumulation")
    for _ in watch.steps(steps):
        parts: list[Tensor] = []
        for _ in range(4):
            loss = loss_of(model) / 4
            backward(loss)
            parts.append(loss.detach())
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        watch.step(torch.stack(parts).sum())
    return watch


def amp(steps: int, *, fused: bool = False) -> Watch:
    """fp16 under autocast, with a GradScaler: its skipped steps are rows, too."""
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**20, growth_interval=20)
    watch = attach(model, optimizer, run="amp", scaler=scaler)
    for _ in watch.steps(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = loss_of(model)
        backward(scaler.scale(loss))
        if not fused:
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        watch.step(loss)
    return watch


def amp_fused(steps: int) -> Watch:
    """The same with an optimizer that unscales, and skips, by itself."""
    return amp(steps, fused=True)


def bf16(steps: int) -> Watch:
    model = Mixer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    watch = attach(model, optimizer, run="bf16")
    for _ in watch.steps(steps):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = loss_of(model)
        backward(loss)
        optimizer.step()
        watch.step(loss)
    return watch


def compiled(steps: int, backend: str = "inductor") -> Watch:
    """Both the model and the optimizer's step compiled. The hook stays outside of both."""
    plain = Mixer()
    model = cast(nn.Module, torch.compile(plain, backend=backend))
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(3e-3))
    watch = attach(model, optimizer, run="compiled")
    step_of_optimizer = cast(
        "Callable[[], None]", torch.compile(cast(Any, optimizer).step, backend=backend)
    )
    for _ in watch.steps(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        backward(loss)
        step_of_optimizer()
        watch.step(loss)
    return watch


def several_optimizers(steps: int) -> Watch:
    """Muon for the blocks' matrices, AdamW for the rest: one row holds both."""
    model = Mixer()
    matrices = [one for one in model.blocks.parameters() if one.dim() == 2]
    others = [one for one in model.parameters() if all(one is not other for other in matrices)]
    optimizers = [torch.optim.Muon(matrices, lr=1e-3), torch.optim.AdamW(others, lr=3e-3)]
    watch = attach(model, optimizers, run="several-optimizers")
    for _ in watch.steps(steps):
        loss = loss_of(model)
        backward(loss)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        watch.step(loss)
    return watch


def lbfgs(steps: int) -> Watch:
    """A closure, evaluated several times a step: the gradients told are those of the last time."""
    model = Mixer(width=8, num_blocks=1)
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=5, line_search_fn="strong_wolfe")
    watch = attach(model, optimizer, run="lbfgs")
    x, y = batch(128)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(model(x), y)
        backward(loss)
        return loss

    for _ in watch.steps(steps):
        watch.step(cast(Tensor, cast(Any, optimizer).step(closure)))
    return watch


def sparse_embedding(steps: int) -> Watch:
    """A large table of which each step touches a few rows."""
    table = nn.Embedding(5000, 16, sparse=True)
    head = nn.Linear(16, 1)
    optimizers = [
        torch.optim.SparseAdam(table.parameters(), lr=1e-2),
        torch.optim.AdamW(head.parameters(), lr=1e-2),
    ]
    watch = attach({"table": table, "head": head}, optimizers, run="sparse-embedding")
    for _ in watch.steps(steps):
        words = torch.randint(5000, (32, 4))
        wanted = (words % 2).float().mean(1, keepdim=True)
        loss = F.mse_loss(head(table(words).mean(1)), wanted)
        backward(loss)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        watch.step(loss)
    return watch


def optimizer_in_backward(steps: int) -> Watch:
    """Each parameter is stepped, and its gradient freed, within the backward pass."""
    model = Mixer()
    optimizers = {one: torch.optim.AdamW([one], lr=3e-3) for one in model.parameters()}

    def step(parameter: Tensor) -> None:
        optimizer = optimizers[cast(nn.Parameter, parameter)]
        optimizer.step()
        optimizer.zero_grad()

    for one in optimizers:
        cast(Any, one).register_post_accumulate_grad_hook(step)
    watch = attach(model, list(optimizers.values()), run="optimizer-in-backward")
    for _ in watch.steps(steps):
        loss = loss_of(model)
        backward(loss)
        watch.step(loss)
    return watch


def frozen_at_first(steps: int) -> Watch:
    """Fine-tuning: the head alone for half of the steps, then everything."""
    model = Mixer()
    model.requires_grad_(False)
    model.last.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    watch = attach(model, optimizer, run="frozen-at-first")
    for step in watch.steps(steps):
        if step == steps // 2:
            model.requires_grad_(True)
        optimizer.zero_grad()
        loss = loss_of(model)
        backward(loss)
        optimizer.step()
        watch.step(loss)
    return watch


def tied(steps: int) -> Watch:
    """An embedding that is also the output layer: one layer with two names."""
    words = nn.Embedding(20, 16)
    head = nn.Linear(16, 20, bias=False)
    head.weight = words.weight
    model = nn.Sequential(words, nn.Linear(16, 16), head)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    watch = attach(model, optimizer, run="tied")
    for _ in watch.steps(steps):
        tokens = torch.randint(20, (32,))
        optimizer.zero_grad()
        loss = F.cross_entropy(model(tokens), (tokens + 1) % 20)
        backward(loss)
        optimizer.step()
        watch.step(loss)
    return watch


def activation_checkpointing(steps: int) -> Watch:
    model = Mixer(again=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    watch = attach(model, optimizer, run="activation-checkpointing")
    for _ in watch.steps(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        backward(loss)
        optimizer.step()
        watch.step(loss)
    return watch


def ema(steps: int) -> Watch:
    """An average of the weights beside them. As `extra` it goes back with a rollback."""
    model = Mixer()
    average = copy.deepcopy(model).requires_grad_(False)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    allow = ("checkpoint", "rollback")
    watch = attach(model, optimizer, run="ema", extra={"average": average}, allow=allow)
    for step in watch.steps(steps):
        optimizer.zero_grad()
        loss = loss_of(model)
        backward(loss)
        optimizer.step()
        for mean, one in zip(average.parameters(), model.parameters(), strict=True):
            mean.lerp_(one.detach(), 0.05)
        watch.step(loss)
        if step % 20 == 19:
            with watch.phase("eval"), torch.no_grad():
                watch.log(val_loss=loss_of(average))
    return watch


def gan(steps: int) -> Watch:
    """Two models, two optimizers, two losses; the critic steps twice as often."""
    maker, critic = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)), nn.Linear(2, 1)
    steps_maker = torch.optim.Adam(maker.parameters(), lr=1e-3)
    steps_critic = torch.optim.Adam(critic.parameters(), lr=1e-3)
    watch = attach({"maker": maker, "critic": critic}, [steps_maker, steps_critic], run="gan")
    critic_loss = torch.tensor(math.log(2))
    for _ in watch.steps(steps):
        for _ in range(2):
            made, real = maker(torch.randn(32, 4)).detach(), torch.randn(32, 2) + 1
            critic_loss = F.softplus(critic(made)).mean() + F.softplus(-critic(real)).mean()
            steps_critic.zero_grad()
            backward(critic_loss)
            steps_critic.step()
        loss = F.softplus(-critic(maker(torch.randn(32, 4)))).mean()
        steps_maker.zero_grad()
        backward(loss)
        steps_maker.step()
        watch.step(loss, critic_loss=critic_loss)
    return watch


WAYS: Final[dict[str, Way]] = {
    way.__name__.replace("_", "-"): way
    for way in (
        accumulation, amp, amp_fused, bf16, compiled, several_optimizers, lbfgs, sparse_embedding,
        optimizer_in_backward, frozen_at_first, tied, activation_checkpointing, ema, gan,
    )
}  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    options = parse(arguments)
    for name in options.ways or list(WAYS):
        torch.manual_seed(1)
        torch.set_num_threads(1)
        watch = WAYS[name](options.steps)
        watch.finish()
        print(f"{name}: {watch.next_step} steps")


def parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("ways", nargs="*", metavar="WAY", help=f"of {', '.join(WAYS)}; or all")
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
