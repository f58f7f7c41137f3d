"""Logs printed for people, each in the words of a program that many use."""

import math
from pathlib import Path

import pytest

from runwatch.nonfinite import is_absent
from runwatch_server.importing import LogError, RunLog, read_run_log
from runwatch_server.importing.progress_lines import read_line
from runwatch_server.importing.text_log import read_text_log


def read(folder: Path, text: str | bytes) -> RunLog:
    file = folder / "train.log"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read_run_log(file)


def told(log: RunLog, name: str) -> list[tuple[int, float]]:
    """Where a series was recorded, and what."""
    recorded: list[tuple[int, float]] = []
    for rows in log.stretches:
        values = rows.metrics[:, rows.metric_names.index(name)]
        is_there = ~is_absent(values)
        recorded += zip(rows.steps[is_there].tolist(), values[is_there].tolist(), strict=True)
    return recorded


@pytest.mark.parametrize(
    "lines",
    [
        ["iter 10: loss 2.5, time 51.25ms, mfu 7.1%", "iter 20: loss 2.25, time 50ms, mfu 7.2%"],
        [
            "{'loss': 2.5, 'grad_norm': 1.0, 'step': 10}",
            "{'loss': '2.25', 'grad_norm': 0.9, 'step': 20}",
        ],
        [
            "[11/30 01:20:17] d2.utils.events INFO:  eta: 1:48:32  iter: 10  total_loss: 2.5",
            "[11/30 01:20:31] d2.utils.events INFO:  eta: 1:48:25  iter: 20  total_loss: 2.25",
        ],
        [
            " iteration       10/     500 | learning rate: 1.5E-04 | lm loss: 2.500000E+00 |",
            " iteration       20/     500 | learning rate: 1.5E-04 | lm loss: 2.250000E+00 |",
        ],
        [
            "2020-01-02 03:04:05 | train_inner | epoch 001:  10 / 50 loss=2.5, num_updates=10",
            "2020-01-02 03:04:06 | train_inner | epoch 001:  20 / 50 loss=2.25, num_updates=20",
        ],
        ["Epoch: [0][10/50]\tTime 0.5 (0.6)\tLoss 2.5 (2.9)", "Epoch: [0][20/50]\tLoss 2.25 (2.6)"],
        [
            "2021-05-03 10:00:00,123 - mmdet - INFO - Epoch [1][10/50]\tlr: 2e-02, loss: 2.5",
            "2021-05-03 10:00:09,123 - mmdet - INFO - Epoch [1][20/50]\tlr: 2e-02, loss: 2.25",
        ],
        ["Train Epoch: 1 [10/50 (20%)]\tLoss: 2.5", "Train Epoch: 1 [20/50 (40%)]\tLoss: 2.25"],
        ["Epoch [1/5], Step [10/50], Loss: 2.5", "Epoch [1/5], Step [20/50], Loss: 2.25"],
        ["[1/5][10/50]\tLoss: 2.5", "[1/5][20/50]\tLoss: 2.25"],
        [
            "Epoch 1:  20%|##  | 10/50 [00:03<00:12, 3.2it/s, loss=2.5]",
            "Epoch 1:  40%|####| 20/50 [00:06<00:09, 3.2it/s, loss=2.25]",
        ],
        ["step    10 | loss: tensor(2.5, device='cuda:0')", "step    20 | loss: tensor(2.25)"],
        ["\x1b[32mStep 10\x1b[0m train loss is 2.5", "Step 20 train loss is 2.25"],
        [
            "Steps:   3%|#   | 10/300 [00:10<04:50,  1.00it/s, lr=1e-5, step_loss=2.5]",
            "Steps:   7%|##  | 20/300 [00:20<04:40,  1.00it/s, lr=1e-5, step_loss=2.25]",
        ],
        [
            "Train loss 10 2.500000 Grad Norm 1.234567 5.12s/it",
            "Train loss 20 2.250000 Grad Norm 1.234567 5.12s/it",
        ],
        ["loss 10: 2.500000", "loss 20: 2.250000"],
        [
            "\x1b[1m 10/50\x1b[0m \x1b[32m━━\x1b[0m\x1b[37m━━━━\x1b[0m 1s 2ms/step - loss: 2.5",
            "\x1b[1m 20/50\x1b[0m \x1b[32m━━━━\x1b[0m\x1b[37m━━\x1b[0m 1s 2ms/step - loss: 2.25",
        ],
        [
            "Training epoch 0, iteration 10/99 | lr: 1e-05 | reduced_train_loss: 2.5",
            "Training epoch 0, iteration 20/99 | lr: 1e-05 | reduced_train_loss: 2.25",
        ],
    ],
)
def test_a_line_gives_its_loss_and_its_step(tmp_path: Path, lines: list[str]) -> None:
    log = read(tmp_path, "\n".join(["using device: cuda", *lines, lines[-1]]))

    assert list(dict.fromkeys(told(log, "loss"))) == [(10, 2.5), (20, 2.25)]


