"""Whole JSON documents that are a run's rows or series."""

import json
from pathlib import Path

import pytest

from runwatch.nonfinite import is_absent
from runwatch_server.importing import LogError, RunLog, read_run_log


def read(folder: Path, document: object) -> RunLog:
    file = folder / "history.json"
    file.write_text(json.dumps(document, indent=2))
    return read_run_log(file)


def test_a_list_of_objects_has_a_row_in_each(tmp_path: Path) -> None:
    (rows,) = read(tmp_path, [{"step": 5, "loss": 2.0}, {"step": 10, "loss": 1.0}]).stretches

    assert rows.steps.tolist() == [5, 10]
    assert rows.metrics[:, 0].tolist() == [2.0, 1.0]


ROWS = [{"step": 5, "loss": 2.0}, {"step": 10, "loss": 1.0}, {"step": 15, "what": "a \\u00e4"}]


@pytest.mark.parametrize("indent", [None, 2])
def test_a_list_that_a_killed_job_cut_off_ends_with_its_last_whole_row(
    tmp_path: Path, indent: int | None
) -> None:
    whole = json.dumps(ROWS, indent=indent)
    file = tmp_path / "history.json"
    for end in range(whole.index("}", whole.index("1.0")) + 1, len(whole.rstrip("] \n")) - 1):
        file.write_text(whole[:end])
        log = read_run_log(file)
        assert log.stretches[0].steps.tolist() == [5, 10], whole[:end]
        assert "[2] is cut off: left out" in log.notes


@pytest.mark.parametrize(
    "text",
    [
        '[{"step": 5, "loss": 2.0}, {"step": 10 "loss": 1.0}, {"step": 15, "loss": 0.5}]',
        '[{"step": 5, "loss": 2.0}, {"step": 10 "loss": 1.0}, {"step": 15, "lo',
        '[{"step": 5, "los',
    ],
)
def test_only_the_last_row_of_a_list_may_be_cut_off(tmp_path: Path, text: str) -> None:
    file = tmp_path / "history.json"
    file.write_text(text)
    with pytest.raises(LogError):
        read_run_log(file)


def test_a_history_has_a_list_for_each_series(tmp_path: Path) -> None:
    history = {"loss": [2.0, 1.0, 0.5], "val": {"loss": [2.5, None, 1.5]}, "model": "small"}
    (rows,) = read(tmp_path, history).stretches

    assert rows.metric_names == ("loss", "val_loss")
    assert rows.metrics[:, 0].tolist() == [2.0, 1.0, 0.5]
    assert is_absent(rows.metrics[:, 1].copy()).tolist() == [False, True, False]


def test_a_series_of_another_length_than_the_loss_is_left_out(tmp_path: Path) -> None:
    log = read(tmp_path, {"val_acc": [0.5, 0.6], "loss": [3.0, 2.0, 1.0]})

    assert log.stretches[0].metric_names == ("loss",)
    assert "val_acc has 2 values, not 3: left out" in log.notes


def test_an_object_of_single_numbers_tells_of_no_training(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"found no series of a training but 'mse', 'r2', wanted"):
        read(tmp_path, {"mse": 0.1, "r2": 0.9})


def test_a_list_of_anything_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"found '\[1, 2, 3\]', wanted an object"):
        read(tmp_path, [1, 2, 3])


def test_an_empty_list_has_no_rows(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="found no numbers"):
        read(tmp_path, [])
