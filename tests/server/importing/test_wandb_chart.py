"""Charts as W&B's page exports them."""

import pytest

from runwatch_server.importing import LogError, RunLog
from runwatch_server.importing.building import build
from runwatch_server.importing.csv_log import read_csv


def read(text: str) -> RunLog:
    return build("log", read_csv(text))


def columns(*names: str) -> str:
    return ",".join(f'"{name}","{name}__MIN","{name}__MAX"' for name in names)


def test_a_chart_of_a_run_has_its_loss() -> None:
    log = read(f'"Step",{columns("sun - 1 - train/loss")}\n0,2.5,2,3\n10,nan,nan,nan\n')
    (rows,) = log.stretches

    assert rows.steps.tolist() == [0, 10]
    assert rows.metric_names == ("loss",)
    assert [str(loss) for loss in rows.metrics[:, 0].tolist()] == ["2.5", "nan"]
    assert "train/loss is read as loss" in log.notes


def test_each_run_of_a_chart_is_an_attempt() -> None:
    log = read(
        f'"Step",{columns("a - loss", "b - loss")}\n0,2.5,2,3,1.5,1,2\n10,2.25,2,3,"","",""\n'
    )

    assert [(one.attempt, one.steps.tolist()) for one in log.stretches] == [(1, [0, 10]), (2, [0])]
    assert [one.metrics[:, 0].tolist() for one in log.stretches] == [[2.5, 2.25], [1.5]]


def test_a_chart_over_a_time_has_the_steps_of_its_run() -> None:
    log = read(
        f'"Relative Time (Process)",{columns("a - _step", "a - loss")}\n'
        "0.5,0,0,0,2.5,2,3\n1.5,10,10,10,2.25,2,3\n"
    )
    (rows,) = log.stretches

    assert rows.steps.tolist() == [0, 10]
    assert rows.metric_names == ("loss",)


def test_a_word_in_a_chart_is_told() -> None:
    with pytest.raises(LogError, match="line 2: train/loss: found 'oops'"):
        read(f'"Step",{columns("sun - train/loss")}\n0,oops,2,3\n')
