"""TensorBoard's event files and W&B's offline runs."""

import contextlib
import math
import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.server.importing.written import (
    event,
    event_file,
    history,
    simple_value,
    tensor,
    tensor_of_bytes,
    text_tensor,
    tfrecord,
    wandb_file,
)

from runwatch_server.importing import LogError, RunLog, read_run_log


def read(folder: Path, content: bytes) -> RunLog:
    file = folder / "a_name_that_says_nothing"
    file.write_bytes(content)
    return read_run_log(file)


def test_scalars_of_every_kind_become_rows_by_step(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        event_file(
            event(0, "Loss/train", simple_value(2.0)),
            event(1, "Loss/train", tensor(math.nan)),
            event(2, "Loss/train", tensor_of_bytes(1.5)),
            event(0, "Loss/val", tensor(2.5)),
            event(0, "words", text_tensor("hello")),
        ),
    )
    (rows,) = log.stretches

    assert rows.steps.tolist() == [0, 1, 2]
    assert rows.metric_names == ("loss", "val_loss")
    assert rows.metrics[[0, 2], 0].tolist() == [2.0, 1.5]
    assert math.isnan(rows.metrics[1, 0])
    assert rows.times.tolist() == [1.7e9, 1.7e9 + 1, 1.7e9 + 2]
    assert "words is not a scalar: left out" in log.notes


def test_the_event_files_of_a_folder_are_one_run(tmp_path: Path) -> None:
    for number in range(2):
        events = [event(step, "loss", simple_value(1.0)) for step in (2 * number, 2 * number + 1)]
        (tmp_path / f"events.out.tfevents.{number}.host").write_bytes(event_file(*events))

    assert read_run_log(tmp_path).stretches[0].steps.tolist() == [0, 1, 2, 3]


def test_an_event_file_cut_off_by_a_killed_writer_is_read_to_there(tmp_path: Path) -> None:
    content = event_file(*(event(step, "loss", simple_value(1.0)) for step in range(3)))

    assert read(tmp_path, content[:-5]).num_rows == 2


def test_a_damaged_event_is_named_by_its_place(tmp_path: Path) -> None:
    head = event_file(event(0, "loss", simple_value(1.0)))
    content = bytearray(head + event(1, "loss", simple_value(1.0)))
    content[len(head) + 20] ^= 1

    with pytest.raises(LogError, match=rf"^byte {len(head)}: found a record whose checksum"):
        read(tmp_path, bytes(content))


def test_wandbs_history_is_read_by_the_optimizers_step(tmp_path: Path) -> None:
    rows_written = [
        history({"train/loss": 2.0, "train/global_step": 10, "_runtime": 1.0}, step=0),
        history({"train/loss": "NaN", "train/global_step": 20, "_timestamp": 1.7e9}, step=1),
    ]
    (rows,) = read(tmp_path, wandb_file([b"\x08\x01", *rows_written])).stretches

    assert rows.steps.tolist() == [10, 20]
    assert rows.metrics[0, rows.metric_names.index("loss")] == 2.0
    assert math.isnan(rows.metrics[1, rows.metric_names.index("loss")])


def test_wandbs_records_may_run_over_blocks(tmp_path: Path) -> None:
    written = [
        history({"loss": float(step), "text": "x" * (9000 * step)}, step=step) for step in range(12)
    ]
    (rows,) = read(tmp_path, wandb_file(written)).stretches

    assert rows.steps.tolist() == list(range(12))
    assert rows.metrics[:, rows.metric_names.index("loss")].tolist() == list(range(12))


def test_a_damaged_wandb_file_is_named_by_its_place(tmp_path: Path) -> None:
    content = bytearray(wandb_file([history({"loss": 1.0}, step=0)]))
    content[20] ^= 1

    with pytest.raises(LogError, match=r"^byte 7: found a chunk whose checksum"):
        read(tmp_path, bytes(content))


def test_a_wandb_file_cut_off_is_read_to_there(tmp_path: Path) -> None:
    content = wandb_file([history({"loss": 1.0}, step=step) for step in range(3)])

    assert read(tmp_path, content[:-3]).num_rows == 2


EVENTS = event_file(*(event(step, "loss", tensor(1.0)) for step in range(4)))
HISTORY = wandb_file([history({"loss": 1.0, "a": {"b": 2}}, step=step) for step in range(4)])


@pytest.mark.parametrize("whole", [EVENTS, HISTORY], ids=["tensorboard", "wandb"])
@pytest.mark.parametrize("num_zeros", [1, 20, 70_000])
def test_zeros_at_a_files_end_are_no_part_of_it(
    tmp_path: Path, whole: bytes, num_zeros: int
) -> None:
    assert read(tmp_path, whole + bytes(num_zeros)).num_rows == 4


@pytest.mark.parametrize("whole", [EVENTS, HISTORY], ids=["tensorboard", "wandb"])
@given(place=st.integers(0, 10_000), change=st.integers(1, 255))
def test_no_changed_byte_passes_for_a_number(whole: bytes, place: int, change: int) -> None:
    content = bytearray(whole)
    content[place % len(content)] ^= change

    with contextlib.suppress(LogError), tempfile.TemporaryDirectory() as folder:
        (rows,) = read(Path(folder), bytes(content)).stretches
        assert set(rows.metrics[:, rows.metric_names.index("loss")].tolist()) == {1.0}


@given(st.binary(max_size=80))
def test_any_message_is_read_or_refused(message: bytes) -> None:
    for content in (event_file(tfrecord(message)), wandb_file([message])):
        with contextlib.suppress(LogError), tempfile.TemporaryDirectory() as folder:
            assert read(Path(folder), content).num_rows > 0
