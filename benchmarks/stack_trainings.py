"""The trainings of `benchmarks.stacks`, run by the interpreter that is tried: one file, which needs
torch and the hook alone.

    python benchmarks/stack_trainings.py OUT.json WAY ...              # bare
    python benchmarks/stack_trainings.py OUT.json WAY ... --attached

Writes for each way what the program itself knows: losses and learning rates, norms of the gradients
summed in float64, and a hash of the trained weights. `ddp` runs under torchrun; rank 0 writes.
"""

import argparse
import hashlib
import json
import os
import sys
import warnings
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional

STEPS: Final = 60
BROKEN_AT: Final = 30


def train(way: str, *, is_attached: bool) -> dict[str, Any]:
    """One training; what it is expected to be seen to do."""
    torch.manual_seed(3)
    model = nn.Sequential(
        nn.Embedding(32, 16),
        nn.Flatten(),
        nn.Linear(128, 48),
        nn.LayerNorm(48),
        nn.GELU(),
        nn.Linear(48, 8),
    )
    called = wrapped(model, way)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1.0 / (1 + step / 20))
    scaler = torch.amp.GradScaler(
        "cpu", init_scale=1024.0, growth_interval=10, enabled=way == "amp"
    )
    watch = None
    if is_attached:
        from runwatch_hooks import attach

        watch = attach(called, optimizer, run=way, scheduler=scheduler, scaler=scaler)
    seen: dict[str, Any] = {"losses": [], "rates": [], "norms": [], "layers": {}}
    for step in range(STEPS):
        loss = loss_of(called, way, step)
        optimizer.zero_grad()
        scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
        scaler.unscale_(optimizer)
        seen["layers"] = {name: norm_of(one.grad) for name, one in model.named_parameters()}
        seen["norms"].append(sum(norm**2 for norm in seen["layers"].values()) ** 0.5)
        seen["rates"].append(optimizer.param_groups[0]["lr"])
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        seen["losses"].append(float(loss.detach()))
        if watch is not None:
            watch.step(loss)
    if watch is not None:
        seen["run_id"] = watch.run_id
        watch.finish()
    octets = b"".join(one.detach().numpy().tobytes() for one in model.parameters())
    return seen | {"weights": hashlib.sha256(octets).hexdigest()}


def wrapped(model: nn.Module, way: str) -> Any:
    if way == "compile":
        return torch.compile(model)
    return nn.parallel.DistributedDataParallel(model) if way == "ddp" else model


def loss_of(model: Any, way: str, step: int) -> Tensor:
    seed = 1000 * int(os.environ.get("RANK", "0")) + step
    inputs = torch.randint(0, 32, (16, 8), generator=torch.Generator().manual_seed(seed))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=way == "amp"):
        outputs = model(inputs)
    loss = functional.cross_entropy(outputs.float(), inputs.sum(1) % 8)
    return loss * float("nan") if way == "nan" and step == BROKEN_AT else loss


def norm_of(gradient: Tensor | None) -> float:
    assert gradient is not None
    return float(gradient.double().square().sum().sqrt())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("out", type=Path)
    parser.add_argument("ways", nargs="+")
    parser.add_argument("--attached", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if "ddp" in options.ways:
        distributed.init_process_group("gloo")
    facts: dict[str, Any] = {"torch": str(torch.__version__), "python": sys.version.split()[0]}
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("default")
        found = {way: train(way, is_attached=options.attached) for way in options.ways}
    facts["warnings"] = sorted({str(one.message) for one in warned if "runwatch" in one.filename})
    if os.environ.get("RANK", "0") == "0":
        options.out.write_text(json.dumps({"facts": facts, "ways": found}))
    if distributed.is_initialized():
        distributed.destroy_process_group()


if __name__ == "__main__":
    main()
