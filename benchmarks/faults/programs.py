"""Healthy programs of many kinds. A seed decides everything random in them."""

import math
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Final

import torch
from benchmarks.faults.changing import new_classes, q_learning
from benchmarks.faults.drawing import BATCH, cross_entropy, generator_at
from benchmarks.faults.loop import Batch, Program
from benchmarks.faults.models import CONTEXT, MLP, VAE, CharLSTM, ConvNet, Recommender, Transformer
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import (
    CosineAnnealingWarmRestarts,
    LambdaLR,
    LRScheduler,
    OneCycleLR,
    StepLR,
)

from runwatch_hooks.demo.training import batch_at, read_corpus

STEPS: Final = 900
"""How long a program trains: past the steps before which some rules do not look."""
RESUMES_AT: Final = 450
"""Where the second process of a program that is interrupted goes on."""


def next_letter(model: nn.Module, batch: Batch) -> Tensor:
    (letters,) = batch
    logits: Tensor = model(letters[:, :-1])
    return functional.cross_entropy(logits.flatten(0, 1), letters[:, 1:].flatten())


def spirals_at(seed: int, step: int, classes: int = 3) -> Batch:
    """Points on interleaved spirals, with noise; which arm is the label."""
    generator = generator_at(seed, step)
    labels = torch.randint(classes, (2 * BATCH,), generator=generator)
    radius = torch.rand(2 * BATCH, generator=generator)
    angle = 4 * radius + labels * (2 * math.pi / classes)
    noise = 0.05 * torch.randn(2 * BATCH, 2, generator=generator)
    return torch.stack([radius * angle.cos(), radius * angle.sin()], 1) + noise, labels


def images_at(seed: int, step: int) -> Batch:
    """One of ten patterns of 12 by 12 each, under noise."""
    generator = generator_at(seed, step)
    labels = torch.randint(10, (BATCH,), generator=generator)
    patterns = torch.randn(10, 1, 12, 12, generator=torch.Generator().manual_seed(7))
    return patterns[labels] + 1.5 * torch.randn(BATCH, 1, 12, 12, generator=generator), labels


@cache
def _corpus() -> Tensor:
    return read_corpus()


def letters_at(seed: int, step: int) -> Batch:
    return (batch_at(_corpus(), step, seed=seed, batch=BATCH // 2, context=CONTEXT),)


def warm_up_then_cosine(optimizer: torch.optim.Optimizer, warm_up: int = 60) -> LRScheduler:
    def scale(step: int) -> float:
        falling = 0.5 * (1 + math.cos(math.pi * min(step / STEPS, 1.0)))
        return min(1.0, (step + 1) / warm_up) * max(falling, 0.1)

    return LambdaLR(optimizer, scale)


def mlp(seed: int) -> Program:
    model = MLP((2, 48, 48, 48, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    return Program(
        model=model,
        optimizer=optimizer,
        batch_at=partial(spirals_at, seed),
        loss_of=cross_entropy,
        evaluate_every=50,
        evaluate=lambda model: cross_entropy(model, spirals_at(99, 0)).item(),
    )


def convolutions(seed: int) -> Program:
    model = ConvNet()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9, weight_decay=5e-4)
    return Program(
        model=model,
        optimizer=optimizer,
        batch_at=partial(images_at, seed),
        loss_of=cross_entropy,
        scheduler=StepLR(optimizer, 300, 0.2),
    )


def recurrent(seed: int) -> Program:
    model = CharLSTM()
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    return Program(
        model=model,
        optimizer=optimizer,
        batch_at=partial(letters_at, seed),
        loss_of=next_letter,
        clip=1.0,
    )


def transformer(seed: int) -> Program:
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.1)
    return Program(
        model=model,
        optimizer=optimizer,
        batch_at=partial(letters_at, seed),
        loss_of=next_letter,
        scheduler=warm_up_then_cosine(optimizer),
        clip=1.0,
    )


def one_cycle(seed: int) -> Program:
    program = transformer(seed)
    optimizer = torch.optim.AdamW(program.model.parameters(), lr=1e-4)
    program.optimizer = optimizer
    program.scheduler = OneCycleLR(optimizer, max_lr=5e-3, total_steps=STEPS + 10)
    return program


def warm_restarts(seed: int) -> Program:
    program = convolutions(seed)
    program.scheduler = CosineAnnealingWarmRestarts(program.optimizer, T_0=150, T_mult=2)
    return program


def _through_half(gradient: Tensor) -> Tensor:
    return gradient.half().float()


def half_precision(seed: int) -> Program:
    """Gradients that pass through float16, as on a card without bfloat16, and a loss scaler."""
    program = transformer(seed)
    for parameter in program.model.parameters():
        parameter.register_hook(_through_half)  # type: ignore[no-untyped-call]
    program.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14, growth_interval=100)
    return program


def accumulation(seed: int) -> Program:
    program = transformer(seed)
    program.micro_batches = 4
    return program


def epochs(seed: int) -> Program:
    """Nine epochs over a hundred batches, which can be learned by heart."""
    model = MLP((144, 64, 64, 10))

    def batch(step: int) -> Batch:
        images, labels = images_at(seed, step % 100)
        return images.flatten(1), labels

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.3)
    return Program(
        model=model, optimizer=optimizer, batch_at=batch, loss_of=cross_entropy, clip=5.0
    )


