"""What does watching cost the training loop?

A GPT is trained on random letters with AdamW. Each variant owns an identical copy of model and
optimizer. They take turns in one process, in an order shuffled anew each round; a turn is long
enough that what a variant puts off (queues, sender threads) falls into its own turns. A round gives
each variant's median step time as a multiple of the bare loop's in the same round; over the rounds
we report the median of these ratios and a bootstrap interval. `bare again` is a second bare loop:
its distance from 1.000 is the noise of the method. Other tools take their turns where they are
installed (`pip install tensorboard wandb mlflow`).

    python -m benchmarks.hook_overhead --model gpt-12x384 --seconds 300
    python -m benchmarks.hook_overhead --model small --seconds 60 --threads 1
"""

import argparse
import gc
import os
import random
import statistics
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import torch
from benchmarks.harness import machine, markdown_table, median_interval, running_service
from benchmarks.hook_peers import peers
from benchmarks.hook_variants import Bare, ComposerNorms, Foreach, NaiveItem, Variant
from torch import Tensor, nn

from runwatch_hooks import Watch, attach
from runwatch_hooks.demo.training import GPT, Shape

MODELS: Final = {
    "gpt-12x384": Shape(vocabulary=65, context=256, width=384, heads=6, blocks=12),
    "small": Shape(vocabulary=512, context=32, width=128, heads=4, blocks=8),
}
BATCH: Final = {"gpt-12x384": 8, "small": 4}
STEPS_A_TURN: Final = {"gpt-12x384": 4, "small": 60}
LOWEST_PRIORITY: Final = 19
BUDGET: Final = 0.005
"""Of a step's time, for the variant that reads fewer steps where more is asked of it."""


class Watched(Bare):
    """Ours: six statistics of each tensor and the run's numbers, every step."""

    watch: Watch

    def after_optimizer(self, loss: Tensor) -> None:
        self.watch.step(loss)


def build(
    stack: ExitStack, model: nn.Module, batches: list[Tensor], folder: Path
) -> dict[str, Variant]:
    """All variants, by the name in the table. The stack ends what was started."""
    spooled, served, thinned = (Watched(model, batches) for _ in range(3))
    service = stack.enter_context(running_service())
    os.setpriority(os.PRIO_PROCESS, service.process.pid, LOWEST_PRIORITY)
    for variant, name, url, max_overhead in (
        (spooled, "spool", None, None),
        (served, "service", service.url, None),
        (thinned, "thinned", None, BUDGET),
    ):
        variant.watch = stack.enter_context(
            attach(
                variant.model,
                variant.optimizer,
                run=f"bench-{name}",
                url=url,
                token=service.process.admin_key,
                spool=folder / name,
                allow=(),
                max_overhead=max_overhead,
            )
        )
    return {
        "bare": Bare(model, batches),
        "bare again": Bare(model, batches),
        "naive `.norm().item()`": NaiveItem(model, batches),
        "foreach norms": Foreach(model, batches),
        "the arithmetic of Composer's OptimizerMonitor": ComposerNorms(model, batches),
        "Runwatch, to a spool": spooled,
        "Runwatch, to a local service": served,
        f"Runwatch, `max_overhead={BUDGET}`, to a spool": thinned,
        **stack.enter_context(peers(model, batches, folder)),
    }


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
