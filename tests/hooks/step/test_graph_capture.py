"""A step that is captured into a CUDA graph is left alone: torch says so here as it does there."""

import time
from collections.abc import Generator
from contextlib import contextmanager

import pytest
import torch
from tests.hooks.guard.guarded import KINDS, Training
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import tiny_gpt, train_one, watched
from tests.waiting import LONGEST_S
from torch.nn.utils import clip_grad_norm_

from runwatch.commands import Command, LowerLr
from runwatch.vocabulary import CommandId
from runwatch_hooks.settings.options import Options


def num_judged(training: Training) -> object:
    state = training.watch.state_dict()
    return state["guard"]["0"]["num_judged"]  # type: ignore[index]


@contextmanager
def captured(monkeypatch: pytest.MonkeyPatch) -> Generator[None]:
    """As torch answers while a graph is captured."""
    with monkeypatch.context() as capture:
        capture.setattr(torch.cuda, "is_initialized", lambda: True)
        capture.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        yield


def test_what_is_captured_is_neither_read_nor_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(guard="outliers")

    def train() -> torch.Tensor:
        loss = training.gradients()
        clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step()
        return loss

    training.watch.step(train())
    with captured(monkeypatch):
        loss = train()
    training.watch.step(loss)
    assert num_judged(training) == 1
    training.watch.step(train())
    training.watch.finish()

    assert num_judged(training) == 2
    assert training.line.metric("optimizer_steps") == [1.0, 0.0, 1.0]
    assert len(training.line.metric("grad_norm")) == 2
    assert len(training.line.metric("clip_coef")) == 2
    assert training.watch.num_faults == 0


def test_a_step_in_the_capture_itself_is_no_step_and_that_is_told_once(
    monkeypatch: pytest.MonkeyPatch, line: RecordingLine
) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    options = Options(activations=1, histograms=1)
    watch = watched(model, optimizer, line=line, options=options)
    for _ in range(3):
        watch.step(train_one(model, optimizer))
    with captured(monkeypatch):
        watch.step(train_one(model, optimizer))
        watch.log(seen=1.0)
        report = watch.step(train_one(model, optimizer))
    watch.step(train_one(model, optimizer))
    watch.finish()

    assert report.step == 3
    assert [row.step for row in line.rows if "loss" in row.metrics] == [0, 1, 2, 3]
    assert line.metric("seen") == []
    told = [event.detail["what"] for event in line.events if event.kind == "unwatched"]
    assert told == ["watch.step was called while a CUDA graph was captured: call it after a replay"]
    assert watch.num_faults == 0


def test_a_rate_that_does_not_reach_a_captured_step_is_told(
    monkeypatch: pytest.MonkeyPatch, line: RecordingLine
) -> None:
    model = tiny_gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    watch = watched(model, optimizer, line=line, options=Options(allow=("lower_lr",)))
    with captured(monkeypatch):
        loss = train_one(model, optimizer)
    watch.step(loss)
    for number, scale in enumerate((0.5, 1.0)):
        line.commands.append(
            Command(CommandId(f"{number}"), LowerLr(scale), 1, expires_at=time.time() + LONGEST_S)
        )
        watch.step(loss)
    watch.step(loss)
    watch.finish()

    (told,) = [event.detail["what"] for event in line.events if event.kind == "unwatched"]
    assert told == (
        "lr_scale 0.5 does not reach a step of AdamW that a CUDA graph holds: replays go by 1 "
        "until it is captured anew"
    )


def test_what_the_guard_tells_a_graph_is_counted_by_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    training = Training(KINDS["adamw, fused"])
    training.step()
    with captured(monkeypatch):
        loss = training.gradients(torch.nan)
        training.optimizer.step()
    training.watch.step(loss)
    training.watch.finish()

    assert training.line.metric("guarded_steps") == [0.0, 0.0]
    assert all(bool(one.isfinite().all()) for one in training.state())  # it is guarded all the same