def resumed(seed: int) -> Program:
    """Interrupted, and gone on with from a checkpoint that holds all of it."""
    program = transformer(seed)
    program.resumes_at = RESUMES_AT
    return program


def fine_tuning(seed: int) -> Program:
    """A body that has learned already, a new head for other letters, a low rate."""
    program = transformer(seed)
    warm = torch.optim.AdamW(program.model.parameters(), lr=3e-3)
    for step in range(250):
        warm.zero_grad()
        torch.autograd.backward(next_letter(program.model, letters_at(seed + 50, step)))
        warm.step()
    swapped = torch.randperm(96, generator=torch.Generator().manual_seed(seed))
    program.batch_at = lambda step: (swapped[letters_at(seed, step)[0]],)
    program.optimizer = torch.optim.AdamW(program.model.parameters(), lr=5e-4)
    program.scheduler = warm_up_then_cosine(program.optimizer)
    return program


def autoencoder(seed: int) -> Program:
    model = VAE()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Program(
        model=model,
        optimizer=optimizer,
        batch_at=partial(images_at, seed),
        loss_of=lambda model, batch: model(batch[0]),
    )


def adversarial(seed: int) -> Program:
    """A generator of spirals against a judge; neither loss says how well it goes."""
    model, judge = MLP((4, 48, 48, 2)), MLP((2, 48, 48, 1), nn.SiLU)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, betas=(0.5, 0.99))
    judged = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.99))

    def fakes(step: int) -> Tensor:
        points: Tensor = model(torch.randn(64, 4, generator=generator_at(seed, step)))
        return points

    def train_judge(step: int) -> None:
        real, _ = spirals_at(seed, step)
        loss = functional.softplus(-judge(real)) + functional.softplus(judge(fakes(step).detach()))
        judged.zero_grad()
        torch.autograd.backward(loss.mean())
        judged.step()

    return Program(
        model=model,
        optimizer=optimizer,
        batch_at=lambda step: (torch.tensor([step]),),
        loss_of=lambda _, batch: functional.softplus(-judge(fakes(int(batch[0])))).mean(),
        others=[(judge, judged)],
        alternate=train_judge,
    )


def policy_gradient(seed: int) -> Program:
    """REINFORCE on a contextual bandit: a loss of either sign that says little."""
    model = MLP((8, 32, 6), nn.Tanh)
    best = torch.randn(8, 6, generator=torch.Generator().manual_seed(3))

    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        states, luck = batch
        logits = model(states).log_softmax(1)
        actions = (logits.exp().cumsum(1) < luck).sum(1).clamp(max=5)
        rewards = (states @ best).gather(1, actions[:, None])[:, 0]
        advantages = rewards - rewards.mean()
        gains: Tensor = advantages * logits.gather(1, actions[:, None])[:, 0]
        return -gains.mean()

    def batch(step: int) -> Batch:
        generator = generator_at(seed, step)
        return torch.randn(BATCH, 8, generator=generator), torch.rand(BATCH, 1, generator=generator)

    optimizer = torch.optim.RMSprop(model.parameters(), lr=2e-3)
    return Program(model=model, optimizer=optimizer, batch_at=batch, loss_of=loss_of, clip=0.5)


