"""Tables of text, as tidy and as odd as people's are."""

import csv
import io
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from runwatch.nonfinite import is_absent
from runwatch_server.importing import LogError, RunLog
from runwatch_server.importing.building import build
from runwatch_server.importing.csv_log import read_csv


def read(text: str) -> RunLog:
    return build("log", read_csv(text))


def series(log: RunLog, name: str) -> list[float]:
    return [
        value
        for rows in log.stretches
        for value in rows.metrics[:, rows.metric_names.index(name)].tolist()
    ]


def test_columns_may_stand_in_any_order_under_other_names() -> None:
    log = read("train/loss,accuracy,Global_Step,Learning Rate\n2.5,7,10,1e-3\n2.4,8,20,1e-3\n")
    (rows,) = log.stretches

    assert rows.steps.tolist() == [10, 20]
    assert rows.metric_names == ("loss", "accuracy", "lr")
    assert "train/loss is read as loss" in log.notes


def test_an_empty_cell_is_not_recorded_and_nan_is_a_value() -> None:
    log = read("step,loss,grad_norm\n0,nan,inf\n1,,-Infinity\n2,NaN,\n")
    (rows,) = log.stretches

    assert is_absent(rows.metrics).tolist() == [[False, False], [True, False], [False, True]]
    assert math.isnan(rows.metrics[0, 0])
    assert rows.metrics[:2, 1].tolist() == [math.inf, -math.inf]


def test_of_two_names_for_one_series_the_nearer_is_taken_and_the_other_kept() -> None:
    log = read("step,train_loss_step,loss\n0,1,2\n")

    assert series(log, "loss") == [2.0]
    assert series(log, "train_loss_step") == [1.0]


@pytest.mark.parametrize(
    "name",
    [
        *("total_loss", "loss_train", "train/total_loss", "trainLoss", "Train Loss", "epoch_loss"),
        *("loss_step", "loss_epoch"),
    ],
)
def test_the_whole_loss_goes_by_many_names(name: str) -> None:
    log = read(f"iteration,loss_cls,{name}\n19,1,3\n39,0.5,2\n")

    assert series(log, "loss") == [3.0, 2.0]
    assert series(log, "loss_cls") == [1.0, 0.5]


@pytest.mark.parametrize(
    ("names", "ours"),
    [
        ("Loss,loss", ("Loss", "loss")),
        ("LR,lr,LOSS", ("LR", "lr", "loss")),
        ("Epoch,epoch,loss", ("Epoch", "epoch", "loss")),
        ("Train/Loss,train/loss", ("Train/Loss", "loss")),
        ("LOSS,Loss", ("loss", "Loss")),
    ],
)
def test_of_two_spellings_of_one_name_the_exact_one_is_taken_and_the_other_kept(
    names: str, ours: tuple[str, ...]
) -> None:
    log = read(f"step,{names}\n0,{','.join('123'[: names.count(',') + 1])}\n")
    (rows,) = log.stretches

    assert rows.metric_names == ours
    assert rows.metrics[0].tolist() == [1.0, 2.0, 3.0][: len(ours)]


def test_of_two_spellings_of_one_stat_the_first_is_taken_and_the_other_kept() -> None:
    log = read("step,loss,grad_norm/a,grad_2.0_norm/a\n0,1,2,3\n")

    assert log.stretches[0].stats[0, 0].tolist() == [2.0]
    assert series(log, "grad_2.0_norm/a") == [3.0]


@pytest.mark.parametrize("name", ["train/box_loss", "Gen Loss", "train/loss_critic"])
def test_parts_of_a_loss_alone_are_a_training_whose_rows_are_counted(name: str) -> None:
    log = read(f"epoch,{name}\n1,3\n2,2\n")

    assert series(log, name) == [3.0, 2.0]
    assert log.stretches[0].steps.tolist() == [0, 1]


