"""Logs on their way into a service: what the frames say is what the log said."""

from pathlib import Path

import numpy as np

from runwatch.nonfinite import is_absent
from runwatch.rules import Evaluator, Rows
from runwatch_server.importing import RunLog, read_run_log
from runwatch_server.importing.parcels import Parcel
from runwatch_server.rules.pack import load_builtin


def read(folder: Path, steps: list[int], losses: list[float]) -> RunLog:
    file = folder / "log.csv"
    rows = [f"{step},{loss},{loss}" for step, loss in zip(steps, losses, strict=True)]
    file.write_text("\n".join(["step,loss,grad_norm/a", *rows]))
    return read_run_log(file)


def test_few_steps_passed_over_are_filled_and_many_begin_a_frame(tmp_path: Path) -> None:
    parcel = Parcel(read(tmp_path, [0, 2, 500, 501], [4.0, 3.0, 2.0, 1.0]), "default")
    first, second = parcel.frames(1, 1)

    assert (first.first_step, second.first_step, second.seq) == (0, 500, 2)
    assert is_absent(first.metrics[:, 0]).tolist() == [False, True, False]
    assert is_absent(first.stats[:, 0]).tolist() == [False, True, False]
    assert second.metrics[:, 0].tolist() == [2.0, 1.0]


def test_ids_follow_from_the_content_and_the_project_alone(tmp_path: Path) -> None:
    one = read(tmp_path, [0, 1], [2.0, 1.0])
    other = read(tmp_path, [0, 1], [2.0, 1.5])

    assert Parcel(one, "a").run_id == Parcel(one, "a").run_id
    assert len({Parcel(one, "a").run_id, Parcel(one, "b").run_id, Parcel(other, "a").run_id}) == 3


def test_two_spellings_of_one_name_are_two_series_of_a_frame(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("step,Loss,loss\n0,1,2\n")
    (frame,) = Parcel(read_run_log(file), "default").frames(1, 1)

    assert frame.metric_names == ("Loss", "loss")


def test_frames_bring_the_alerts_that_the_log_brings(tmp_path: Path) -> None:
    steps = [*range(0, 600, 3), *range(300, 900, 3), *range(90)]
    losses = list(np.sin(np.arange(len(steps))) * 0.01 + 2)
    losses[150], losses[350], losses[450] = 50.0, float("nan"), 90.0
    log = read(tmp_path, steps, losses)
    rules = [filed.rule for filed in load_builtin()]
    parcel = Parcel(log, "default")

    from_log, from_frames = Evaluator(rules), Evaluator(rules)
    found = [told for rows in log.stretches for told in from_log.observe(rows)]
    sent = [
        told
        for attempt in parcel.attempts
        for frame in parcel.frames(attempt, attempt)
        for told in from_frames.observe(Rows.from_frame(frame, parcel.layout))
    ]

    assert len(found) >= 4
    assert [(t.rule, t.state, t.attempt, t.segment, t.step) for t in sent] == [
        (t.rule, t.state, t.attempt, t.segment, t.step) for t in found
    ]
