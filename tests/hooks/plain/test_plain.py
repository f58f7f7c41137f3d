"""A run without torch: its numbers, its layers, its commands, and whatever is no number."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.hooks.uplink.stub_service import TOKEN, StubService
from tests.waiting import until

from runwatch.commands import AnyAction, Checkpoint, Command, CommandState, LowerLr, Stop
from runwatch.frames import Frame
from runwatch.layouts import Layer
from runwatch.nonfinite import is_absent
from runwatch.vocabulary import CommandId
from runwatch_hooks.errors import AttachError
from runwatch_hooks.loop import PATIENCE_STEPS
from runwatch_hooks.plain import PlainRun, open_run
from runwatch_hooks.statistics.machine_memory import MachineMemory
from runwatch_hooks.statistics.totals import ArrayStats
from runwatch_hooks.uplink import Uplink

EXAMPLE = Path(__file__).parents[3] / "examples" / "numpy_loop.py"
WITHOUT_TORCH = """
import runpy, sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "torch":
            raise ModuleNotFoundError("No module named 'torch'", name="torch")

sys.meta_path.insert(0, Missing())
program, *sys.argv[1:] = sys.argv[1:]
runpy.run_path(program, run_name="__main__")
assert "torch" not in sys.modules
"""


def opened(tmp_path: Path, service: StubService, **options: Any) -> PlainRun:
    return open_run("plain", url=service.url, token=TOKEN, spool=tmp_path, **options)


def frames(service: StubService) -> list[Frame]:
    return [service.frames[key] for key in sorted(service.frames)]


def metric(service: StubService, name: str) -> list[float]:
    found: list[float] = []
    for frame in frames(service):
        if name in frame.metric_names:
            found += frame.metrics[:, frame.metric_names.index(name)].tolist()
    return found


def recorded(service: StubService, name: str) -> dict[int, float]:
    """A metric by step, where a row recorded it. Which rows share a frame, and are filled up with
    each other's names, is decided by the sender's clock."""
    found: dict[int, float] = {}
    for frame in frames(service):
        if name in frame.metric_names:
            values = frame.metrics[:, frame.metric_names.index(name)]
            steps = frame.first_step + np.flatnonzero(~is_absent(values))
            found |= {int(step): float(values[step - frame.first_step]) for step in steps}
    return found


def told(service: StubService, kind: str) -> list[Mapping[str, object]]:
    """The details of the events of a kind."""
    return [e.detail for frame in frames(service) for e in frame.events if e.kind == kind]


def test_a_program_runs_where_torch_is_not_installed(tmp_path: Path, service: StubService) -> None:
    environment = {"RUNWATCH_URL": service.url, "RUNWATCH_TOKEN": TOKEN, "RUNWATCH_SPOOL": "spool"}
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(EXAMPLE), "--steps=120"],
        env=os.environ | environment,
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=300,
    )

    assert done.returncode == 0, done.stderr.decode()
    assert service.steps == list(range(120))
    assert metric(service, "loss")[-1] < metric(service, "loss")[0]
    (layout,) = service.layouts.values()
    assert layout.layer_names == ("hidden.weight", "hidden.bias", "head.weight", "head.bias")
    assert [closing.status for closing in service.closings] == ["finished"]


def test_layers_are_told_as_plain_arithmetic_has_them() -> None:
    grad = np.array([[3.0, -4.0], [0.0, np.nan]], np.float32)
    before, after = np.full((2, 2), 2.0), np.full((2, 2), 2.5)
    stats = ArrayStats()
    stats.read({"w": grad}, {"w": before}, {})
    layout, read = stats.read({"w": grad}, {"w": after}, {})
    found = dict(zip(layout.stats, read[:, 0].tolist(), strict=True))

    assert np.isnan(found.pop("grad_absmax"))
    assert found == {
        "grad_norm": 5.0,
        "nonfinite": 1.0,
        "zero_frac": 0.25,
        "param_norm": 5.0,
        "update_ratio": 0.25,
    }


@pytest.mark.parametrize(
    "array",
    [np.ones(2, np.float16), np.array([1 + 1j, 1 + 1j]), np.empty((0, 3)), np.float64(2.0), [3]],
)
def test_arrays_of_any_kind_are_read(array: Any) -> None:
    read = ArrayStats().read({"w": np.asarray(array)}, {"w": np.asarray(array)}, {})[1]

    flat = np.asarray(array).reshape(-1).astype(np.complex128)
    assert read[0, 0] == pytest.approx(np.linalg.norm(flat))
    assert read[4, 0] == pytest.approx(read[0, 0])


def test_complex_arrays_count_as_pairs_and_turning_them_is_an_update() -> None:
    before, after = np.array([1 + 0j, 1 + 0j]), np.array([1j, 1j])
    stats = ArrayStats()
    stats.read({}, {"w": before}, {})
    layout, read = stats.read({"w": np.array([3 + 4j, 0j])}, {"w": after}, {})
    found = dict(zip(layout.stats, read[:, 0].tolist(), strict=True))

    assert found["zero_frac"] == 0.5
    assert found["update_ratio"] == pytest.approx(math.sqrt(2.0))


def test_an_update_of_a_large_array_is_near_the_truth() -> None:
    random = np.random.default_rng(1)
    before = random.normal(size=(300, 256))
    change = 1e-3 * random.normal(size=before.shape)
    stats = ArrayStats()
    stats.read({}, {"w": before}, {})
    read = stats.read({}, {"w": before + change}, {})[1]

    assert read[5, 0] == pytest.approx(np.linalg.norm(change) / np.linalg.norm(before), rel=0.1)


def test_names_are_the_way_to_an_array() -> None:
    tree = {"encoder": {"layers": [{"kernel": np.ones(2)}, {"kernel": np.ones(3), "bias": None}]}}
    layout = ArrayStats().read(tree, {}, {"head": {"grad_norm": 2.0}})[0]

    assert layout.layer_names == (
        "encoder.layers.0.kernel", "encoder.layers.1.kernel", "head",
    )  # fmt: skip


def test_stats_that_the_program_computed_are_taken(tmp_path: Path, service: StubService) -> None:
    with opened(tmp_path, service) as run:
        run.step(1.0, layers={"a": {"grad_norm": 3.0, "nonfinite": 0.0}, "b": {"grad_norm": 4.0}})

    assert metric(service, "grad_norm") == [5.0]


def test_a_policy_is_known_by_its_reward(tmp_path: Path, service: StubService) -> None:
    with opened(tmp_path, service) as run:
        run.step(1.0)
        run.step(1.0, reward=0.5)
        run.step(1.0)

    assert recorded(service, "alternating") == {1: 1.0, 2: 1.0}


def test_a_reward_and_an_evaluation_under_usual_names_are_recorded_for_the_rules_too(
    tmp_path: Path, service: StubService
) -> None:
    with opened(tmp_path, service) as run:
        run.step(1.0, episode_return=0.5)
        run.step(1.0, episode_return=0.25, best_reward=1.0)
        run.log(**{"eval/loss": 2.0})

    assert metric(service, "episode_return") == metric(service, "reward") == [0.5, 0.25]
    assert recorded(service, "eval/loss") == recorded(service, "val_loss") == {1: 2.0}


def test_what_is_logged_before_the_first_step_belongs_to_it_and_later_to_the_last(
    tmp_path: Path, service: StubService
) -> None:
    with opened(tmp_path, service, next_step=7) as run:
        run.log(val_loss=4.0)
        for loss in (1.0, 2.0):
            run.step(loss)
        run.log(val_loss=3.0)

    assert recorded(service, "val_loss") == {7: 4.0, 8: 3.0}
    assert recorded(service, "loss") == {7: 1.0, 8: 2.0}


def test_a_metric_of_its_own_name_is_not_filled_by_another(
    tmp_path: Path, service: StubService
) -> None:
    with opened(tmp_path, service) as run:
        run.step(1.0, test_loss=3.0, val_loss=2.0)
        run.log(test_loss=4.0)

    assert metric(service, "val_loss") == [2.0]


def test_an_array_by_itself_is_one_layer(tmp_path: Path, service: StubService) -> None:
    with opened(tmp_path, service) as run:
        run.step(0.5, gradients=np.array([3.0, 4.0]), parameters=np.array([[1.0, 0.0]]))

    assert metric(service, "loss") == [0.5]
    assert metric(service, "grad_norm") == [5.0]
    (layout,) = service.layouts.values()
    assert layout.layers == (Layer("layer", (1, 2), "float64"),)


def test_no_arrays_are_no_layers(tmp_path: Path, service: StubService) -> None:
    with opened(tmp_path, service) as run:
        run.step(0.5, gradients={}, parameters=[])

    assert (metric(service, "loss"), service.layouts, run.num_faults) == ([0.5], {}, 0)


def test_what_is_no_number_and_no_array_costs_nothing_else(
    tmp_path: Path, service: StubService
) -> None:
    with opened(tmp_path, service) as run:
        run.step(1.0, accuracy="good", gradients={"w": "text"})  # type: ignore[arg-type]
        run.step(np.float32(2.0), tokens="many", layers={"w": {"unknown": 1.0}})  # type: ignore[arg-type]
        run.log(val_loss=math.nan)

    assert metric(service, "loss") == [1.0, 2.0]
    assert math.isnan(metric(service, "val_loss")[0])
    assert run.num_faults == 2
    (fault,) = told(service, "hook_fault")
    assert str(fault["error"]).startswith("layers: ")


def test_a_loss_is_kept_among_however_many_numbers(tmp_path: Path, service: StubService) -> None:
    many: dict[str, Any] = {f"of_{index}": 1.0 for index in range(300)}
    with opened(tmp_path, service) as run:
        run.step(0.5, **many)

    assert metric(service, "loss") == [0.5]
    assert metric(service, "of_254") == [1.0]


def test_a_machine_whose_memory_cannot_be_read_costs_nothing_else(
    tmp_path: Path, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> dict[str, float]:
        raise OSError("no such file")

    monkeypatch.setattr(MachineMemory, "take", broken)
    with opened(tmp_path, service) as run:
        run.step(0.5)

    assert metric(service, "loss") == [0.5]
    assert [detail["error"] for detail in told(service, "hook_fault")] == [
        "machine memory: OSError: no such file"
    ]


def test_a_run_that_is_ended_in_the_middle_of_a_call_raises_nothing(
    tmp_path: Path, service: StubService
) -> None:
    """As by another thread, or by a signal's handler."""

    class Ending(float):
        def __float__(self) -> float:
            run.finish()
            return 1.0

    run = opened(tmp_path, service)
    run.log(val_loss=Ending())

    assert (run.num_faults, run.step(1.0).step) == (0, 0)


