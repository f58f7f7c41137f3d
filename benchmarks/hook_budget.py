"""What is left of watching under a budget that the step is too short for?

The small GPT of `benchmarks.hook_overhead` is trained on batches of growing size under
`max_overhead`; a real service takes what is told. Once the budget has found its pace, the rows say
how often gradients are read and which share of a step watching takes (`hook_share`, the training
thread's CPU time).

    python -m benchmarks.hook_budget --threads 1
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from typing import Final

import torch
from benchmarks.harness import Service, machine, markdown_table, running_service
from benchmarks.hook_overhead import BUDGET, LOWEST_PRIORITY, MODELS, Watched

from runwatch_hooks import attach
from runwatch_hooks.demo.training import GPT
from runwatch_hooks.governor.ladder import LADDER
from runwatch_hooks.reading import connect

BATCHES: Final = (4, 8, 16, 32)
SETTLING: Final = 32 * (len(LADDER) + 4)
"""Steps after which the last rung is reached, wherever the budget asks for it."""
MEASURED: Final = 128


def settled(service: Service, batch: int, folder: Path) -> tuple[float, float, float]:
    """Milliseconds of a step without us, steps from one reading to the next, and our share."""
    shape = MODELS["small"]
    letters = list(torch.randint(shape.vocabulary, (16, batch, shape.context + 1)))
    trained = Watched(GPT(shape), letters)
    name = f"batch-{batch}"
    with attach(
        trained.model,
        trained.optimizer,
        run=name,
        url=service.url,
        token=service.process.admin_key,
        spool=folder / name,
        allow=(),
        max_overhead=BUDGET,
    ) as watch:
        trained.watch = watch
        trained.turn(SETTLING + MEASURED)
    told = connect(service.url, token=service.process.admin_key).run(watch.run_id)
    interval = float(told.history("sampling_interval").columns["value"][-1])
    share = statistics.median(told.history("hook_share").columns["value"][-MEASURED:].tolist())
    step_ms = 1000 * statistics.median(trained.turns[0][-MEASURED:])
    return step_ms * (1.0 - share), interval, share


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    torch.set_num_threads(parser.parse_args().threads)
    torch.manual_seed(0)
    host = machine()
    with running_service() as service, tempfile.TemporaryDirectory() as folder:
        os.setpriority(os.PRIO_PROCESS, service.process.pid, LOWEST_PRIORITY)
        found = [(batch, *settled(service, batch, Path(folder))) for batch in BATCHES]
    rows = [
        (batch, f"{step_ms:.1f}", f"{interval:.0f}", f"{share:.4f}")
        for batch, step_ms, interval, share in found
    ]
    print(f"\n{host}\n\nmax_overhead={BUDGET}\n")
    print(markdown_table(("batch", "step, ms", "gradients read every", "`hook_share`"), rows))


if __name__ == "__main__":
    main()