def test_commas_between_thousands_are_part_of_a_number(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        "step 9,900/600,000 loss 12,500.5 betas (0.9,0.95)\n"
        "step 10,000/600,000 loss 0,125 betas (0.9,0.95)\n"
        "step 1,010,000/6,000,000 loss 3,4 betas (0.9,0.95)\n",
    )

    assert told(log, "loss") == [(9_900, 12_500.5), (10_000, 0.125), (1_010_000, 3.0)]


def test_a_comma_behind_an_epoch_is_none_between_thousands(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        "Epoch 1,100: loss 2.5\nEpoch 1,200: loss 2.0\nEpoch 2,100: loss 1.5\n",
    )

    (rows,) = log.stretches
    assert rows.metrics[:, rows.metric_names.index("epoch")].tolist() == [1.0, 1.0, 2.0]


@pytest.mark.parametrize("count", ["step", "batch"])
def test_a_loss_that_is_printed_as_a_whole_number_is_no_step(tmp_path: Path, count: str) -> None:
    log = read(
        tmp_path,
        f"{count} 10 loss 2.5 0.35s\n{count} 20 loss 2 0.41\n{count} 30 loss 1.5 0.35\n",
    )

    assert told(log, "loss") == [(10, 2.5), (20, 2.0), (30, 1.5)]


def test_a_row_of_a_whole_epoch_is_one_like_the_others(tmp_path: Path) -> None:
    log = read(
        tmp_path,
        "{'loss': 2.5, 'epoch': 0.33}\n{'loss': 2.0, 'epoch': 0.67}\n"
        "{'loss': nan, 'epoch': 1.0}\n{'loss': 1.5, 'epoch': 1.33}\n",
    )

    assert [(step, str(loss)) for step, loss in told(log, "loss")] == [
        (0, "2.5"), (1, "2.0"), (2, "nan"), (3, "1.5"),
    ]  # fmt: skip


def test_an_evaluation_is_no_loss_of_the_training(tmp_path: Path) -> None:
    text = "".join(
        f"Epoch: {epoch} train: loss 1.0 acc 50% val: loss {epoch}.5 acc 40%\n"
        f"Test set: Average loss: 9.0, Accuracy: 4/9 (44%)\n"
        for epoch in (1, 2, 3)
    )
    log = read(tmp_path, text)

    assert told(log, "loss") == [(1, 1.0), (2, 1.0), (3, 1.0)]
    assert told(log, "val_loss") == [(1, 1.5), (2, 2.5), (3, 3.5)]


def test_a_validation_of_megatron_is_one(tmp_path: Path) -> None:
    text = "".join(
        f" iteration {step:8d}/ 500 | lm loss: 2.5E+00 | grad norm: 0.4 |\n"
        f" validation loss at iteration {step} | lm loss value: 2.75E+00 | lm loss PPL: 15.6 |\n"
        for step in (100, 200, 300)
    )

    assert told(read(tmp_path, text), "val_loss") == [(100, 2.75), (200, 2.75), (300, 2.75)]


def test_what_stands_below_a_heading_of_an_evaluation_is_one(tmp_path: Path) -> None:
    epoch = "step 10/20 - loss: 1.0\nstep 20/20 - loss: 0.9\nEval begin...\nstep 4/4 - loss: 7.0\n"
    log = read(tmp_path, "".join(f"Epoch {number}/3\n{epoch}" for number in (1, 2, 3)))

    assert [step for step, _ in told(log, "loss")] == [10, 20, 30, 40, 50, 60]
    assert told(log, "val_loss") == [(20, 7.0), (40, 7.0), (60, 7.0)]


def test_the_mean_of_an_epoch_is_not_among_the_losses_of_batches(tmp_path: Path) -> None:
    epoch = "Epoch {0} [1/2] loss: 1.0\nEpoch {0} [2/2] loss: 1.0\nEpoch {0} done, loss: 4.0\n"
    log = read(tmp_path, "".join(epoch.format(number) for number in (1, 2, 3)))

    assert [value for _, value in told(log, "loss")] == [1.0] * 6