def command(action: AnyAction, name: str) -> Command:
    return Command(CommandId(name), action, attempt=1, expires_at=time.time() + 3600)


def test_a_program_is_told_what_was_asked_of_it(tmp_path: Path, service: StubService) -> None:
    with opened(tmp_path, service, allow=("lower_lr", "stop")) as run:
        run.step(1.0)
        for name, action in (("a", Checkpoint()), ("b", LowerLr(0.5)), ("c", Stop())):
            service.send(command(action, name))
        until(lambda: run.step(1.0).stop)
        report = run.step(1.0)
    receipts = {receipt.command_id: receipt for receipt in service.receipts}

    assert (report.stop, report.lr_scale) == (True, 0.5)
    assert [receipts[CommandId(name)].state for name in "abc"] == [
        CommandState.REJECTED, CommandState.APPLIED, CommandState.APPLIED,
    ]  # fmt: skip
    assert receipts[CommandId("a")].detail == {
        "error": "checkpoint: the trainer allows lower_lr, stop"
    }
    assert [closing.status for closing in service.closings] == ["stopped"]


def unheeded(service: StubService) -> list[str]:
    """What the loop was told that it does not follow, by its first words."""
    return [str(detail["what"]).split(",")[0] for detail in told(service, "unheeded")]


def test_a_loop_that_follows_no_order_is_told_once_of_each(
    tmp_path: Path, service: StubService
) -> None:
    with opened(tmp_path, service, allow=("lower_lr", "stop")) as run:
        for name, action in (("a", LowerLr(0.5)), ("b", Stop())):
            service.send(command(action, name))
        until(lambda: run.step(1.0) and len(service.receipts) == 2)
        for _ in range(3 * PATIENCE_STEPS):
            run.step(1.0)

    assert sorted(unheeded(service)) == [
        "the learning rate was to be lowered", "the run was asked to stop",
    ]  # fmt: skip


