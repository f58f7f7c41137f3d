"""What does watching cost the training loop?

A GPT is trained on random letters with AdamW. Each variant owns an identical copy of model and
optimizer. They take turns in one process, in an order shuffled anew each round; a turn is long
enough that what a variant puts off (queues, sender threads) falls into its own turns. A round gives
each variant's median step time as a multiple of the bare loop's in the same round; over the rounds
we report the median of these ratios and a bootstrap interval. `bare again` is a second bare loop:
its distance from 1.000 is the noise of the method.

    python -m benchmarks.hook_overhead --model gpt-12x384 --seconds 300
    python -m benchmarks.hook_overhead --model small --seconds 60 --threads 1
"""

import argparse
import copy
import gc
import math
import os
import random
import statistics
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Final, cast

import torch
from benchmarks.harness import machine, markdown_table, median_interval, running_service
from torch import Tensor, nn
from torch.nn import functional

from runwatch_hooks import Watch, attach
from runwatch_hooks.demo.model import GPT, Shape

MODELS: Final = {
    "gpt-12x384": Shape(vocabulary=65, context=256, width=384, heads=6, blocks=12),
    "small": Shape(vocabulary=512, context=32, width=128, heads=4, blocks=8),
}
BATCH: Final = {"gpt-12x384": 8, "small": 4}
STEPS_A_TURN: Final = {"gpt-12x384": 4, "small": 60}
LOWEST_PRIORITY: Final = 19


class Variant(ABC):
    """A way to watch, with the training it watches."""

    def __init__(self, model: nn.Module, batches: list[Tensor]) -> None:
        self.model = copy.deepcopy(model)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=3e-4)
        self.parameters = list(self.model.parameters())
        self.turns: list[list[float]] = []
        """Seconds of each step, turn by turn."""
        self._batches = batches
        self._step = 0

    def turn(self, num_steps: int) -> None:
        self.turns.append([self._train_step() for _ in range(num_steps)])

    def _train_step(self) -> float:
        letters = self._batches[self._step % len(self._batches)]
        started_at = time.perf_counter()
        self.optimizer.zero_grad()
        logits: Tensor = self.model(letters[:, :-1])
        loss = functional.cross_entropy(logits.flatten(0, 1), letters[:, 1:].flatten())
        torch.autograd.backward(loss)
        self.before_optimizer(loss)
        self.optimizer.step()
        self.after_optimizer(loss)
        self._step += 1
        return time.perf_counter() - started_at

    @abstractmethod
    def before_optimizer(self, loss: Tensor) -> None: ...

    @abstractmethod
    def after_optimizer(self, loss: Tensor) -> None: ...


class Bare(Variant):
    """Nothing is watched."""

    def before_optimizer(self, loss: Tensor) -> None:
        pass

    def after_optimizer(self, loss: Tensor) -> None:
        pass


class NaiveItem(Bare):
    """What people write first: one `.item()` for each tensor and statistic."""

    def before_optimizer(self, loss: Tensor) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        self.seen = [g.norm().item() for g in gradients]
        self.seen += [p.detach().norm().item() for p in self.parameters]
        self.seen.append(loss.item())


class Foreach(Bare):
    """Fused norms, and one transfer."""

    def before_optimizer(self, loss: Tensor) -> None:
        gradients = [p.grad for p in self.parameters if p.grad is not None]
        norms = torch._foreach_norm(gradients)  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        weights = torch._foreach_norm([p.detach() for p in self.parameters])  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]
        self.seen: list[float] = torch.stack([*norms, *weights, loss.detach()]).tolist()


class ComposerNorms(Bare):
    """What Composer's OptimizerMonitor computes with its DecoupledAdamW, at every step instead of
    every tenth: norms of gradient, parameter, moment and update, and one `.item()` for each
    (composer/callbacks/optimizer_monitor.py and optim/decoupled_weight_decay.py)."""

    def after_optimizer(self, loss: Tensor) -> None:
        found: dict[str, Tensor] = {}
        squares = torch.zeros(())
        for name, parameter in self.model.named_parameters():
            if parameter.grad is None:
                continue
            moment, update = self._update_of(parameter)
            grad_norm = _norm(parameter.grad)
            squares = squares + grad_norm**2
            found[f"l2_norm/moment/{name}"] = _norm(moment)
            found[f"l2_norm/param/{name}"] = _norm(parameter.data)
            found[f"l2_norm/update/{name}"] = _norm(update)
            found[f"l2_norm/grad/{name}"] = grad_norm
        found["l2_norm/grad/global"] = squares**0.5
        self.seen = {name: norm.item() for name, norm in found.items()}

    def _update_of(self, parameter: nn.Parameter) -> tuple[Tensor, Tensor]:
        """The first moment, and the step that AdamW has made by it, reckoned again."""
        group, state = self.optimizer.param_groups[0], self.optimizer.state[parameter]
        (beta1, beta2), num_steps = group["betas"], float(state["step"])
        moment: Tensor = state["exp_avg"]
        spread: Tensor = state["exp_avg_sq"].sqrt() / math.sqrt(1 - beta2**num_steps)
        update = group["lr"] / (1 - beta1**num_steps) * moment.div(spread.add_(group["eps"]))
        return moment, update.add_(parameter.data, alpha=-group["weight_decay"])


