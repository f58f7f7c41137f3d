"""Trainings under DeepSpeed's engine, at each stage of ZeRO: what is told of them is what the same
training says in one process, of its whole gradients and parameters.

DeepSpeed is not among the development dependencies. Where it is not installed these tests skip
themselves.
"""

import importlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import pytest
import torch
from tests.hooks.adapters import under_deepspeed, zero_rank, zero_settings
from tests.hooks.ranks.launched import NUM_RANKS, run_ranks, seen_by_ranks
from tests.hooks.ranks.ordered import Did, check_deeds, check_replay
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_

from runwatch.frames import Frame
from runwatch_hooks import attach
from runwatch_hooks.attaching.entry_point import check_zero
from runwatch_hooks.errors import AttachError
from runwatch_hooks.ranks.shards import zero_types
from runwatch_hooks.settings.options import Options

pytestmark = pytest.mark.heavy

STEPS: Final = 6
KEEPS_PARAMETERS: Final = (1, 2)

Facts = dict[str, dict[str, float]]
"""Of a step: stats by their names, each by layer."""


@pytest.fixture(scope="module", params=range(4), ids="stage_{}".format)
def service(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> StubService:
    """What was told of the example."""
    pytest.importorskip("deepspeed")
    with serving(StubService()) as told:
        run_ranks(
            Path(under_deepspeed.__file__),
            f"--steps={STEPS}",
            f"--stage={request.param}",
            folder=tmp_path_factory.mktemp("deepspeed"),
            RUNWATCH_URL=told.url,
            RUNWATCH_TOKEN=TOKEN,
        )
        return told


@pytest.fixture(scope="module")
def alone() -> list[Facts]:
    """The same training in one process: each step's facts."""
    pytest.importorskip("deepspeed")
    return list(trained_alone(under_deepspeed.load_example()))


@pytest.mark.parametrize("stat", ["grad_norm", "grad_absmax", "zero_frac", "nonfinite"])
def test_a_layer_s_gradient_is_that_of_the_whole_batch_before_it_is_clipped(
    service: StubService, alone: list[Facts], stat: str
) -> None:
    told = [facts[stat] for facts in layers_of(service)]

    assert told == [pytest.approx(facts[stat], rel=1e-4) for facts in alone]


@pytest.mark.parametrize("stat", ["param_norm", "update_ratio"])
def test_a_layer_s_parameters_are_those_of_the_whole(
    service: StubService, alone: list[Facts], stat: str
) -> None:
    assert layers_of(service)[0][stat] == pytest.approx(alone[0][stat], rel=1e-3)


@pytest.mark.parametrize("metric", ["grad_norm", "lr"])
def test_the_run_s_numbers_are_those_of_the_whole(
    service: StubService, alone: list[Facts], metric: str
) -> None:
    told = metric_of(service, metric)

    assert told == pytest.approx([facts["run"][metric] for facts in alone], rel=1e-4)


def test_how_hard_zero_clipped_is_told(service: StubService, alone: list[Facts]) -> None:
    coefficients = [facts["run"]["clip_coef"] for facts in alone]
    (run,) = service.runs.values()
    known = coefficients if run.config["stage"] else []  # stage 0 clips by a way of its own

    assert max(coefficients) < 1.0
    assert metric_of(service, "clip_coef") == pytest.approx(known, rel=1e-4)


def test_each_batch_is_a_row_and_every_rank_tells_its_loss(service: StubService) -> None:
    for rank in range(NUM_RANKS):
        losses = metric_of(service, "loss", rank)
        assert len(losses) == STEPS
        assert np.isfinite(losses).all()
    kinds = {event.kind for frame in service.frames.values() for event in frame.events}
    assert not kinds & {"hook_fault", "unwatched"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What was told of each setting, and what DeepSpeed said."""
    pytest.importorskip("deepspeed")
    written = tmp_path_factory.mktemp("settings") / "results.json"
    run_ranks(Path(zero_settings.__file__), str(written))
    found: dict[str, dict[str, Any]] = json.loads(written.read_text())
    return found


def of(settings: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name.startswith("fp16") and name not in settings:
        pytest.skip("DeepSpeed finds no fp16 in this processor")
    return settings[name]


@pytest.mark.parametrize("name", zero_settings.SETTINGS)
def test_the_norm_is_deepspeed_s_own_whatever_its_settings(
    settings: dict[str, dict[str, Any]], name: str
) -> None:
    told = of(settings, name)
    broken = {zero_settings.BROKEN_AT} if name.startswith("fp16") else set[int]()
    steps = [step for step in range(zero_settings.STEPS) if step not in broken]

    assert [told["grad_norm"][step] for step in steps] == pytest.approx(
        [told["norms"][step] for step in steps], rel=1e-4
    )
    assert told["kinds"] == ["grad_stage"]


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_that_fp16_skips_is_told_with_what_was_not_finite(
    settings: dict[str, dict[str, Any]], stage: int
) -> None:
    told = of(settings, f"fp16, stage {stage}")

    assert told["skipped"] == [0.0, 0.0, 1.0, 0.0]
    assert [count > 0 for count in told["nonfinite"]] == [False, False, True, False]
    assert told["loss_scale"] == [zero_settings.SCALE] * zero_settings.STEPS


@pytest.fixture(scope="module", params=KEEPS_PARAMETERS, ids="stage_{}".format)
def ranks(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> list[Did]:
    pytest.importorskip("deepspeed")
    program = Path(zero_rank.__file__)
    return seen_by_ranks(program, tmp_path_factory.mktemp("ordered"), str(request.param))


def test_after_a_rollback_the_same_steps_are_trained_to_the_bit(ranks: list[Did]) -> None:
    for rank in ranks:
        check_replay(rank)


def test_a_new_engine_goes_on_exactly_from_a_checkpoint(ranks: list[Did]) -> None:
    assert [rank["resumes_exactly"] for rank in ranks] == [True, True]


def test_all_ranks_do_each_command_at_one_step(ranks: list[Did]) -> None:
    check_deeds(ranks)


def frames_of(service: StubService, rank: int) -> list[Frame]:
    return [service.frames[key] for key in sorted(service.frames) if key[1] == rank]


def layers_of(service: StubService) -> list[Facts]:
    (layout,) = service.layouts.values()
    found: list[Facts] = []
    for frame in frames_of(service, 0):
        stats = {name: frame.stat(layout, name) for name in layout.stats}
        found += [
            {
                name: dict(zip(layout.layer_names, map(float, values[row]), strict=True))
                for name, values in stats.items()
            }
            for row in range(frame.num_steps)
        ]
    return found


def metric_of(service: StubService, name: str, rank: int = 0) -> list[float]:
    return [
        float(value)
        for frame in frames_of(service, rank)
        if name in frame.metric_names
        for value in frame.metrics[:, frame.metric_names.index(name)]
    ]


def trained_alone(example: Any) -> Iterator[Facts]:
    """Each step over both ranks' micro-batches, with torch's own clip and optimizer."""
    torch.manual_seed(0)
    model = example.make_model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    generators = [torch.Generator().manual_seed(1 + rank) for rank in range(NUM_RANKS)]
    for _ in range(STEPS):
        optimizer.zero_grad()
        for generator in generators:
            for _ in range(example.ACCUMULATED):
                inputs, targets = example.make_micro_batch(generator)
                loss = functional.cross_entropy(model(inputs), targets)
                torch.autograd.backward(loss / (NUM_RANKS * example.ACCUMULATED))
        named = {name: one.detach() for name, one in model.named_parameters()}
        grads = {name: one.grad for name, one in model.named_parameters()}
        facts: Facts = {
            "grad_norm": {name: float(grad.norm()) for name, grad in grads.items()},
            "grad_absmax": {name: float(grad.abs().max()) for name, grad in grads.items()},
            "zero_frac": {name: float((grad == 0).float().mean()) for name, grad in grads.items()},
            "nonfinite": dict.fromkeys(named, 0.0),
            "param_norm": {name: float(one.norm()) for name, one in named.items()},
        }
        before = {name: one.clone() for name, one in named.items()}
        limit = example.CONFIG["gradient_clipping"]
        total = float(clip_grad_norm_(model.parameters(), limit))
        coefficient = min(1.0, limit / (total + 1e-6))
        facts["run"] = {"grad_norm": total, "clip_coef": coefficient, "lr": 1e-3}
        optimizer.step()
        facts["update_ratio"] = {
            name: float((one - before[name]).norm() / before[name].norm())
            for name, one in named.items()
        }
        yield facts


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (Options(guard=True), "guard: .* would decide by its own"),
        (Options(max_overhead=0.01), "max_overhead: .* read at every step"),
        (Options(bundles=Path("bundles")), "bundles: .* no step can be replayed"),
    ],
)
def test_what_needs_whole_parameters_is_refused_with_the_reason(
    options: Options, reason: str
) -> None:
    with pytest.raises(AttachError, match=reason):
        check_zero([unused_optimizer("stage_1_and_2", bit16_groups=[])], options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (Options(allow=("rollback",)), "allow: found rollback, .* no parameters to put back"),
        (Options(checkpoints=Path("ckpts")), "checkpoints: .* no parameters to save"),
    ],
)
def test_what_stage_3_has_no_parameters_for_is_refused(options: Options, reason: str) -> None:
    check_zero([unused_optimizer("stage_1_and_2", bit16_groups=[])], options)
    with pytest.raises(AttachError, match=reason):
        check_zero([unused_optimizer("stage3")], options)


def test_states_that_lie_elsewhere_are_refused() -> None:
    offloaded = unused_optimizer("stage_1_and_2", bit16_groups=[], cpu_offload=True)
    with pytest.raises(AttachError, match="with its states offloaded"):
        check_zero([offloaded], Options())


def test_deepspeed_s_other_optimizers_are_refused_by_name() -> None:
    pytest.importorskip("deepspeed")
    other = importlib.import_module("deepspeed.runtime.bf16_optimizer").BF16_Optimizer
    with pytest.raises(AttachError, match="found BF16_Optimizer, wanted a torch optimizer"):
        attach(torch.nn.Linear(1, 1), object.__new__(other), run="bf16")


def unused_optimizer(home: str, **facts: object) -> Any:
    """DeepSpeed's, of a stage, that has never been set up."""
    pytest.importorskip("deepspeed")
    module: Any = importlib.import_module(f"deepspeed.runtime.zero.{home}")
    (kind,) = (one for one in zero_types() if one.__module__ == module.__name__)
    optimizer = cast("Any", object.__new__(kind))
    vars(optimizer).update(facts)
    return optimizer