def test_a_loop_that_follows_its_orders_is_told_nothing(
    tmp_path: Path, service: StubService
) -> None:
    with opened(tmp_path, service, allow=("lower_lr", "stop")) as run:
        for name, action in (("a", LowerLr(0.5)), ("b", Stop())):
            service.send(command(action, name))
        until(lambda: (report := run.step(1.0)).lr_scale == 0.5 and report.stop)
        for _ in range(3 * PATIENCE_STEPS):
            run.step(1.0)

    assert unheeded(service) == []


def test_a_phase_is_told_even_where_its_name_is_none_of_ours(
    tmp_path: Path, service: StubService
) -> None:
    with opened(tmp_path, service) as run:
        with run.phase("eval"), run.phase("lunch"):
            pass
        run.step(1.0)
    edges = [(e.detail["phase"], e.detail["edge"]) for f in frames(service) for e in f.events]

    assert edges == [("eval", "begin"), ("lunch", "begin"), ("lunch", "end"), ("eval", "end")]


def test_a_resumed_program_goes_on_with_its_numbers(tmp_path: Path, service: StubService) -> None:
    with opened(tmp_path, service, next_step=40) as run:
        run.step(1.0)

    assert service.steps == [40]
    assert [one.resume_step for one in service.attempts.values()] == [40]