def density(seed: int) -> Program:
    """A Gaussian fitted by its log-likelihood: the loss crosses zero and goes on falling."""
    model = MLP((3, 48, 48, 2), nn.Tanh)

    def batch(step: int) -> Batch:
        generator = generator_at(seed, step)
        x = torch.randn(2 * BATCH, 3, generator=generator)
        y = (x[:, :1] * x[:, 1:2]).sin()
        return x, y + 0.05 * torch.randn(2 * BATCH, 1, generator=generator)

    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        mean, log_deviation = model(batch[0]).chunk(2, dim=1)
        error = (batch[1] - mean) / log_deviation.exp()
        surprise: Tensor = 0.5 * error.square() + log_deviation
        return surprise.mean()

    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    return Program(model=model, optimizer=optimizer, batch_at=batch, loss_of=loss_of, clip=10.0)


def contrastive(seed: int) -> Program:
    """Two views of an image find each other among the batch."""
    model = MLP((144, 96, 32))

    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        views = [functional.normalize(model(view.flatten(1)), dim=1) for view in batch]
        logits = views[0] @ views[1].T / 0.1
        return functional.cross_entropy(logits, torch.arange(len(logits)))

    def batch(step: int) -> Batch:
        generator = generator_at(seed, step)
        images = torch.randn(BATCH, 1, 12, 12, generator=generator)
        noises = torch.randn(2, BATCH, 1, 12, 12, generator=generator)
        return images + 0.8 * noises[0], images + 0.8 * noises[1]

    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    return Program(model=model, optimizer=optimizer, batch_at=batch, loss_of=loss_of)


def recommender(seed: int) -> Program:
    """Rare rows of large tables, labels that are mostly noise: a loss that stays near ln 2."""
    model = Recommender()

    def batch(step: int) -> Batch:
        generator = generator_at(seed, step)
        users = (2000 * torch.rand(4 * BATCH, 4, generator=generator).square()).long()
        items = (500 * torch.rand(4 * BATCH, generator=generator).square()).long()
        odds = torch.sigmoid(2.0 * torch.sin(users[:, 0] * 0.7 + items * 1.3))
        return users, items, torch.bernoulli(odds, generator=generator)

    def loss_of(model: nn.Module, batch: Batch) -> Tensor:
        users, items, labels = batch
        return functional.binary_cross_entropy_with_logits(model(users, items), labels)

    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
    return Program(model=model, optimizer=optimizer, batch_at=batch, loss_of=loss_of)


PROGRAMS: Final[Mapping[str, Callable[[int], Program]]] = {
    "mlp": mlp,
    "convolutions": convolutions,
    "recurrent": recurrent,
    "transformer": transformer,
    "one-cycle": one_cycle,
    "warm-restarts": warm_restarts,
    "half-precision": half_precision,
    "accumulation": accumulation,
    "epochs": epochs,
    "resumed": resumed,
    "fine-tuning": fine_tuning,
    "autoencoder": autoencoder,
    "adversarial": adversarial,
    "policy-gradient": policy_gradient,
    "density": density,
    "contrastive": contrastive,
    "recommender": recommender,
    "new-classes": new_classes,
    "q-learning": q_learning,
}
"""What healthy training looks like; each is also a place for faults."""

NUM_CLASSES: Final[Mapping[str, int]] = {
    "mlp": 3,
    "convolutions": 10,
    "warm-restarts": 10,
    "epochs": 10,
    "new-classes": 10,
    "recurrent": 96,
    "transformer": 96,
    "one-cycle": 96,
    "half-precision": 96,
    "accumulation": 96,
    "resumed": 96,
    "fine-tuning": 96,
}
"""What the programs that classify say in their configuration."""


def build(name: str, seed: int) -> Program:
    torch.manual_seed(seed)
    return PROGRAMS[name](seed)
