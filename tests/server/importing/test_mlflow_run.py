"""Folders of runs as MLflow keeps them."""

from pathlib import Path

import pytest

from runwatch_server.importing import LogError, RunLog, read_run_log


def read(folder: Path, **metrics: str) -> RunLog:
    run = folder / "0b5c4b51"
    (run / "metrics" / "train").mkdir(parents=True)
    (run / "metrics" / "system").mkdir()
    (run / "meta.yaml").write_text("run_id: 0b5c4b51\n")
    for name, lines in metrics.items():
        (run / "metrics" / name.replace("__", "/")).write_text(lines)
    return read_run_log(run)


def test_the_files_of_a_run_are_its_series(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        lr="1700000000000 0.1 0\n1700000001000 0.2 10\n",
        train__loss="1700000000000 2.5 0\n1700000001000 nan 10\n",
    )
    (rows,) = log.stretches

    assert (log.name, rows.steps.tolist()) == ("0b5c4b51", [0, 10])
    assert rows.metric_names == ("lr", "loss")
    assert [str(loss) for loss in rows.metrics[:, 1].tolist()] == ["2.5", "nan"]
    assert rows.times.tolist() == [1_700_000_000.0, 1_700_000_001.0]


def test_a_run_that_was_resumed_goes_back_in_all_of_its_files(tmp_path: Path) -> None:
    lines = "".join(f"17000000{at}000 2.5 {step}\n" for at, step in enumerate((0, 10, 20, 10), 10))
    log = read(tmp_path, lr=lines, loss=lines)

    assert [(one.segment, one.steps.tolist()) for one in log.stretches] == [
        (0, [0, 10, 20]),
        (1, [10]),
    ]


def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    log = read(tmp_path, loss="1700000000000 2.5 0\n1700000001000 2.")

    assert log.num_rows == 1


def test_a_broken_line_is_told_with_its_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="train/loss, line 2: found 'oops'"):
        read(tmp_path, train__loss="1700000000000 2.5 0\noops\n1700000001000 2.5 10\n")


def test_the_folder_of_an_experiment_holds_no_run(tmp_path: Path) -> None:
    (tmp_path / "meta.yaml").write_text("experiment_id: 0\n")

    with pytest.raises(LogError, match="found a folder without a log"):
        read_run_log(tmp_path)


def test_what_was_measured_of_the_machine_is_left_out(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        loss="1700000000000 2.5 0\n1700000001000 2.4 10\n",
        system__cpu="1700000000000 12 0\n1700000000500 13 1\n1700000001000 14 2\n",
    )

    assert [rows.steps.tolist() for rows in log.stretches] == [[0, 10]]
    assert "series of the machine, with steps of their own: left out (1)" in log.notes
