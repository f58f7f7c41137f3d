"""The watch at its boundaries: rows, commands, phases, the end."""

import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import cast

import numpy as np
import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM, TinyGpt, batch, tiny_gpt, train_one, watched
from torch import nn

from runwatch.commands import AnyAction, Checkpoint, Command, CommandState, LowerLr, Rollback, Stop
from runwatch.errors import InvalidInputError
from runwatch.vocabulary import CommandId, Phase
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.observers.mistakes.no_gradients import BLIND_AFTER
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options

EVERYTHING = Options(
    allow=("checkpoint", "lower_lr", "rollback", "stop"),
    snapshot_every=1,
    snapshots=12,
    good_after=2,
)

RECEIPT = {"command_id": "c1", "attempt": 1, "rank": 0, "state": "applied", "step": 3}


def command(action: AnyAction, name: str = "c1") -> Command:
    return Command(id=CommandId(name), action=action, attempt=1, expires_at=math.inf)


class Stateless:
    """State of the user's own that refuses to say what it holds."""

    def __init__(self) -> None:
        self.refuses = False

    def state_dict(self) -> dict[str, object]:
        if self.refuses:
            raise RuntimeError("not now")
        return {}

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        pass


class Training:
    """A small run under a watch, a step at a time."""

    def __init__(self, line: RecordingLine, options: Options = EVERYTHING) -> None:
        self.model: TinyGpt = tiny_gpt()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        self.watch: LiveWatch = watched(self.model, self.optimizer, line=line, options=options)
        self.losses: list[float] = []

    def run(self, num_steps: int) -> None:
        for _ in range(num_steps):
            loss = train_one(self.model, self.optimizer)
            self.losses.append(loss.item())
            self.watch.step(loss)


def test_a_row_holds_the_steps_own_numbers(line: RecordingLine) -> None:
    training = Training(line)
    training.run(1)
    training.watch.step(torch.tensor(2.0), tokens=64, accuracy=torch.tensor(0.5), epoch=3)
    row = line.rows[1]

    assert (row.step, row.segment) == (1, 0)
    assert row.metrics["loss"] == 2.0
    assert (row.metrics["accuracy"], row.metrics["epoch"]) == (0.5, 3.0)
    assert row.metrics["step_time"] > 0
    assert row.metrics["tokens_per_s"] == pytest.approx(64 / row.metrics["step_time"])
    assert row.metrics["lr_scale"] == 1.0


def test_a_number_that_is_none_is_left_out_and_harms_nothing(
    line: RecordingLine, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(line)
    for _ in range(2):
        training.watch.step(
            {"task": 1.0},  # type: ignore[arg-type]
            oddity="text",  # type: ignore[arg-type]
            nothing=None,  # type: ignore[arg-type]
            one=np.array([2.0]),  # type: ignore[arg-type]
        )

    assert line.rows[0].metrics["one"] == 2.0
    assert {"loss", "oddity", "nothing"}.isdisjoint(line.rows[0].metrics)
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition(",")[0] for text in told] == [
        "runwatch: 'loss' is left out: found a dict",
        "runwatch: 'oddity' is left out: found a str",
    ]
    assert (training.watch.num_faults, line.kinds()) == (0, [])
    assert "Traceback" not in caplog.text


