"""JSON lines, and the state that Hugging Face's Trainer saves."""

import json
import math
from pathlib import Path

import pytest

from runwatch.nonfinite import is_absent
from runwatch_server.importing import LogError, read_run_log

HISTORY = [
    {"step": 10, "loss": 2.0, "grad_norm": 1.0, "learning_rate": 1e-4, "epoch": 0.1},
    {"step": 10, "eval_loss": 2.2, "eval_runtime": 3.0, "epoch": 0.1},
    {"step": 20, "loss": math.nan, "grad_norm": math.inf, "learning_rate": 1e-4, "epoch": 0.2},
    {"step": 20, "train_runtime": 9.0, "train_loss": 7.0, "epoch": 0.2},
]


def test_nested_names_and_words_for_numbers_are_read(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text('{"step": 1, "train": {"loss": "NaN"}}\n{"step": 2, "train": {"loss": 1}}\n')
    (rows,) = read_run_log(file).stretches

    assert rows.metric_names == ("loss",)
    assert math.isnan(rows.metrics[0, 0])
    assert not is_absent(rows.metrics).any()


def test_a_broken_line_is_named(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text('{"step": 1, "loss": 2}\n{"step": 2, "lo\n')

    with pytest.raises(LogError, match=r"^line 2: found no JSON"):
        read_run_log(file)


GOOD = "".join(f'{{"step": {step}, "loss": 2}}\n' for step in range(1000))


@pytest.mark.parametrize(
    "rest", [b'{"step": 1000, "lo', b'{"step": 1000, "b\xc3', b'{"s\0\0\0\0', b'{"\xc3\0\0']
)
def test_a_last_line_that_a_killed_job_cut_off_is_left_out(tmp_path: Path, rest: bytes) -> None:
    file = tmp_path / "log"
    file.write_bytes(GOOD.encode() + rest)
    log = read_run_log(file)

    assert log.num_rows == 1000
    assert "line 1001 is cut off: left out" in log.notes


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", [GOOD, "step,loss\n0,3\n1,2\n"])
def test_zeros_at_a_files_end_are_no_part_of_it(tmp_path: Path, text: str, encoding: str) -> None:
    file = tmp_path / "log"
    file.write_bytes(text.encode(encoding) + bytes(4096))
    log = read_run_log(file)

    assert log.num_rows == text.count("\n") - text.startswith("step")
    assert not any("cut off" in note for note in log.notes)


def test_a_last_line_without_an_end_is_read(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text(GOOD.rstrip())

    assert read_run_log(file).num_rows == 1000


@pytest.mark.parametrize("text", [f'{GOOD}{{"step": 1\n{{"step', '{"step": 1, "lo'])
def test_only_a_last_line_below_others_may_be_cut_off(tmp_path: Path, text: str) -> None:
    file = tmp_path / "log"
    file.write_text(text)

    with pytest.raises(LogError, match=r"line [0-9]+: found no JSON"):
        read_run_log(file)


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_text_in_json_may_hold_what_ends_a_line_elsewhere(tmp_path: Path, end: str) -> None:
    rows = ('{"step": 1, "note": "a\u2028b\x85c", "loss": 2}', '{"step": 2, "loss": 1}')
    file = tmp_path / "log"
    file.write_text(end.join(rows), "utf-8", newline="")

    assert read_run_log(file).stretches[0].steps.tolist() == [1, 2]


def test_a_trainer_state_is_read_without_the_mean_over_the_run(tmp_path: Path) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps({"log_history": HISTORY, "global_step": 20}, indent=2))
    (rows,) = read_run_log(file).stretches

    assert rows.steps.tolist() == [10, 20]
    assert rows.metrics[0, rows.metric_names.index("val_loss")] == 2.2
    assert math.isnan(rows.metrics[1, rows.metric_names.index("loss")])


def test_of_checkpoints_the_newest_is_read(tmp_path: Path) -> None:
    for step in (9, 10):
        folder = tmp_path / f"checkpoint-{step}"
        folder.mkdir()
        state = {"log_history": [{"step": step, "loss": 1.0}]}
        (folder / "trainer_state.json").write_text(json.dumps(state))

    assert read_run_log(tmp_path).stretches[0].steps.tolist() == [10]


def test_a_history_that_is_none_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text('{"log_history": [3]}')

    with pytest.raises(LogError, match=r"log_history\[0\]: found '3', wanted an object"):
        read_run_log(file)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"step": 1, "loss": 2}\n{"step": 2, "loss": 1, "x\\ud800": "a"}\n', "line 2"),
        ('[{"step": 1, "loss": 2, "x\\ud800": 1}]', r"\[0\]"),
        ('{"loss": [2, 1], "x\\ud800": [2, 1]}', "file"),
    ],
)
def test_a_name_with_half_a_letter_is_refused(tmp_path: Path, text: str, place: str) -> None:
    file = tmp_path / "log"
    file.write_text(text)

    with pytest.raises(LogError, match=rf"^{place}: found the name 'x\\ud800' with half a letter"):
        read_run_log(file)


@pytest.mark.parametrize("content", [b"", b"\x00\xff\x00\xff" * 9, b"\n\n"])
def test_what_is_no_log_is_refused(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "x"
    file.write_bytes(content)

    with pytest.raises(LogError, match="found"):
        read_run_log(file)


def test_objects_nested_without_end_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "x"
    file.write_text('{"a":' * 900 + "1" + "}" * 900)

    with pytest.raises(LogError, match="found"):
        read_run_log(file)


def test_a_run_takes_its_folders_name_where_its_file_has_the_name_of_all(tmp_path: Path) -> None:
    file = tmp_path / "trainer_state.json"
    file.write_text(json.dumps({"log_history": HISTORY}))

    assert read_run_log(file).name == tmp_path.name
