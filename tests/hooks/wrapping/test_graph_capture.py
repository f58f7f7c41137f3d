"""A step that is captured into a CUDA graph is left alone: torch says so here as it does there."""

import pytest
import torch
from tests.hooks.guard.guarded import Training
from torch.nn.utils import clip_grad_norm_


def num_judged(training: Training) -> object:
    state = training.watch.state_dict()
    return state["guard"]["0"]["num_judged"]  # type: ignore[index]


def test_what_is_captured_is_neither_read_nor_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    training = Training(guard="outliers")

    def step() -> None:
        loss = training.gradients()
        clip_grad_norm_(training.model.parameters(), 1.0)
        training.optimizer.step()
        training.watch.step(loss)

    step()
    with monkeypatch.context() as capture:
        capture.setattr(torch.cuda, "is_initialized", lambda: True)
        capture.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        step()
    assert num_judged(training) == 1
    step()
    training.watch.finish()

    assert num_judged(training) == 2
    assert training.line.metric("optimizer_steps") == [1.0, 0.0, 1.0]
    assert len(training.line.metric("grad_norm")) == 2
    assert len(training.line.metric("clip_coef")) == 2
    assert training.watch.num_faults == 0
