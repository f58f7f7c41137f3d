"""Train under DeepSpeed on several processes, watched on all of them.

    pip install deepspeed
    torchrun --standalone --nproc-per-node 2 examples/deepspeed_engine.py --stage 2 --steps 200

The engine reduces, clips and steps by itself; what it gives back as its optimizer is handed to
`attach`, at any stage of ZeRO. From stage 1 on each rank reads the pieces that it steps, and rank 0
joins what the others found: the norms that arrive are those of whole gradients, before the clip.
On CPUs DeepSpeed compiles an operation of its own at the first start, which takes a minute.
RUNWATCH_URL and RUNWATCH_TOKEN say where the service is; without them the run is written to
./runwatch-spool.
"""

import argparse
from typing import Any, Final, cast

import deepspeed  # pyright: ignore[reportMissingImports, reportMissingTypeStubs]
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional

from runwatch_hooks import attach

ACCUMULATED: Final = 2
MICRO_BATCH, WIDTH, NUM_CLASSES = 16, 32, 10
CONFIG: Final[dict[str, Any]] = {
    "train_micro_batch_size_per_gpu": MICRO_BATCH,
    "gradient_accumulation_steps": ACCUMULATED,
    "gradient_clipping": 0.1,
    "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
}


def main() -> None:
    arguments = parse_arguments()
    model, engine, optimizer = make_engine({"zero_optimization": {"stage": arguments.stage}})
    generator = torch.Generator().manual_seed(1 + dist.get_rank())  # other data on every rank

    with attach(model, optimizer, run="deepspeed", config=vars(arguments)) as watch:
        for _ in watch.steps(arguments.steps):
            losses = [train_one(engine, generator) for _ in range(ACCUMULATED)]
            watch.step(torch.stack(losses).mean(), tokens=MICRO_BATCH * ACCUMULATED)
    if dist.get_rank() == 0:
        print(f"run {watch.run_id}: {watch.next_step} steps on {dist.get_world_size()} ranks")
    dist.destroy_process_group()


def make_engine(settings: dict[str, Any]) -> tuple[nn.Module, Any, Any]:
    """The model, DeepSpeed's engine, and what it gives back as its optimizer."""
    torch.manual_seed(0)  # the same weights on every rank
    model = make_model()
    deepspeed.init_distributed()
    initialize = cast("Any", deepspeed.initialize)
    engine, optimizer, _, _ = initialize(
        model=model, model_parameters=model.parameters(), config=CONFIG | settings
    )
    return model, engine, optimizer


def train_one(engine: Any, generator: torch.Generator) -> Tensor:
    """A micro-batch; the engine steps after the last of each batch."""
    inputs, targets = make_micro_batch(generator)
    loss = functional.cross_entropy(engine(inputs.to(engine.device)), targets.to(engine.device))
    engine.backward(loss)
    engine.step()
    return loss.detach()


def make_model() -> nn.Module:
    return nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, NUM_CLASSES))


def make_micro_batch(generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Inputs whose class is where their largest feature lies."""
    inputs = torch.randn(MICRO_BATCH, WIDTH, generator=generator)
    return inputs, inputs[:, :NUM_CLASSES].argmax(dim=1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="train under DeepSpeed, watched")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--stage", type=int, default=2, choices=range(4), help="of ZeRO")
    return parser.parse_args()


if __name__ == "__main__":
    main()
