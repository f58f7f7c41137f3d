"""One rank under DeepSpeed's ZeRO with one setting after the other; what was told of each, and what
DeepSpeed itself says of the gradients. Rank 0 writes JSON. Settings with fp16 are left out where
DeepSpeed finds none in this processor.

    torchrun --nproc-per-node 2 zero_settings.py RESULTS
"""

import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any, Final

import torch
import torch.distributed as dist
from tests.hooks.adapters.under_deepspeed import load_example
from tests.hooks.recorder import RecordingLine
from torch.nn import functional

from runwatch.vocabulary import RunId
from runwatch_hooks.attaching.wiring import Objects, build_watch, optimizers_of
from runwatch_hooks.ranks import SharedAttempt, find_world, join_team
from runwatch_hooks.settings.environment import read_environment
from runwatch_hooks.settings.options import Options

STEPS: Final = 4
BROKEN_AT: Final = 2
"""The step of fp16 in which the inputs of one micro-batch of rank 1 are NaN."""
SCALE: Final = 256.0

_FP16: Final = {"fp16": {"enabled": True, "initial_scale_power": 8}}
_BF16: Final = {"bf16": {"enabled": True}}
SETTINGS: Final[dict[str, dict[str, Any]]] = {
    **{f"fp16, stage {n}": {**_FP16, "zero_optimization": {"stage": n}} for n in (1, 2, 3)},
    **{f"bf16, stage {n}": {**_BF16, "zero_optimization": {"stage": n}} for n in (1, 2, 3)},
    "in another order": {"zero_optimization": {"stage": 2, "round_robin_gradients": True}},
    "overlapped, in small buckets": {
        "zero_optimization": {"stage": 2, "overlap_comm": True, "reduce_bucket_size": 500}
    },
    "reduced as a whole": {
        "zero_optimization": {"stage": 1, "contiguous_gradients": False, "reduce_scatter": False}
    },
    "nothing kept": {"zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0}},
}


def main() -> None:
    torch.set_num_threads(1)
    example = load_example()
    accelerator: Any = importlib.import_module("deepspeed.accelerator")
    has_fp16 = accelerator.get_accelerator().is_fp16_supported()
    results = {
        name: run_one(example, name, settings)
        for name, settings in SETTINGS.items()
        if has_fp16 or "fp16" not in settings
    }
    if dist.get_rank() == 0:
        Path(sys.argv[1]).write_text(json.dumps(results))
    dist.destroy_process_group()


def run_one(example: Any, name: str, settings: dict[str, Any]) -> dict[str, Any]:
    model, engine, zero = example.make_engine(settings)
    line = RecordingLine()
    proposed = SharedAttempt(RunId("0" * 26), "0" * 26, time.time())
    team = join_team(find_world(read_environment()), proposed, is_run_given=True)
    assert team is not None
    objects = Objects(modules={"": model}, optimizers=optimizers_of(zero))
    watch = build_watch(objects, Options(allow=()), line.open, team)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    dtype = next(model.parameters()).dtype
    norms: list[float] = []
    for step in range(STEPS):
        for micro_step in range(example.ACCUMULATED):
            inputs, targets = example.make_micro_batch(generator)
            if (name[:4], step, dist.get_rank(), micro_step) == ("fp16", BROKEN_AT, 1, 0):
                inputs = inputs * torch.nan
            loss = functional.cross_entropy(engine(inputs.to(dtype)).float(), targets)
            engine.backward(loss)
            engine.step()
        norms.append(float(engine.get_global_grad_norm()))
        watch.step()
    watch.finish()
    told = ("grad_norm", "skipped", "loss_scale", "nonfinite")
    return {"norms": norms, "kinds": line.kinds()} | {
        metric: line.metric(metric) for metric in told
    }


if __name__ == "__main__":
    main()