def test_the_mean_of_an_epoch_with_a_step_is_not_among_them_either(tmp_path: Path) -> None:
    epoch = (
        "| train_inner | epoch 00{0}:  10 / 20 loss=1.0, num_updates={0}0\n"
        "| train_inner | epoch 00{0}:  20 / 20 loss=1.0, num_updates={0}5\n"
        "| train | epoch 00{0} | loss 4.0 | num_updates {0}5\n"
    )
    log = read(tmp_path, "".join(epoch.format(number) for number in (1, 2, 3)))

    assert told(log, "loss") == [(step, 1.0) for step in (10, 15, 20, 25, 30, 35)]
    assert told(log, "mean/loss") == [(15, 4.0), (25, 4.0), (35, 4.0)]


def test_rows_are_epochs_where_nothing_else_is_counted(tmp_path: Path) -> None:
    rows = "".join(f"Epoch {n}/9\n - 18s - loss: 0.{n} - val_loss: 0.5\n" for n in (1, 2, 3))
    log = read(tmp_path, rows)

    assert told(log, "loss") == [(1, 0.1), (2, 0.2), (3, 0.3)]


def test_bars_that_nobody_names_an_epoch_for_begin_no_attempts(tmp_path: Path) -> None:
    log = read(tmp_path, "2/4 [====>] - loss: 1.0\r4/4 [=====] - loss: 1.0\n" * 3)

    assert [step for step, _ in told(log, "loss")] == [2, 4, 6, 8, 10, 12]


@pytest.mark.parametrize(
    "block",
    [
        "INFO [step={0}0/99,epoch=0]\n    optim/total_grad_norm=1.5\n    train/loss={0}.25\n",
        "[epoch=0][batch={0}0/99]:\n\t Train l2: 1.5\n\t Train loss/train/total: {0}.25\n",
    ],
)
def test_indented_lines_are_at_the_place_of_their_heading(tmp_path: Path, block: str) -> None:
    log = read(tmp_path, "".join(block.format(number) for number in (1, 2, 3)))

    assert log.num_rows == 3
    assert told(log, "loss") == [(10, 1.25), (20, 2.25), (30, 3.25)]


def test_a_boxed_table_is_a_row(tmp_path: Path) -> None:
    box = "-----------------\n| loss    | {0}.5 |\n| step    | {0}0  |\n-----------------\n"
    log = read(tmp_path, "".join(box.format(number) for number in (1, 2, 3)))

    assert told(log, "loss") == [(10, 1.5), (20, 2.5), (30, 3.5)]


@pytest.mark.parametrize("encoding", ["utf-16", "gb18030"])
def test_a_log_may_be_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    text = "训练 开始\n" + "".join(f"step {n} loss {n}.5\n" for n in (1, 2, 3))
    log = read(tmp_path, text.encode(encoding))

    assert told(log, "loss") == [(1, 1.5), (2, 2.5), (3, 3.5)]


def test_a_loss_that_is_no_number_is_one_of_the_log(tmp_path: Path) -> None:
    log = read(tmp_path, "step 1 loss 2.5\nstep 2 loss nan\nstep 3 loss inf\n")

    assert [math.isfinite(value) for _, value in told(log, "loss")] == [True, False, False]


@pytest.mark.parametrize(
    ("line", "values"),
    [
        ("2021-05-03 12:30:45 at 10.0.0.1:8080", {}),
        ("D loss: 0.5 G loss: 0.25", {"D loss": 0.5, "G loss": 0.25}),
        ("best val loss: 0.5", {"best val loss": 0.5}),
        ("done with loss 0.5", {"loss": 0.5}),
        ("cifar10 v2 of gpt-2", {}),
        ("eta: 0:12:01 time per step: 0.5", {"time per step": 0.5}),
    ],
)
def test_only_a_name_of_the_whole_loss_is_the_loss(line: str, values: dict[str, float]) -> None:
    assert read_line(line).values == values


def test_lines_that_differ_in_their_digits_alone_are_read_each_for_itself() -> None:
    lines = [
        f"Epoch [{n}][{n}0/50] top{n} acc: {n}.5, lr: {n}e-{n}, val loss: 0.{n}, top 1{n}"
        for n in range(1, 10)
    ]

    for n, line in enumerate(lines, start=1):
        told = read_line(line)
        assert (told.epoch, told.step, told.place) == (n, None, None)
        assert told.values == {
            f"top{n} acc": n + 0.5, "lr": float(f"{n}e-{n}"), "val loss": n / 10, "top": 10 + n,
        }  # fmt: skip


