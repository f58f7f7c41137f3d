"""Lines as programs left them, each read as the training that it tells of."""

from pathlib import Path

import pytest
from tests.server.importing import recorded
from tests.server.importing.written import event, event_file, simple_value

from runwatch.nonfinite import is_absent
from runwatch_server.importing import RunLog, read_run_log


def read(folder: Path, text: str, name: str = "a_name_that_says_nothing") -> RunLog:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return read_run_log(file)


def told(log: RunLog, name: str) -> list[tuple[int, float]]:
    """Where a series was recorded, and what."""
    found: list[tuple[int, float]] = []
    for rows in log.stretches:
        values = rows.metrics[:, rows.metric_names.index(name)]
        is_there = ~is_absent(values)
        found += zip(rows.steps[is_there].tolist(), values[is_there].tolist(), strict=True)
    return found


def attempts(log: RunLog) -> list[tuple[int, int]]:
    return [(rows.attempt, rows.segment) for rows in log.stretches]


@pytest.mark.parametrize(
    ("text", "losses"),
    [
        (recorded.MMENGINE_TEXT, [(50, 1.5218), (550, 1.4218), (636, 1.3218), (686, 1.2218)]),
        (recorded.MMCV_JSON, [(50, 2.3125), (100, 2.1125), (150, 1.9125), (200, 1.7125)]),
        (recorded.MMENGINE_JSON, [(100, 6.9), (200, 6.5), (300, 6.1), (400, 5.9)]),
        (
            recorded.PADDLE_DETECTION,
            [(0, 3.512345), (980, 3.412345), (1000, 3.112345), (1020, 3.012345)],
        ),
        (recorded.PADDLE_CLAS, [(0, 7.02312), (490, 6.92312), (500, 6.52312), (510, 6.42312)]),
        (recorded.PADDLE_SEG, [(10, 2.6312), (20, 2.1312), (30, 1.6312)]),
        (recorded.CAFFE, [(0, 2.35216), (100, 0.21531), (200, 0.145), (300, 0.1312)]),
        (recorded.TRANSFORMER_XL, [(200, 6.91), (400, 5.91), (600, 5.41), (800, 5.11)]),
        (recorded.MLFLOW_CSV, [(0, 2.5), (10, 2.25)]),
        (recorded.YOLO_RESULTS_CSV, [(0, 3.75), (1, 3.25)]),
    ],
)
def test_a_training_is_one_attempt_with_its_losses(
    tmp_path: Path, text: str, losses: list[tuple[int, float]]
) -> None:
    log = read(tmp_path, text)

    assert attempts(log) == [(1, 0)]
    assert told(log, "loss") == losses


@pytest.mark.parametrize(
    ("text", "losses"),
    [
        (recorded.MMCV_JSON, [(100, 2.5), (200, 2.25)]),
        (recorded.PADDLE_CLAS, [(490, 6.72312), (490, 6.62312), (490, 6.52312)]),
        (recorded.CAFFE, [(200, 0.12112), (300, 0.11112)]),
        (recorded.MLFLOW_CSV, [(10, 2.4)]),
        (recorded.YOLO_RESULTS_CSV, [(0, 4.25), (1, 3.75)]),
    ],
)
def test_an_evaluation_belongs_to_the_step_before_it(
    tmp_path: Path, text: str, losses: list[tuple[int, float]]
) -> None:
    assert told(read(tmp_path, text), "val_loss") == losses


def test_what_an_evaluation_of_mmengine_gives_stands_at_its_step(tmp_path: Path) -> None:
    log = read(tmp_path, recorded.MMENGINE_JSON)

    assert told(log, "accuracy/top1") == [(200, 12.5), (400, 22.5)]


def test_the_line_of_a_program_is_no_number_of_the_run(tmp_path: Path) -> None:
    (rows,) = read(tmp_path, recorded.CAFFE).stretches

    assert set(rows.metric_names) == {"loss", "val_loss", "mean/loss", "lr"}


