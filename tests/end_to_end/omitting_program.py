"""Small trainings that leave something out, or do not: KIND, and `sound` or `faulty`."""

import sys
from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from runwatch_hooks import attach

STEPS: Final = 400


def spirals() -> tuple[Tensor, Tensor]:
    """(64, 2) points and their (64,) arms."""
    radius, labels = torch.rand(64), torch.randint(3, (64,))
    angle = 4 * radius + labels * 2.1
    points = torch.stack([radius * angle.cos(), radius * angle.sin()], dim=1)
    return points + 0.05 * torch.randn(64, 2), labels


def classifier() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(2, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Dropout(0.1), nn.Linear(32, 3)
    )


def adversarial(*, is_faulty: bool) -> None:
    """The generator's points are detached in its own loss, too."""
    maker = nn.Sequential(nn.Linear(4, 32), nn.SiLU(), nn.Linear(32, 2))
    judge = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))
    making = torch.optim.Adam(maker.parameters(), lr=1e-3, betas=(0.5, 0.99))
    judging = torch.optim.Adam(judge.parameters(), lr=1e-3, betas=(0.5, 0.99))
    with attach({"maker": maker, "judge": judge}, [making, judging], run="adversarial") as watch:
        for _ in watch.steps(STEPS):
            points = maker(torch.randn(64, 4))
            loss = functional.softplus(-judge(spirals()[0])).mean()
            loss = loss + functional.softplus(judge(points.detach())).mean()
            judging.zero_grad()
            torch.autograd.backward(loss)
            judging.step()
            made = functional.softplus(-judge(points.detach() if is_faulty else points)).mean()
            making.zero_grad()
            torch.autograd.backward(made)
            making.step()
            watch.step(made, judge_loss=loss)


def learned(model: nn.Module, optimizer: torch.optim.Optimizer) -> Tensor:
    """The loss of a step that leaves nothing out."""
    optimizer.zero_grad()
    points, labels = spirals()
    loss = functional.cross_entropy(model(points), labels)
    torch.autograd.backward(loss)
    optimizer.step()
    return loss


def replaced_head(*, is_faulty: bool) -> None:
    """The optimizer was made before the head that is trained."""
    model = classifier()
    early = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model[-1] = nn.Linear(32, 3)
    optimizer = early if is_faulty else torch.optim.AdamW(model.parameters(), lr=1e-3)
    with attach(model, optimizer, run="replaced head") as watch:
        for _ in watch.steps(STEPS):
            model.zero_grad()
            points, labels = spirals()
            loss = functional.cross_entropy(model(points), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            watch.step(loss)


def evaluated(*, is_faulty: bool) -> None:
    """The first evaluation leaves the model in evaluation mode."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with attach(model, optimizer, run="evaluated") as watch:
        for step in watch.steps(STEPS):
            watch.step(learned(model, optimizer))
            if step % 50 == 49:
                model.eval()
                with torch.no_grad(), watch.phase("eval"):
                    points, labels = spirals()
                    watch.log(val_loss=functional.cross_entropy(model(points), labels))
                if not is_faulty:
                    model.train()


def clipped(*, is_faulty: bool) -> None:
    """Gradients are clipped before the scaler has unscaled them."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**14)
    with attach(model, optimizer, run="clipped", scaler=scaler) as watch:
        for _ in watch.steps(STEPS):
            optimizer.zero_grad()
            points, labels = spirals()
            loss = functional.cross_entropy(model(points), labels)
            torch.autograd.backward(scaler.scale(loss))
            if not is_faulty:
                scaler.unscale_(optimizer)
            clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            watch.step(loss)


def uncleared(*, is_faulty: bool) -> None:
    """Each step is by all gradients since the first."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    with attach(model, optimizer, run="uncleared") as watch:
        for _ in watch.steps(STEPS):
            points, labels = spirals()
            loss = functional.cross_entropy(model(points), labels)
            torch.autograd.backward(loss)
            optimizer.step()
            if not is_faulty:
                optimizer.zero_grad(set_to_none=False)
            watch.step(loss)


def resumed(*, is_faulty: bool) -> None:
    """A second process, whose checkpoint may lack the optimizer."""
    model = classifier()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    state, moments = None, optimizer.state_dict()
    for stop in (STEPS // 2, STEPS):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        optimizer.load_state_dict(moments)
        with attach(model, optimizer, run="resumed", state=state) as watch:
            for _ in watch.steps(stop):
                watch.step(learned(model, optimizer))
            state = watch.state_dict()
            moments = moments if is_faulty else optimizer.state_dict()


def rescheduled(*, is_faulty: bool) -> None:
    """A second process, which counts its own steps and whose checkpoint may lack the scheduler."""
    model = classifier()
    moments: dict[str, Any] = torch.optim.AdamW(model.parameters(), lr=1e-3).state_dict()
    places: dict[str, Any] = {}
    for start, stop in ((0, STEPS // 2), (STEPS // 2, STEPS)):
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 2 * STEPS)
        optimizer.load_state_dict(moments)
        if places and not is_faulty:
            scheduler.load_state_dict(places)
        with attach(
            model, optimizer, run="rescheduled", scheduler=scheduler, next_step=start
        ) as watch:
            for _ in watch.steps(stop):
                watch.step(learned(model, optimizer))
                scheduler.step()
        moments, places = optimizer.state_dict(), scheduler.state_dict()


PROGRAMS: Final[dict[str, Callable[..., None]]] = {
    "adversarial": adversarial,
    "replaced_head": replaced_head,
    "evaluated": evaluated,
    "clipped": clipped,
    "uncleared": uncleared,
    "resumed": resumed,
    "rescheduled": rescheduled,
}

if __name__ == "__main__":
    torch.manual_seed(0)
    torch.set_num_threads(1)
    PROGRAMS[sys.argv[1]](is_faulty=sys.argv[2] == "faulty")