def _norm(tensor: Tensor) -> Tensor:
    return cast("Callable[[Tensor], Tensor]", torch.linalg.vector_norm)(tensor)


class TensorBoardScalars(Foreach):
    """The same norms as scalars of TensorBoard, one each, where it is installed."""

    def __init__(self, model: nn.Module, batches: list[Tensor], folder: Path) -> None:
        super().__init__(model, batches)
        self._writer = import_module("torch.utils.tensorboard").SummaryWriter(str(folder))

    def after_optimizer(self, loss: Tensor) -> None:
        for number, norm in enumerate(self.seen):
            self._writer.add_scalar(f"norm/{number}", norm, self._step)

    def close(self) -> None:
        self._writer.close()


class Watched(Bare):
    """Ours: six statistics of each tensor and the run's numbers, every step."""

    watch: Watch

    def after_optimizer(self, loss: Tensor) -> None:
        self.watch.step(loss)


def build(
    stack: ExitStack, model: nn.Module, batches: list[Tensor], folder: Path
) -> dict[str, Variant]:
    """All variants, by the name in the table. The stack ends what was started."""
    spooled, served = Watched(model, batches), Watched(model, batches)
    service = stack.enter_context(running_service())
    os.setpriority(os.PRIO_PROCESS, service.process.pid, LOWEST_PRIORITY)
    for variant, name, url in ((spooled, "spool", None), (served, "service", service.url)):
        variant.watch = stack.enter_context(
            attach(
                variant.model,
                variant.optimizer,
                run=f"bench-{name}",
                url=url,
                token=service.process.admin_key,
                spool=folder / name,
                allow=(),
            )
        )
    variants: dict[str, Variant] = {
        "bare": Bare(model, batches),
        "bare again": Bare(model, batches),
        "naive `.norm().item()`": NaiveItem(model, batches),
        "foreach norms": Foreach(model, batches),
        "the arithmetic of Composer's OptimizerMonitor": ComposerNorms(model, batches),
        "Runwatch, to a spool": spooled,
        "Runwatch, to a local service": served,
    }
    if find_spec("tensorboard") is None:
        print("TensorBoard's scalars are left out: tensorboard is not installed")
    else:
        scalars = TensorBoardScalars(model, batches, folder / "tensorboard")
        stack.callback(scalars.close)
        variants["foreach norms as TensorBoard scalars"] = scalars
    return variants


def take_turns(variants: dict[str, Variant], num_steps: int, seconds: float) -> int:
    """Rounds of turns until the time is over; their number. The first round is warm-up."""
    order = list(variants.values())
    shuffle = random.Random(1)
    for variant in order:
        variant.turn(2)
        variant.turns.clear()
    deadline = time.monotonic() + seconds
    num_rounds = 0
    while time.monotonic() < deadline or num_rounds < 3:
        shuffle.shuffle(order)
        for variant in order:
            gc.collect()
            variant.turn(num_steps)
        num_rounds += 1
    return num_rounds


def report(variants: dict[str, Variant]) -> str:
    bare = [statistics.median(turn) for turn in variants["bare"].turns]
    rows: list[tuple[str, ...]] = []
    for name, variant in variants.items():
        steps = [statistics.median(turn) for turn in variant.turns]
        ratios = [step / base for step, base in zip(steps, bare, strict=True)]
        ratio, low, high = median_interval(ratios)
        step_ms = 1000 * statistics.median(steps)
        rows.append((name, f"{step_ms:.1f}", f"{ratio:.3f}", f"{low:.3f} to {high:.3f}"))
    return markdown_table(("variant", "step, ms", "ratio to bare", "95 % interval"), rows)


def main() -> None:
    options = _options()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    shape = MODELS[options.model]
    model = GPT(shape)
    size = (16, BATCH[options.model], shape.context + 1)
    batches = list(torch.randint(shape.vocabulary, size))
    host = machine()
    with tempfile.TemporaryDirectory(prefix="runwatch-bench-") as name, ExitStack() as stack:
        variants = build(stack, model, batches, Path(name))
        num_steps = options.steps or STEPS_A_TURN[options.model]
        num_rounds = take_turns(variants, num_steps, options.seconds)
    tensors = list(model.parameters())
    print(
        f"\n{host}\n\n{options.model}: {len(tensors)} tensors, "
        f"{sum(p.numel() for p in tensors) / 1e6:.2f} M parameters, {options.threads} threads, "
        f"{num_rounds} rounds of {num_steps} steps\n"
    )
    print(report(variants))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=MODELS, default="gpt-12x384")
    parser.add_argument("--seconds", type=float, default=240.0, help="of measuring")
    parser.add_argument("--steps", type=int, help="of each turn")
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
