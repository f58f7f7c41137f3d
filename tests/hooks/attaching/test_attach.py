"""Attaching for real: arguments, environment, spool."""

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from weakref import ref

import pytest
import torch
from tests.hooks.step.test_patches import facts
from tests.hooks.tiny import TinyGpt, tiny_gpt, train_one
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving
from torch import nn

from runwatch_hooks import AttachError, StepReport, attach
from runwatch_hooks.attaching import entry_point
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.environment import Environment, read_environment

RUN_ID = "01ARZ3NDEKTSV4RRFFQ69G5FAV"


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("URL", "TOKEN", "RUN_ID", "DISABLED"):
        monkeypatch.delenv(f"RUNWATCH_{name}", raising=False)
    monkeypatch.setenv("RUNWATCH_SPOOL", str(tmp_path / "spool"))


@pytest.fixture
def model() -> TinyGpt:
    return tiny_gpt()


@pytest.fixture
def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_without_a_service_a_run_is_spooled(tmp_path: Path) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, run="alone", config={"path": tmp_path}) as watch:
        for _ in watch.steps(3):
            watch.step(train_one(model, optimizer))
    spools = list((tmp_path / "spool" / watch.run_id).glob("*/*.seg"))

    assert len(spools) == 1
    assert spools[0].stat().st_size > 0