def test_rows_are_counted_where_no_step_is_given() -> None:
    log = read("loss\n3\n2\n1\n")

    assert log.stretches[0].steps.tolist() == [0, 1, 2]
    assert "no step is given: rows are counted from 0" in log.notes


def test_lightnings_rows_of_one_step_become_one() -> None:
    log = read("epoch,step,train_loss_step,val_loss\n0,9,2.0,\n0,9,,2.5\n1,19,1.5,\n")
    (rows,) = log.stretches

    assert rows.steps.tolist() == [9, 19]
    assert series(log, "val_loss")[0] == 2.5


def test_a_stat_of_a_layer_is_a_series_of_that_layer() -> None:
    log = read("step,loss,grad_norm/a.weight,grad_2.0_norm/b.weight,grad_norm/total\n0,1,2,3,4\n")
    (rows,) = log.stretches

    assert rows.layer_names == ("a.weight", "b.weight")
    assert rows.stats[0, 0].tolist() == [2.0, 3.0]
    assert series(log, "grad_norm") == [4.0]


def test_a_column_of_words_is_left_out_and_named() -> None:
    log = read("step,phase,loss\n0,train,2\n1,train,1\n")

    assert log.stretches[0].metric_names == ("loss",)
    assert any("phase" in note for note in log.notes)


def test_a_header_written_again_by_a_restarted_job_is_passed_over() -> None:
    log = read("step,loss\n0,3\n1,2\nstep,loss\n2,1\n")

    assert series(log, "loss") == [3.0, 2.0, 1.0]


@pytest.mark.parametrize("delimiter", [";", "\t"])
def test_other_delimiters_are_found(delimiter: str) -> None:
    log = read("step,loss\n0,3\n1,2\n".replace(",", delimiter))

    assert series(log, "loss") == [3.0, 2.0]


@pytest.mark.parametrize(
    "text",
    [
        "step loss lr\n0 3 1e-3\n1 2 1e-3\n",
        "  step  loss    lr\n     0   3.0  1e-3\n     1   2.0  1e-3\n",
        "# written by a callback\n# step loss lr\n0 3 1e-3\n1 2 1e-3\n",
        "#step,loss,lr\n0,3,1e-3\n1,2,1e-3\n",
        "step;loss;lr\n0;3,0;0,001\n1;2,0;1,0e-03\n",
    ],
)
def test_columns_that_blanks_align_names_in_a_comment_and_decimal_commas_are_read(
    text: str,
) -> None:
    log = read(text)

    assert [rows.steps.tolist() for rows in log.stretches] == [[0, 1]]
    assert series(log, "loss") == [3.0, 2.0]
    assert series(log, "lr") == [1e-3, 1e-3]


def test_a_last_aligned_row_that_a_killed_job_cut_off_is_left_out() -> None:
    assert series(read("step loss lr\n0 3 1\n1 2 1\n2 1"), "loss") == [3.0, 2.0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("step,loss\n0,3\n1,oops\n", "line 3: loss: found 'oops', wanted a number"),
        ("step,loss\n0,3\nsoon,2\n", "line 3: step: found 'soon', wanted a whole number"),
        ("step,loss\n0.5,3\n", "line 2: step: found 0.5, wanted a whole number"),
        ("step,loss\nnan,3\n", "line 2: step: found nan, wanted a whole number"),
        ("step,loss\n-inf,3\n", "line 2: step: found -inf, wanted a whole number"),
        ("step,loss\n0,3,4\n", "line 2: found 3 cells, wanted 2"),
        ("step,loss,loss\n0,3,4\n", "line 1: found the column 'loss' twice"),
        ("0,3\n1,2\n", "line 1: found numbers, wanted the names of columns"),
        (
            "file,note,n_steps\na.csv,fine,300\n",
            "found no series of a training but 'n_steps', wanted a step",
        ),
        ("step,loss\n", "found no numbers"),
        ("step;loss\n0;1.234,5\n", "found no numbers; line 2, loss: found '1.234,5'"),
        ("0 3 1e-3\n1 2 1e-3\n", "line 1: found numbers, wanted the names of columns"),
        ('step,loss\n0,"3\n', "line 2: found no row of a table"),
    ],
)
def test_a_broken_table_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(LogError) as caught:
        read(text)

    assert str(caught.value).startswith(message)


