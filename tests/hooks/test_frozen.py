"""A plain training loop records what it recorded before, value by value: `frozen.json`.

    python -m tests.hooks.test_frozen    # after a change that means to change it

`benchmarks.frozen` compares many more ways of training with what an earlier version recorded.
"""

import tempfile
from pathlib import Path
from typing import Final

import torch
from benchmarks.frozen import records
from benchmarks.frozen.recorder import Recorder
from benchmarks.frozen.records import Record
from tests.hooks.uplink.stub_service import TOKEN, serving
from torch import Tensor, nn
from torch.nn import functional

from runwatch_hooks import attach

GOLDEN: Final = Path(__file__).with_name("frozen.json")
STEPS: Final = 6
BROKEN_STEP: Final = 4


def recorded(folder: Path) -> Record:
    """What a loop records whose numbers come from no generator, so that all versions agree."""
    model = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))
    _fill(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
    recorder = Recorder()
    with (
        serving(recorder),
        attach(
            model,
            optimizer,
            run="plain",
            scheduler=scheduler,
            url=recorder.url,
            token=TOKEN,
            spool=folder,
        ) as watch,
    ):
        for step in watch.steps(STEPS):
            loss = _loss(model, step)
            optimizer.zero_grad()
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            watch.step(loss, accuracy=step / STEPS)
    return recorder.records(())["plain"]


def _fill(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.linspace(-0.5, 0.5, parameter.numel()).view_as(parameter))


def _loss(model: nn.Module, step: int) -> Tensor:
    inputs = (torch.arange(12.0).reshape(4, 3) + step).sin()
    targets = (inputs.sum(1) > 0).long()
    loss = functional.cross_entropy(model(inputs), targets)
    return loss * float("nan") if step == BROKEN_STEP else loss


def test_a_plain_loop_records_what_it_recorded_before(tmp_path: Path) -> None:
    assert records.differences(records.read(GOLDEN), recorded(tmp_path)) == []


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        records.write(recorded(Path(folder)), GOLDEN)


if __name__ == "__main__":
    main()
