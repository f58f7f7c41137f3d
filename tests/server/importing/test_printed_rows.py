"""Which lines of a printed log are rows of the training, and where."""

from collections.abc import Iterator

from runwatch_server.importing.text_log import read_text_log


def told(text: str, name: str) -> Iterator[tuple[int | None, float]]:
    """Where a series was printed, and what."""
    log = read_text_log(text)
    assert log is not None
    return ((entry.step, entry.values[name]) for entry in log.entries if name in entry.values)


def test_a_configuration_that_every_start_prints_says_nothing_of_where_the_run_is() -> None:
    config = "SOLVER:\n  STEPS: (3000, 4000)\n  GAMMA: 0.1\n  AUX_LOSS_WEIGHT: 0.5\n"
    text = "".join(f"{config}iter: {step}  total_loss: {3 - step / 100}\n" for step in (20, 40, 60))

    log = read_text_log(text)

    assert log is not None
    assert [(entry.step, dict(entry.values)) for entry in log.entries] == [
        (20, {"total_loss": 2.8}),
        (40, {"total_loss": 2.6}),
        (60, {"total_loss": 2.4}),
    ]


def test_lines_of_coqui_are_at_the_global_step_of_their_heading() -> None:
    blocks = [
        f"   --> STEP: {step % 30}/30 -- GLOBAL_STEP: {step}\n"
        f"     | > loss_mel: {20 - step / 25}  (21.5)\n     | > loss_kl: 2.5  (2.6)\n\n"
        f" > EVALUATION \n  --> EVAL PERFORMANCE\n     | > avg_loss_mel: {19 - step / 50} (+0.0)\n"
        for step in (25, 50, 75)
    ]

    text = "".join(blocks)

    assert list(told(text, "loss_mel")) == [(25, 19.0), (50, 18.0), (75, 17.0)]


def test_bars_of_other_work_tell_of_no_training() -> None:
    bars = [
        f"Loading checkpoint shards:  {33 * done}%|###   | {done}/3 [00:01<00:04]\n"
        f"Map (num_proc=16):  {33 * done}%|###   | {done}/3 [00:01<00:04]\n"
        for done in range(4)
    ]
    assert read_text_log("".join(bars)) is None


def test_batches_of_espnet_have_their_epoch_and_their_place() -> None:
    text = "".join(
        f"[host] (trainer:753) INFO: {epoch}epoch:train:{done - 49}-{done}batch: "
        f"loss_ctc=9.5, loss={9 - epoch - done / 100}, grad_norm=1.5\n"
        for epoch in (1, 2)
        for done in (50, 100)
    )
    log = read_text_log(text)

    assert log is not None
    assert [(entry.values["epoch"], entry.step) for entry in log.entries] == [
        (1, 50),
        (1, 100),
        (2, 50),
        (2, 100),
    ]