def test_a_run_goes_on_under_the_id_it_is_given(
    model: nn.Module, optimizer: torch.optim.Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_RUN_ID", RUN_ID)
    with attach(model, optimizer, run="again") as watch:
        assert watch.run_id == RUN_ID


def test_of_several_runs_of_a_program_the_first_goes_on_under_the_id(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As folds under `runwatch run`: each would be the next attempt of the one before."""
    given = "01J00000000000000000000F0D"
    monkeypatch.setenv("RUNWATCH_RUN_ID", given)
    found: list[str] = []
    for fold in ("fold-0", "fold-1", "fold-0"):
        model = tiny_gpt()
        with attach(model, torch.optim.SGD(model.parameters()), run=fold) as watch:
            found.append(watch.run_id)

    assert [one == given for one in found] == [True, False, True]


def test_a_model_that_is_attached_again_has_one_watch(
    model: TinyGpt,
    optimizer: torch.optim.Optimizer,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with serving(StubService()) as service:
        first = attach(model, optimizer, run="cell", url=service.url, token=TOKEN)
        first.step(train_one(model, optimizer))
        with attach(model, optimizer, run="cell", url=service.url, token=TOKEN) as second:
            for _ in second.steps(3):
                second.step(train_one(model, optimizer))
        first.step(1.0)

    reason = "its model was attached again, for the run 'cell'"
    assert [(one.status, one.reason) for one in service.closings] == [
        ("stopped", reason),
        ("finished", ""),
    ]
    assert service.steps == [0, 0, 1, 2]
    assert f"run {first.run_id} is recorded as stopped: {reason}" in caplog.text


Wrap = Callable[[nn.Module], nn.Module]


class Around(nn.Module):
    """A model with more to train than the one within."""

    def __init__(self, within: nn.Module) -> None:
        super().__init__()
        self.within = within
        self.head = nn.Linear(2, 2)


def as_it_is(model: nn.Module) -> nn.Module:
    return model


def compiled(model: nn.Module) -> nn.Module:
    return cast(nn.Module, torch.compile(model, backend="eager"))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (as_it_is, nn.DataParallel),
        (nn.DataParallel, as_it_is),
        (nn.DataParallel, nn.DataParallel),
        (as_it_is, compiled),
        (as_it_is, Around),
    ],
)
def test_a_model_that_is_attached_again_in_another_wrapper_has_one_watch(
    first: Wrap, second: Wrap, caplog: pytest.LogCaptureFixture
) -> None:
    model = nn.Linear(1, 1, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    halved = {"next_step": 3, "actor": {"journal": list[object](), "lr_scale": 0.5}}
    former = attach(first(model), optimizer, run="cell", state=halved)
    watch = attach(second(model), optimizer, run="cell", state=halved)
    before = model.weight.item()
    model.weight.grad = torch.ones(1, 1)
    optimizer.step()
    watch.finish()

    assert before - model.weight.item() == pytest.approx(0.25)
    assert (
        f"run {former.run_id} is recorded as stopped: its model was attached again" in caplog.text
    )


def test_models_that_share_a_part_have_each_their_own_watch(
    caplog: pytest.LogCaptureFixture,
) -> None:
    body = nn.Linear(2, 2)
    actor, critic = Around(body), Around(body)
    watches = [
        attach(one, torch.optim.SGD(one.head.parameters()), run="agent") for one in (actor, critic)
    ]
    for watch in watches:
        watch.finish()

    assert "attached again" not in caplog.text


def test_an_argument_that_cannot_be_used_ends_no_watch(
    model: TinyGpt, optimizer: torch.optim.Optimizer
) -> None:
    with attach(model, optimizer, run="cell") as watch:
        with pytest.raises(AttachError):
            attach(model, optimizer, run="cell", allow=("dance",))
        report = watch.step(train_one(model, optimizer))

    assert watch.next_step == report.step + 1 == 1


def test_disabled_it_touches_nothing(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("RUNWATCH_DISABLED", "1")
    before = facts()
    with attach(model, optimizer, run="off", checkpoints=tmp_path / "checkpoints") as watch:
        with watch.phase("eval"):
            watch.log(val_loss=1.0)
        assert watch.resume() is None
        assert [watch.step(1.0).step for _ in watch.steps(3)] == [0, 1, 2]
        saved = watch.state_dict()
        watch.load_state_dict(saved)
        assert watch.step() == StepReport(step=3)

    assert facts() == before
    assert list(tmp_path.iterdir()) == []


def test_disabled_no_argument_can_be_wrong(
    model: nn.Module, optimizer: torch.optim.Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DISABLED", "1")
    nonsense: Any = torch.ones(2)
    watch = attach(model, optimizer, run="off", run_id=nonsense, state=nonsense, next_step=nonsense)

    assert [watch.step(1.0).step for _ in watch.steps(2)] == [0, 1]
    assert nonsense.tolist() == [1.0, 1.0]


@pytest.mark.parametrize(
    ("variables", "why"),
    [
        ({"RUNWATCH_DISABLED": "1"}, "RUNWATCH_DISABLED is set"),
        ({"RANK": "1", "WORLD_SIZE": "2"}, "rank 1 is not watched"),
    ],
)
def test_a_watch_that_resumes_nothing_says_so_once(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: dict[str, str],
    why: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    watch = attach(model, optimizer, run="off")
    caplog.clear()

    assert (watch.resume(), watch.resume()) == (None, None)
    (told,) = caplog.messages
    assert told.startswith(f"runwatch: resume: {why}, so nothing is resumed and the training ")


def test_a_life_without_the_hook_hands_its_run_on(
    model: nn.Module, optimizer: torch.optim.Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attach(model, optimizer, run="lives", run_id=RUN_ID) as watch:
        steps = [watch.step(1.0).step for _ in watch.steps(3)]
        saved = watch.state_dict()
    monkeypatch.setenv("RUNWATCH_DISABLED", "1")
    with attach(model, optimizer, run="lives", run_id=RUN_ID, state=saved) as inert:
        steps += [inert.step(1.0).step for _ in inert.steps(6)]
        handed_on = inert.state_dict()
    monkeypatch.delenv("RUNWATCH_DISABLED")
    with attach(
        model, optimizer, run="lives", run_id=str(handed_on["run_id"]), state=handed_on
    ) as watch:
        steps += [watch.step(1.0).step for _ in watch.steps(9)]

    assert steps == list(range(9))
    assert watch.run_id == RUN_ID
    assert handed_on["actor"] == saved["actor"]


def test_a_run_that_began_without_the_hook_is_watched_from_where_it_stands(
    model: nn.Module, optimizer: torch.optim.Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RUNWATCH_DISABLED", "1")
    with attach(model, optimizer, run="later") as inert:
        for _ in inert.steps(4):
            inert.step(1.0)
        saved = inert.state_dict()
    monkeypatch.delenv("RUNWATCH_DISABLED")
    with attach(model, optimizer, run="later", run_id=str(saved["run_id"]), state=saved) as watch:
        assert watch.step(1.0) == StepReport(step=4)
        assert watch.run_id == inert.run_id


def test_a_program_that_counts_its_own_steps_says_where_it_goes_on(
    model: nn.Module, optimizer: torch.optim.Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attach(model, optimizer, run="counted", next_step=4) as watch:
        assert watch.step(1.0) == StepReport(step=4)
        saved = watch.state_dict()
    with attach(model, optimizer, run="counted", state=saved, next_step=9) as watch:
        assert watch.step(1.0) == StepReport(step=9)
        assert watch.state_dict()["actor"] == saved["actor"]
    monkeypatch.setenv("RUNWATCH_DISABLED", "1")
    with attach(model, optimizer, run="counted", state=saved, next_step=9) as inert:
        assert list(inert.steps(11)) == [9, 10]


def test_a_training_that_goes_on_as_a_new_run_is_told_how_to_go_on_with_the_earlier_one(
    model: nn.Module, optimizer: torch.optim.Optimizer, caplog: pytest.LogCaptureFixture
) -> None:
    attach(model, optimizer, run="parted", next_step=4).finish()

    assert "'parted' starts at step 4 as a new run" in caplog.text
    assert "attach(..., run_id=...)" in caplog.text


def test_a_run_that_starts_or_goes_on_under_its_id_is_told_nothing(
    model: nn.Module, optimizer: torch.optim.Optimizer, caplog: pytest.LogCaptureFixture
) -> None:
    attach(model, optimizer, run="whole", next_step=0).finish()
    attach(model, optimizer, run="whole", next_step=4, run_id=RUN_ID).finish()

    assert "as a new run" not in caplog.text


def test_a_state_that_is_refused_leaves_no_watch_behind() -> None:
    model = tiny_gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with attach(model, optimizer, run="refused", guard="outliers") as watch:
        saved = watch.state_dict()
    before = facts()
    with pytest.raises(AttachError, match=r"state: .*num_judged"):
        attach(
            model, optimizer, run="refused", guard="outliers", state={**saved, "guard": {"0": {}}}
        )
    kept = ref(model)
    del model, optimizer
    gc.collect()

    assert facts() == before
    assert kept() is None


@pytest.mark.parametrize("part", ["end_former", "join_team", "build_watch", "note"])
def test_a_fault_of_ours_while_attaching_leaves_the_training_unwatched(
    part: str,
    model: TinyGpt,
    optimizer: torch.optim.Optimizer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AttributeError("a part of ours broke")

    before = facts()
    monkeypatch.setattr(entry_point, part, broken)
    watch = attach(model, optimizer, run="broken", run_id=RUN_ID, next_step=3)
    steps = [watch.step(train_one(model, optimizer)).step for _ in watch.steps(5)]
    watch.finish()

    assert (watch.run_id, steps) == (RUN_ID, [3, 4])
    assert caplog.text.count("not watched: AttributeError: a part of ours broke") == 1
    assert facts() == before


def test_an_interrupt_while_it_is_hooked_in_leaves_no_watch_behind(
    model: TinyGpt, optimizer: torch.optim.Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    before = facts()
    monkeypatch.setattr(LiveWatch, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        attach(model, optimizer, run="interrupted", guard=True, state={"next_step": 3})

    assert facts() == before


def test_a_rank_that_is_not_the_first_is_not_watched(
    model: nn.Module, optimizer: torch.optim.Optimizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    before = facts()
    attach(model, optimizer, run="many")

    assert facts() == before


def test_the_environment_is_read_by_name() -> None:
    variables = {
        "RUNWATCH_URL": "http://127.0.0.1:1",
        "RUNWATCH_TOKEN": "secret",
        "RUNWATCH_SPOOL": "/tmp/spool",
        "RUNWATCH_RUN_ID": RUN_ID,
        "RUNWATCH_PROJECT": "speech",
        "RANK": "1",
        "WORLD_SIZE": "4",
    }

    assert read_environment(variables) == Environment(
        url="http://127.0.0.1:1",
        token="secret",
        spool_dir=Path("/tmp/spool"),
        run_id=RUN_ID,
        job=RUN_ID,
        project="speech",
        rank=1,
        world_size=4,
    )
    assert read_environment({}) == Environment()


def test_an_address_and_a_key_may_end_in_the_newline_of_the_file_that_they_lay_in() -> None:
    found = read_environment({"RUNWATCH_URL": "http://h:1\r\n", "RUNWATCH_TOKEN": " secret\n"})

    assert found == Environment(url="http://h:1", token="secret")


def test_nothing_can_be_wrong_with_a_disabled_hook() -> None:
    variables = {"RUNWATCH_DISABLED": "true", "RUNWATCH_URL": "nonsense", "RANK": "two"}

    assert read_environment(variables) == Environment(disabled=True)


@pytest.mark.parametrize(
    "variables",
    [{"RUNWATCH_DISABLED": "maybe"}, {"RANK": "two"}, {"RANK": "2", "WORLD_SIZE": "2"}],
)
def test_an_environment_that_makes_no_sense_is_refused(variables: dict[str, str]) -> None:
    with pytest.raises(AttachError):
        read_environment(variables)