@pytest.mark.parametrize(
    "tokens",
    ["many", math.nan, math.inf, [64], torch.ones(3), torch.ones(3, device="meta"), np.ones(3)],
    ids=lambda tokens: type(tokens).__name__,
)
def test_tokens_that_are_no_number_cost_the_step_nothing_else_and_are_said_once(
    tokens: object, line: RecordingLine, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(line)
    for _ in range(3):
        train_one(training.model, training.optimizer)
        training.watch.step(1.0, tokens=cast(int, tokens))

    assert line.metric("loss") == [1.0, 1.0, 1.0]
    assert all(row.stats is not None for row in line.rows)
    assert line.metric("tokens_per_s") == []
    assert len(line.metric("step_time")) == 2
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith("runwatch: 'tokens' is left out: found a ")
    assert training.watch.num_faults == 0


def test_a_tensor_without_numbers_costs_the_step_nothing_else(line: RecordingLine) -> None:
    training = Training(line)
    for _ in range(2):
        training.watch.step(torch.ones((), device="meta"), one=1.0, tokens=torch.tensor(64))  # type: ignore[arg-type]

    assert line.metric("one") == [1.0, 1.0]
    assert line.metric("loss") == []
    assert len(line.metric("tokens_per_s")) == 1
    assert training.watch.num_faults == 0


def test_a_number_named_like_one_of_ours_is_kept_under_another_name(
    line: RecordingLine, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(line)
    for _ in range(2):
        loss = train_one(training.model, training.optimizer)
        training.watch.step(loss, lr=5.0, grad_norm=-3.0, step_time=7.0, loss_scale=8.0)
    training.watch.log(lr=6.0)
    metrics = line.rows[1].metrics

    assert {name: metrics[f"user/{name}"] for name in ("lr", "grad_norm")} == {
        "lr": 5.0, "grad_norm": -3.0,
    }  # fmt: skip
    assert (metrics["lr"], metrics["loss_scale"]) == (1e-2, 8.0)
    assert metrics["grad_norm"] > 0
    assert dict(line.rows[2].metrics) == {"user/lr": 6.0}
    assert [event.detail["name"] for event in line.events if event.kind == "renamed"] == [
        "lr", "grad_norm", "step_time",
    ]  # fmt: skip
    assert caplog.text.count("yours is stored as 'user/lr'") == 1


def test_a_watch_that_sees_no_gradients_any_more_says_so(
    line: RecordingLine, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(line)
    training.run(2)
    for _ in range(2 * BLIND_AFTER):
        training.watch.step(1.0)
    training.run(1)
    told = [event for event in line.events if event.kind == "unwatched"]

    assert [event.step for event in told] == [1 + BLIND_AFTER]
    assert f"no gradient was seen for {BLIND_AFTER} steps" in str(told[0].detail["what"])
    assert caplog.text.count("no gradient was seen") == 1


def test_a_training_without_an_optimizers_steps_is_told_what_to_do(line: RecordingLine) -> None:
    training = Training(line)
    for _ in range(BLIND_AFTER):  # gradients made and applied by hand, as with torch.func
        training.watch.step(1.0)
    (told,) = [event for event in line.events if event.kind == "unwatched"]

    assert told.step == BLIND_AFTER - 1
    assert "the optimizer whose step() trains it" in str(told.detail["what"])
    assert "runwatch_hooks.plain.open_run" in str(told.detail["what"])


def test_layers_that_find_no_place_are_told_of_once(
    line: RecordingLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("runwatch_hooks.step.layers.MAX_LAYERS", 3)
    Training(line).run(2)

    told = [event.detail["what"] for event in line.events if event.kind == "unwatched"]
    assert told == ["10 layers beyond the first 3 are not watched"]


def test_a_loss_that_is_no_number_costs_the_step_nothing_else(line: RecordingLine) -> None:
    training = Training(line)
    training.run(1)
    training.watch.step("text", tokens="many", fine=2.0)  # type: ignore[arg-type]
    training.run(1)

    assert "loss" not in line.rows[1].metrics
    assert line.rows[1].metrics["fine"] == 2.0
    assert line.rows[2].layout is not None


@pytest.mark.parametrize("name", ["", "x" * 300])
def test_a_name_that_the_wire_refuses_costs_the_step_nothing_else(
    line: RecordingLine, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(line)
    training.watch.step(1.0, tokens=None, **{"fine": 2.0, name: 3.0})

    assert name not in line.rows[0].metrics
    assert line.rows[0].metrics["fine"] == 2.0
    assert f"{name!r} is left out: wanted a name of 1 to 256 bytes" in caplog.text


def test_of_more_numbers_than_are_taken_the_loss_is_not_the_one_left_out(
    line: RecordingLine, caplog: pytest.LogCaptureFixture
) -> None:
    training = Training(line)
    training.watch.step(math.nan, tokens=None, **{f"expert_{k}": float(k) for k in range(300)})

    assert math.isnan(line.rows[0].metrics["loss"])
    assert line.rows[0].metrics["expert_200"] == 200.0
    assert "expert_299" not in line.rows[0].metrics
    assert "'expert_299' is left out: found 301 numbers at once" in caplog.text


def test_a_loss_that_is_not_finite_is_urgent_and_travels_as_itself(line: RecordingLine) -> None:
    watch = Training(line).watch
    for loss in (1.0, math.inf, math.nan):
        watch.step(loss)

    assert [row.urgent for row in line.rows] == [False, True, True]
    assert line.rows[1].metrics["loss"] == math.inf
    assert math.isnan(line.rows[2].metrics["loss"])


def test_what_is_logged_later_belongs_to_the_last_step(line: RecordingLine) -> None:
    training = Training(line)
    training.run(2)
    training.watch.log(val_loss=1.5)
    row = line.rows[-1]

    assert (row.step, dict(row.metrics), row.stats) == (1, {"val_loss": 1.5}, None)


def test_a_phase_is_told_and_does_not_count_as_step_time(
    line: RecordingLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Training(line)
    now = 0.0
    monkeypatch.setattr("runwatch_hooks.run.time.monotonic", lambda: now)
    training.watch.step(1.0)
    now = 10.0
    with training.watch.phase("eval"):
        assert line.progress[-1][:2] == (0, Phase.EVAL)
        now = 110.0
    now = 111.0
    training.watch.step(1.0)

    assert line.progress[-1][:2] == (1, Phase.TRAIN)
    assert line.metric("step_time") == [11.0]
    assert line.kinds() == ["phase", "phase"]


def test_a_phase_whose_name_is_no_text_ends_as_others_do(line: RecordingLine) -> None:
    training = Training(line)
    with training.watch.phase(np.ones(2)):  # type: ignore[arg-type]
        pass

    assert [event.detail["phase"] for event in line.events] == ["[1. 1.]"] * 2
    assert training.watch.num_faults == 0


def test_a_phase_of_a_name_that_is_none_of_ours_is_idle_and_told_by_its_name(
    line: RecordingLine,
) -> None:
    training = Training(line)
    with training.watch.phase("lunch"):
        assert line.progress[-1][1] is Phase.IDLE

    edges = [(event.detail["phase"], event.detail["edge"]) for event in line.events]
    assert edges == [("lunch", "begin"), ("lunch", "end")]


def test_before_the_first_step_the_run_is_in_its_beginning(line: RecordingLine) -> None:
    Training(line)

    assert line.progress == [(None, Phase.INIT, 1.0)]


def test_a_command_is_carried_out_at_the_boundary_and_answered(line: RecordingLine) -> None:
    training = Training(line)
    training.run(2)
    line.commands = [command(LowerLr(scale=0.5))]
    training.run(2)

    assert [(one.state, one.step) for one in line.receipts] == [(CommandState.APPLIED, 3)]
    assert line.metric("lr_scale") == [1.0, 1.0, 1.0, 0.5]
    assert line.metric("lr") == pytest.approx([1e-2, 1e-2, 1e-2, 5e-3])
    assert line.progress[-1] == (3, Phase.TRAIN, 0.5)


def test_a_rollback_opens_a_segment_and_replays_to_the_bit(line: RecordingLine) -> None:
    training = Training(line)
    training.run(8)
    line.commands = [command(Rollback(before_step=6))]
    training.watch.step(1.0)
    back_to = training.watch.next_step
    training.run(8 - back_to)

    assert back_to < 6
    assert training.losses[8:] == training.losses[back_to:8]
    assert [row.step for row in line.rows] == [*range(9), *range(back_to, 8)]
    assert [row.segment for row in line.rows] == [0] * 9 + [1] * (8 - back_to)
    assert "rollback" in line.kinds()


def test_the_report_says_what_was_done(line: RecordingLine) -> None:
    training = Training(line)
    training.run(5)
    line.commands = [
        command(LowerLr(scale=0.25), "a"),
        command(Rollback(to_step=1), "b"),
        command(Stop(), "c"),
    ]
    report = training.watch.step(1.0)

    assert (report.step, report.rolled_back_to, report.lr_scale) == (5, 2, 0.25)
    assert not report.stop  # what came after the rollback waits for the next boundary
    assert training.watch.step(1.0).stop


def test_steps_yields_again_what_was_rolled_back(line: RecordingLine) -> None:
    training = Training(line)
    seen: list[int] = []
    for step in training.watch.steps(6):
        if len(seen) == 4:
            line.commands = [command(Rollback(to_step=1))]
        seen.append(step)
        training.run(1)

    assert seen == [0, 1, 2, 3, 4, 2, 3, 4, 5]


def test_steps_ends_where_a_stop_is_asked_for(line: RecordingLine) -> None:
    training = Training(line)
    seen: list[int] = []
    for step in training.watch.steps(100):
        seen.append(step)
        line.commands = [command(Stop())] if step == 2 else []
        training.run(1)
    training.watch.finish()

    assert seen == [0, 1, 2]
    assert line.closed == [("stopped", "")]


def test_a_turn_that_forgets_its_boundary_is_closed(line: RecordingLine) -> None:
    assert list(Training(line).watch.steps(3)) == [0, 1, 2]
    assert [row.step for row in line.rows] == [0, 1, 2]


def test_what_is_not_allowed_is_refused(line: RecordingLine) -> None:
    training = Training(line, Options(allow=()))
    line.commands = [command(Stop())]

    assert not training.watch.step(1.0).stop
    assert line.receipts[0].state is CommandState.REJECTED


def test_checkpoints_of_every_few_steps_let_a_run_go_on(
    line: RecordingLine, tmp_path: Path
) -> None:
    options = Options(checkpoints=tmp_path, checkpoint_every=3, good_after=1)
    first = Training(line, options)
    first.run(3)
    first.watch.finish()
    first.run(2)
    later = RecordingLine()
    second = Training(later, options)

    assert second.watch.resume() == 3
    assert later.opened_at == [3]
    second.run(2)
    assert second.losses == first.losses[3:]
    assert [row.step for row in later.rows] == [3, 4]
    assert "checkpoint" in line.kinds()


def test_a_report_says_that_a_checkpoint_was_asked_for(line: RecordingLine, tmp_path: Path) -> None:
    training = Training(line, Options(checkpoints=tmp_path))
    line.commands = [command(Checkpoint())]
    reports = [training.watch.step(1.0) for _ in range(2)]
    training.watch.finish()

    assert [report.checkpoint_asked for report in reports] == [True, False]


def test_a_run_without_checkpoints_has_nothing_to_resume(line: RecordingLine) -> None:
    training = Training(line)

    assert training.watch.resume() is None
    assert line.opened_at == [0]


def test_a_checkpoint_that_is_asked_for_is_answered_once_it_is_on_disk(
    line: RecordingLine, tmp_path: Path
) -> None:
    training = Training(line, Options(checkpoints=tmp_path))
    line.commands = [command(Checkpoint())]
    training.run(1)
    training.watch.finish()

    assert [one.state for one in line.receipts] == [CommandState.ACCEPTED, CommandState.APPLIED]
    assert Path(str(line.receipts[-1].detail["path"])).is_file()


def test_the_watchs_own_state_comes_back(line: RecordingLine) -> None:
    training = Training(line)
    line.commands = [command(LowerLr(scale=0.5))]
    training.run(3)
    saved = training.watch.state_dict()
    other = Training(RecordingLine())
    other.watch.load_state_dict(saved)

    assert other.watch.next_step == 3
    assert other.watch.step(1.0).lr_scale == 0.5


def test_an_attempt_that_is_given_a_state_begins_there(line: RecordingLine) -> None:
    training = Training(RecordingLine())
    training.run(3)
    model = tiny_gpt()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    objects = Objects(modules={"": model}, optimizers=[optimizer])
    state = training.watch.state_dict()
    watch = build_watch(objects, Options(), line.open, TEAM, state)

    assert (watch.next_step, line.opened_at) == (3, [3])


def test_a_state_that_is_none_is_refused(line: RecordingLine) -> None:
    watch = Training(line).watch
    with pytest.raises(InvalidInputError, match="model"):
        watch.load_state_dict({"model": {}})

    assert watch.next_step == 0


@pytest.mark.parametrize(
    ("actor", "named"),
    [
        ({}, "journal"),
        ({"journal": [{"id": 3}], "lr_scale": 1.0}, "id"),
        ({"journal": [], "lr_scale": "half"}, "must be real number"),
        ({"journal": [], "lr_scale": -1.0}, "wanted a finite number above 0"),
        ({"journal": [RECEIPT], "lr_scale": None}, "must be real number"),
    ],
)
def test_a_state_that_was_cut_or_written_over_is_refused_whole(
    line: RecordingLine, actor: dict[str, object], named: str
) -> None:
    watch = Training(line).watch
    before = watch.state_dict()
    with pytest.raises(InvalidInputError, match=f"state_dict: .*{named}.*, wanted what"):
        watch.load_state_dict({"next_step": 7, "actor": actor})

    assert watch.state_dict() == before


def test_leaving_by_an_exception_fails_the_run(line: RecordingLine) -> None:
    watch = Training(line).watch
    with pytest.raises(ZeroDivisionError), watch:
        watch.step(1 / 0)

    assert line.closed == [("failed", "ZeroDivisionError: division by zero")]


def test_a_step_that_fails_by_gradients_that_are_not_finite_has_its_row(
    line: RecordingLine,
) -> None:
    training = Training(line)
    training.run(2)
    torch.autograd.backward(training.model(*batch()) * math.nan)
    training.optimizer.step()
    training.watch.finish("failed", reason="not a distribution")

    assert [row.step for row in line.rows] == [0, 1, 2]
    assert line.rows[2].metrics["nonfinite"] > 0.0


def test_a_step_that_fails_by_something_else_has_no_row(line: RecordingLine) -> None:
    training = Training(line)
    training.run(2)
    train_one(training.model, training.optimizer)
    training.watch.finish("failed", reason="bad data")

    assert [row.step for row in line.rows] == [0, 1]


def test_who_stops_a_run_by_hand_has_not_failed(line: RecordingLine) -> None:
    with pytest.raises(KeyboardInterrupt), Training(line).watch:
        raise KeyboardInterrupt

    assert line.closed == [("stopped", "KeyboardInterrupt")]


@pytest.mark.parametrize(("code", "status"), [(None, "finished"), (0, "finished"), (3, "failed")])
def test_leaving_by_sys_exit_ends_as_its_code_says(
    line: RecordingLine, code: int | None, status: str
) -> None:
    with pytest.raises(SystemExit), Training(line).watch:
        sys.exit(code)

    assert [found for found, _ in line.closed] == [status]


def test_an_end_in_a_word_that_is_none_of_ours_is_a_failure_and_says_so(
    line: RecordingLine, caplog: pytest.LogCaptureFixture
) -> None:
    Training(line).watch.finish("done")  # type: ignore[arg-type]

    assert line.closed == [
        ("failed", "status: found 'done', wanted one of finished, failed, stopped")
    ]
    assert "found 'done'" in caplog.text


def test_a_reason_may_be_the_exception_itself(line: RecordingLine) -> None:
    Training(line).watch.finish("failed", reason=ValueError("no data"))  # type: ignore[arg-type]

    assert line.closed == [("failed", "ValueError: no data")]


def test_after_the_end_nothing_is_sent(line: RecordingLine) -> None:
    training = Training(line)
    with training.watch:
        training.run(1)
    training.run(1)
    training.watch.log(val_loss=1.0)
    training.watch.finish("failed")

    assert len(line.rows) == 1
    assert line.closed == [("finished", "")]


class Mute(RecordingLine):
    """A line whose every use is a fault."""

    def put_row(self, row: object) -> None:
        raise OSError("broken")

    def take_commands(self) -> list[Command]:
        raise OSError("broken")


def test_a_broken_line_does_not_harm_the_training(caplog: pytest.LogCaptureFixture) -> None:
    training = Training(Mute())
    training.run(5)
    training.watch.finish()
    reference = Training(RecordingLine())
    reference.run(5)

    assert training.losses == reference.losses
    assert training.watch.next_step == 5
    assert training.watch.num_faults == 10
    assert len(caplog.records) == 2


def test_a_skipped_step_speaks_not_against_the_state_before_it(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    watch = watched(model, optimizer, line=line, options=EVERYTHING, scalers=(scaler,))
    for step in range(6):
        for parameter in model.parameters():
            value = math.inf if step == 2 else 1.0
            parameter.grad = torch.full_like(parameter, value)
        scaler.scale(torch.ones(()))
        scaler.step(optimizer)
        scaler.update()
        watch.step(1.0)
    line.commands = [command(Rollback(before_step=5))]
    watch.step(1.0)

    assert line.receipts[0].state is CommandState.APPLIED
    assert watch.next_step >= 2


def test_a_checkpoint_that_fails_keeps_no_command_from_being_done(
    line: RecordingLine, tmp_path: Path
) -> None:
    """Of several ranks, one that misses a boundary would agree with the others no more."""
    model, own = tiny_gpt(), Stateless()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = build_watch(
        Objects(modules={"": model}, optimizers=(optimizer,), extra={"own": own}),
        Options(allow=("lower_lr",), checkpoints=tmp_path, checkpoint_every=1),
        line.open,
        TEAM,
    )
    own.refuses = True
    line.commands = [command(LowerLr(scale=0.5))]
    report = watch.step(train_one(model, optimizer))
    watch.finish()

    assert report.lr_scale == 0.5
    assert [one.state for one in line.receipts] == [CommandState.APPLIED]
    assert "hook_fault" in line.kinds()


def test_a_run_that_passes_its_checkpoints_by_is_told_to_begin_at_its_first_step(
    line: RecordingLine, tmp_path: Path
) -> None:
    (tmp_path / "of another run").touch()  # so that the attempt opens late: `resume` may come
    training = Training(line, replace(EVERYTHING, checkpoints=tmp_path))
    training.run(3)
    line.commands = [command(Rollback(to_step=0))]
    report = training.watch.step(train_one(training.model, training.optimizer))

    assert line.opened_at == [0]
    assert report.rolled_back_to == 1