def test_epochs_are_known_under_any_of_their_names(tmp_path: Path) -> None:
    log = read(tmp_path, "Epoch,global_step,loss\n0.5,10,2.0\n1.0,20,1.5\n")

    assert told(log, "epoch") == [(10, 0.5), (20, 1.0)]


@pytest.mark.parametrize("name", ["episode_return", "rollout/ep_rew_mean", "EpRewMean"])
def test_rewards_are_known_under_any_of_their_names(tmp_path: Path, name: str) -> None:
    log = read(tmp_path, f"step,{name}\n10,2.0\n20,1.5\n")

    assert told(log, "reward") == [(10, 2.0), (20, 1.5)]


def test_another_training_in_the_same_file_is_another_attempt(tmp_path: Path) -> None:
    log = read(tmp_path, recorded.TWICE_IN_A_FILE)

    assert attempts(log) == [(1, 0), (2, 0)]
    assert told(log, "loss")[5:] == [(200, 2.2), (300, 2.1), (400, 1.95)]


def test_a_table_of_epochs_that_a_second_training_was_appended_to(tmp_path: Path) -> None:
    log = read(tmp_path, recorded.YOLO_RESULTS_CSV + recorded.YOLO_RESULTS_CSV)

    assert attempts(log) == [(1, 0), (2, 0)]
    assert told(log, "loss") == [(0, 3.75), (1, 3.25)] * 2


def test_a_training_that_goes_back_within_an_epoch_resumed(tmp_path: Path) -> None:
    steps = [*range(10, 130, 10), 100, 110]
    log = read(tmp_path, "epoch,step,loss\n" + "".join(f"0,{step},2.0\n" for step in steps))

    assert attempts(log) == [(1, 0), (1, 1)]


def test_a_training_of_which_the_first_row_was_an_evaluation_began_anew(tmp_path: Path) -> None:
    steps = [0, *range(50, 550, 50), 50, 100]
    log = read(tmp_path, "step,loss\n" + "".join(f"{step},2.0\n" for step in steps))

    assert attempts(log) == [(1, 0), (2, 0)]


@pytest.mark.parametrize(
    "name", ["run-exp1-tag-train_loss.csv", "run-.-tag-Loss_train.csv", "loss.csv"]
)
def test_tensorboard_s_table_is_of_the_series_that_its_name_says(tmp_path: Path, name: str) -> None:
    log = read(tmp_path, recorded.TENSORBOARD_CSV, name)

    assert told(log, "loss") == [(0, 2.5), (10, 2.25), (20, 2.125)]
    assert log.stretches[0].times.tolist() == [1700000000.25, 1700000010.25, 1700000020.25]


def test_each_run_of_mlflow_s_table_is_an_attempt(tmp_path: Path) -> None:
    lines = [
        "run_id,key,value,step,timestamp",
        *("a,loss,2.5,0,0", "b,loss,2.0,0,0", "a,loss,2.25,1,0", "b,loss,1.5,1,0"),
    ]
    log = read(tmp_path, "\n".join(lines))

    assert attempts(log) == [(1, 0), (2, 0)]
    assert told(log, "loss") == [(0, 2.5), (1, 2.25), (0, 2.0), (1, 1.5)]


def test_parts_of_a_detector_s_loss_add_up_in_event_files(tmp_path: Path) -> None:
    file = tmp_path / "events.out.tfevents.1"
    file.write_bytes(
        event_file(
            *(
                event(step, tag, simple_value(value))
                for step in (1, 2)
                for tag, value in (
                    ("train/box_loss", 1.0 / step),
                    ("train/cls_loss", 2.0),
                    ("val/box_loss", 1.5),
                    ("val/cls_loss", 2.5),
                    ("x/lr0", 0.25),
                )
            )
        )
    )
    log = read_run_log(file)

    assert told(log, "loss") == [(1, 3.0), (2, 2.5)]
    assert told(log, "val_loss") == [(1, 4.0), (2, 4.0)]
    assert told(log, "lr") == [(1, 0.25), (2, 0.25)]