ROWS = "".join(f"{step},{2.5 - step / 2000},1\n" for step in range(1000))


@pytest.mark.parametrize("rest", ["1000", "1000,1.e-", '1000,"1.', "1000,na"])
def test_a_last_row_that_a_killed_job_cut_off_is_left_out(rest: str) -> None:
    log = read(f"step,loss,lr\n{ROWS}{rest}")

    assert len(series(log, "loss")) == 1000
    assert "line 1002 is cut off: left out" in log.notes


def test_a_last_row_without_an_end_is_read_and_said_to_be_doubtful() -> None:
    log = read("step,loss\n0,3\n1,2")

    assert series(log, "loss") == [3.0, 2.0]
    assert "line 3 has no end: its last number may be cut off" in log.notes


def test_only_the_last_row_may_be_cut_off() -> None:
    with pytest.raises(LogError, match="line 3: found 1 cells, wanted 2"):
        read("step,loss\n0,3\n1\n2,")
    with pytest.raises(LogError, match="line 2: found 1 cells, wanted 2"):
        read("step,loss\n0")


@pytest.mark.parametrize("sign", ["\u2028", "\x85", "\x0b", "\x1c"])
def test_a_cell_may_hold_what_ends_a_line_elsewhere(sign: str) -> None:
    log = read(f"step,note,loss\r\n0,one{sign}two,3\r\n1,,2\r\n")

    assert series(log, "loss") == [3.0, 2.0]


CELLS = st.one_of(st.just(""), st.floats(width=64).map(repr))


@given(st.lists(st.tuples(st.integers(0, 50), CELLS, CELLS), min_size=1, max_size=30))
def test_no_row_is_lost_or_invented_whatever_the_order(
    table: list[tuple[int, str, str]],
) -> None:
    text = io.StringIO()
    csv.writer(text).writerows([("step", "loss", "lr"), *table])
    recorded = [cell for row in table for cell in row[1:] if cell]
    assume(recorded)
    log = read(text.getvalue())

    found = [rows.metrics[~is_absent(rows.metrics)] for rows in log.stretches]
    assert all((rows.steps[1:] >= rows.steps[:-1]).all() for rows in log.stretches)
    assert {repr(value) for part in found for value in part.tolist()} == set(recorded)


@given(st.text(max_size=200))
def test_any_text_is_a_log_or_is_refused(text: str) -> None:
    try:
        log = read(text)
    except LogError:
        return
    assert log.num_rows > 0


def test_a_file_with_a_mark_of_byte_order_and_crlf_is_read() -> None:
    content = b"\xef\xbb\xbfstep,loss\r\n0,3\r\n1,2\r\n".decode("utf-8-sig")

    assert series(read(content), "loss") == [3.0, 2.0]


@pytest.mark.parametrize("first", ["", "step,loss,"])
def test_a_table_of_more_columns_than_a_log_may_have_is_refused_by_its_header(first: str) -> None:
    """Without a limit, such a table of a stranger took minutes of a processor."""
    header = first + ",".join(f"c{number}" for number in range(200_000))
    num = 200_000 + first.count(",")
    with pytest.raises(LogError, match=rf"line 1: found {num} series .*wanted at most 20000"):
        read(f"{header}\n{'1,' * (num - 1)}1\n")


def test_the_widest_table_is_read() -> None:
    names = [f"grad_norm/layer{number}" for number in range(19_998)]
    log = read(f"step,loss,{','.join(names)}\n{'1,' * 19_999}2\n")

    assert log.stretches[0].stats[0, 0, -1] == 2.0