def test_places_of_lines_that_differ_in_their_digits_alone_are_their_own() -> None:
    for line, epoch, place in [
        ("[1/5][10/50] loss: 2.5", 1, 10),
        ("[2/5][30/50] loss: 2.5", 2, 30),
        ("Epoch[1] Batch [10-20] loss=2.5", 1, 20),
        ("Epoch[3] Batch [40-60] loss=2.5", 3, 60),
        ("epoch 1.5 [10/50] loss: 2.5", None, 10),
        ("epoch 2.0 [20/50] loss: 2.5", 2, 20),
    ]:
        told = read_line(line)
        assert (told.epoch, told.place) == (epoch, place)


def test_a_text_that_tells_of_no_training_is_none() -> None:
    assert (
        read_text_log("lr: 0.1\nbatch size: 32\nloss_weight: 1.0\nserving on port 8000\n") is None
    )


def test_a_fault_in_a_table_is_told_still(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="line 3: found 3 cells"):
        read(tmp_path, "step,loss\n1,2\n2,3,4\n")


@pytest.mark.parametrize(
    "text",
    [
        "nohup: ignoring input\nFetching, please wait\nDone.\n",
        "hello\nworld\n",
        "[0]\ttrain-logloss:0.8\teval-logloss:0.9\n[1]\ttrain-logloss:0.7\teval-logloss:0.8\n",
    ],
)
def test_a_text_that_is_no_table_either_is_told_as_neither(tmp_path: Path, text: str) -> None:
    with pytest.raises(LogError, match="found neither a table nor lines that a trainer printed"):
        read(tmp_path, text)


def test_columns_of_numbers_without_names_are_told_as_such(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="line 1: found numbers, wanted the names of columns"):
        read(tmp_path, "  0   2.5  1e-3\n  1   2.4  1e-3\n  2   2.3  1e-3\n")


def test_a_long_line_costs_its_length(tmp_path: Path) -> None:
    line = "a " * 1900 + "loss" + " " * 150
    log = read(tmp_path, f"{line}\n" * 50 + "step 1 loss 1\nstep 2 loss 2\nstep 3 loss 3\n")

    assert [value for _, value in told(log, "loss")] == [1.0, 2.0, 3.0]


def test_an_epoch_is_as_long_as_its_lines_say(
    tmp_path: Path,
) -> None:
    lines = [
        f"Epoch: [{epoch}][{batch:3d}/100]  Loss 2.{epoch}{batch:02d} (2.5000)"
        for epoch in range(3)
        for batch in range(0, 100, 30)
    ]
    log = read(tmp_path, "\n".join(lines))

    assert [rows.steps.tolist() for rows in log.stretches] == [
        [0, 30, 60, 90, 100, 130, 160, 190, 200, 230, 260, 290]
    ]


def test_the_total_behind_a_named_step_is_how_many_an_epoch_has(tmp_path: Path) -> None:
    lines = [
        f"Epoch [{epoch}/3], Step [{step}/938], Loss: 0.{epoch}{step}"
        for epoch in range(1, 4)
        for step in range(100, 938, 100)
    ]
    log = read(tmp_path, "\n".join(lines))

    assert [rows.steps.tolist()[8:11] for rows in log.stretches] == [[900, 1038, 1138]]


@pytest.mark.parametrize(
    "line",
    [
        "Train Epoch: {epoch} [{step}/2400 ({percent}%)]\tLoss: 2.5\n",  # of four processes
        "epoch {epoch} step {step}/6000 loss: 2.5 ({percent}%)\n",
    ],
)
def test_a_number_far_beyond_the_last_row_is_not_the_length_of_an_epoch(
    tmp_path: Path, line: str
) -> None:
    text = "".join(
        line.format(epoch=epoch, step=step, percent=step // 6)
        for epoch in (1, 2, 3)
        for step in range(64, 600, 64)
    )
    log = read(tmp_path, text)

    assert "steps start over in each epoch: counted on, 576 per epoch" in log.notes


def test_the_length_of_an_evaluation_is_none_of_an_epoch(tmp_path: Path) -> None:
    lines = [
        line
        for epoch in range(3)
        for line in (
            *(f"Epoch {epoch} [{batch}/40] loss: 2.{epoch}{batch}" for batch in range(0, 40, 10)),
            *(f"Test: [{batch}/9000] loss: 3.{epoch}{batch}" for batch in range(0, 9000, 3000)),
        )
    ]
    log = read(tmp_path, "\n".join(lines))

    assert "steps start over in each epoch: counted on, 40 per epoch" in log.notes
