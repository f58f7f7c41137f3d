"""Steps that begin anew with each epoch."""

from pathlib import Path

from runwatch_server.importing import read_run_log
from runwatch_server.importing.epoch_steps import count_on
from runwatch_server.importing.run_log import Entry


def steps(*counts: tuple[float, int | None]) -> list[int | None]:
    """Those of the run, where a log told these epochs and steps."""
    entries = [Entry("line", step, None, {"epoch": epoch, "loss": 1.0}) for epoch, step in counts]
    return [entry.step for entry in count_on(entries, "epoch")[0]]


def test_steps_of_an_epoch_become_steps_of_the_run(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("epoch,step,loss\n1,50,3\n1,100,2\n2,50,1.5\n2,100,1.2\n3,50,1\n")
    log = read_run_log(file)

    assert [rows.steps.tolist() for rows in log.stretches] == [[50, 100, 150, 200, 250]]
    assert "steps start over in each epoch: counted on, 100 per epoch" in log.notes


def test_steps_that_begin_at_zero_have_one_more_in_an_epoch() -> None:
    assert steps((0, 0), (0, 1), (1, 0), (1, 1)) == [0, 1, 2, 3]


def test_an_epoch_of_one_row_may_tell_the_same_step_each_time() -> None:
    assert steps((1, 100), (2, 100), (3, 100)) == [100, 200, 300]


def test_steps_that_rise_through_the_epochs_stay() -> None:
    assert steps((0.5, 10), (1.0, 20), (1.5, 30)) == [10, 20, 30]


def test_a_job_that_began_anew_begins_anew_still() -> None:
    assert steps((1, 5), (2, 5), (1, 5), (2, 5)) == [5, 10, 5, 10]


def test_a_row_without_an_epoch_is_of_the_one_before() -> None:
    assert steps((0, 4), (1, 2), (float("nan"), 4)) == [4, 6, 8]


def test_a_row_without_a_step_has_none_still() -> None:
    assert steps((0, 4), (1, 2), (1, None)) == [4, 6, None]


def test_epochs_beyond_all_steps_change_nothing() -> None:
    assert steps((0, 4), (1e300, 2)) == [4, 2]


def test_the_count_of_the_run_goes_before_that_of_the_epoch(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_text("epoch,step,global_step,loss\n1,1,0,3\n1,2,1,2\n2,1,2,1.5\n")

    assert [rows.steps.tolist() for rows in read_run_log(file).stretches] == [[0, 1, 2]]


def test_a_batch_told_by_its_place_in_the_epoch_may_come_later_in_the_next() -> None:
    told = ((1, 40), (1, 80), (2, 20), (2, 60), (3, 100), (4, 40), (5, 20))

    assert steps(*told) == [40, 80, 120, 160, 300, 340, 420]
