"""`watch.log` where the training thread is in the middle of a step's row."""

import signal
import threading

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import nn

STEPS = 400
ALARM_AFTER_S = 1e-4


@pytest.mark.usefixtures("hasty_threads")
def test_a_thread_that_evaluates_logs_while_another_trains(line: RecordingLine) -> None:
    model = nn.Linear(1, 1)
    watch = watched(model, torch.optim.SGD(model.parameters()), line=line)
    num_logged = 0
    is_over = threading.Event()

    def evaluate() -> None:
        nonlocal num_logged
        while not is_over.is_set():
            watch.log(val_loss=1.0)
            num_logged += 1

    evaluating = threading.Thread(target=evaluate)
    evaluating.start()
    for _ in range(STEPS):
        watch.step(2.0)
    is_over.set()
    evaluating.join()
    watch.finish()

    assert watch.num_faults == 0
    assert line.metric("loss") == [2.0] * STEPS
    assert line.metric("val_loss") == [1.0] * num_logged


def test_a_signals_handler_logs_in_the_middle_of_a_step(line: RecordingLine) -> None:
    model = nn.Linear(1, 1)
    watch = watched(model, torch.optim.SGD(model.parameters()), line=line)
    num_logged = 0
    is_over = False

    def note(*_: object) -> None:
        nonlocal num_logged
        num_logged += 1
        watch.log(alarm=1.0)
        # Only now: on a slow machine alarms that came by themselves would leave no time to train.
        if not is_over:
            signal.setitimer(signal.ITIMER_REAL, ALARM_AFTER_S)

    before = signal.signal(signal.SIGALRM, note)
    signal.setitimer(signal.ITIMER_REAL, ALARM_AFTER_S)
    try:
        for _ in range(STEPS):
            watch.step(2.0)
    finally:
        is_over = True  # before the last alarm is taken back, or its handler would set another
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
    watch.finish()

    assert watch.num_faults == 0
    assert line.metric("loss") == [2.0] * STEPS
    assert line.metric("alarm") == [1.0] * num_logged