@pytest.mark.parametrize(
    ("arguments", "project"), [({}, "speech"), ({"project": "vision"}, "vision")]
)
def test_the_environment_names_the_project_where_the_program_does_not(
    tmp_path: Path,
    service: StubService,
    monkeypatch: pytest.MonkeyPatch,
    arguments: dict[str, str],
    project: str,
) -> None:
    monkeypatch.setenv("RUNWATCH_PROJECT", "speech")
    with opened(tmp_path, service, **arguments) as run:
        run.step(1.0)

    assert [one.project for one in service.runs.values()] == [project]


def test_leaving_by_an_exception_fails_the_run(tmp_path: Path, service: StubService) -> None:
    with pytest.raises(ZeroDivisionError), opened(tmp_path, service) as run:
        run.step(1 / 0)

    assert [(one.status, one.reason) for one in service.closings] == [
        ("failed", "ZeroDivisionError: division by zero")
    ]


@pytest.mark.parametrize(
    "variables", [{"RUNWATCH_DISABLED": "1"}, {"RANK": "1", "WORLD_SIZE": "2"}]
)
def test_it_touches_nothing_where_it_is_off_or_not_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with open_run("plain", spool=tmp_path) as run:
        assert [run.step(1.0, gradients={"w": np.ones(3)}).step for _ in range(2)] == [0, 1]

    assert not list(tmp_path.iterdir())


def test_where_it_is_off_no_argument_can_be_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RUNWATCH_DISABLED", "1")
    nonsense: Any = np.array([1, 2])
    run = open_run("off", run_id=nonsense, next_step=nonsense)

    assert [run.step(1.0).step for _ in range(2)] == [0, 1]
    run.finish()


def test_what_cannot_be_asked_of_such_a_program_is_refused(tmp_path: Path) -> None:
    with pytest.raises(AttachError, match="allow: found 'rollback', wanted some of"):
        open_run("plain", spool=tmp_path, allow=("stop", "rollback"))


@pytest.mark.parametrize(
    ("allow", "message"),
    [
        (3, "allow: found 3, wanted a tuple of some of"),
        (None, "allow: found None, wanted a tuple of some of"),
        ((np.ones(2),), r"allow: found array\(\[1\., 1\.\]\), wanted some of"),
    ],
)
def test_whatever_stands_in_for_what_is_allowed_is_told_from_it(
    allow: Any, message: str, tmp_path: Path
) -> None:
    with pytest.raises(AttachError, match=message):
        open_run("plain", spool=tmp_path, allow=allow)


def test_a_phase_whose_name_is_no_text_harms_no_later_step(tmp_path: Path) -> None:
    run = open_run("plain", spool=tmp_path)
    with run.phase(np.ones(2)):  # type: ignore[arg-type]
        pass
    run.step(1.0)
    run.finish()

    assert run.num_faults == 0


def test_a_fault_of_ours_while_opening_leaves_the_program_unwatched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(_: object) -> None:
        raise RuntimeError("a part of ours broke")

    monkeypatch.setattr(Uplink, "start", broken)
    with open_run("broken", spool=tmp_path, next_step=3) as run:
        assert [run.step(1.0).step for _ in range(2)] == [3, 4]

    assert caplog.text.count("not watched: RuntimeError: a part of ours broke") == 1
