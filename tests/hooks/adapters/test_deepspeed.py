"""A training under DeepSpeed's engine, and whether what is told of it is its true gradients.

DeepSpeed is not among the development dependencies: it compiles operations of its own. Where it is
not installed these tests skip themselves.
"""

import importlib
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from tests.hooks.adapters import under_deepspeed
from tests.hooks.ranks.launched import NUM_RANKS, run_ranks
from tests.hooks.transport.stub_service import TOKEN, StubService, serving
from torch.nn import functional

from runwatch.frames import Frame
from runwatch_hooks import attach
from runwatch_hooks.errors import AttachError

pytestmark = pytest.mark.heavy

STEPS: Final = 6


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> StubService:
    """What was told of the example."""
    pytest.importorskip("deepspeed")
    folder = tmp_path_factory.mktemp("deepspeed")
    with serving(StubService()) as told:
        run_ranks(
            Path(under_deepspeed.__file__),
            f"--steps={STEPS}",
            folder=folder,
            RUNWATCH_URL=told.url,
            RUNWATCH_TOKEN=TOKEN,
        )
        return told


def test_a_layer_s_gradient_is_that_of_the_whole_batch_before_it_is_clipped(
    service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(under_deepspeed.EXAMPLE.parent)
    expected = first_gradients(importlib.import_module(under_deepspeed.EXAMPLE.stem))
    (layout,) = service.layouts.values()
    first = frames_of(service, 0)[0].stat(layout, "grad_norm")[0]

    assert dict(zip(layout.layer_names, first, strict=True)) == pytest.approx(expected, rel=1e-4)


def test_each_batch_is_a_row_and_every_rank_tells_its_loss(service: StubService) -> None:
    for rank in range(NUM_RANKS):
        frames = frames_of(service, rank)
        losses = np.concatenate([f.metrics[:, f.metric_names.index("loss")] for f in frames])
        assert len(losses) == STEPS
        assert np.isfinite(losses).all()
    kinds = {event.kind for frame in service.frames.values() for event in frame.events}
    assert not kinds & {"hook_fault", "unwatched"}


def frames_of(service: StubService, rank: int) -> list[Frame]:
    return [service.frames[key] for key in sorted(service.frames) if key[1] == rank]


def first_gradients(example: Any) -> dict[str, float]:
    """Norms of the first step's gradients, of both ranks' micro-batches together."""
    torch.manual_seed(0)
    model = example.make_model()
    for rank in range(NUM_RANKS):
        generator = torch.Generator().manual_seed(1 + rank)
        for _ in range(example.ACCUMULATED):
            inputs, targets = example.make_micro_batch(generator)
            loss = functional.cross_entropy(model(inputs), targets)
            torch.autograd.backward(loss / (NUM_RANKS * example.ACCUMULATED))
    return {name: float(one.grad.norm()) for name, one in model.named_parameters()}


def test_the_optimizer_of_a_stage_with_flat_buffers_is_refused_by_name() -> None:
    pytest.importorskip("deepspeed")
    flat: Any = importlib.import_module("deepspeed.runtime.zero.stage_1_and_2")
    optimizer: Any = object.__new__(flat.DeepSpeedZeroOptimizer)
    with pytest.raises(AttachError, match="found DeepSpeedZeroOptimizer, wanted a torch optimizer"):
        attach(torch.nn.Linear(1, 1), optimizer, run="zero")
