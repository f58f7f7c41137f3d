"""Commands to one process: obeyed once, in time, and only where the trainer allows it."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false
# (torch leaves parts of its own interface without types)

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from tests.waiting import LONGEST_S
from torch import nn

from runwatch.commands import (
    ACTION_KINDS,
    AnyAction,
    Checkpoint,
    Command,
    CommandState,
    LowerLr,
    Rollback,
    Stop,
)
from runwatch.vocabulary import CommandId
from runwatch_hooks.ranks.ballots import Verdict, off
from runwatch_hooks.ranks.coordinator import Ended
from runwatch_hooks.state import (
    Actor,
    CheckpointKeeper,
    CheckpointStore,
    LrScale,
    Notes,
    Outcome,
    SnapshotRing,
    TrainingState,
)

GOOD_AFTER = 4
EXPIRES_AT = 1000.0


class Run:
    """A model that is trained, with an actor over it."""

    def __init__(
        self, folder: Path | None, allow: tuple[str, ...] = ACTION_KINDS, run_id: str = ""
    ) -> None:
        torch.manual_seed(0)
        self.folder = folder
        self.model = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.Linear(4, 4))
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        self.lr_scale = LrScale([self.optimizer], {"model": self.model})
        self.lr_scale.install()
        state = TrainingState({"model": self.model}, [self.optimizer])
        self.keeper: CheckpointKeeper | None = None
        if folder is not None:
            store = CheckpointStore(folder, run_id=run_id)
            self.keeper = CheckpointKeeper(store, good_after=GOOD_AFTER)
        self.actor = Actor(
            state,
            SnapshotRing(state, good_after=GOOD_AFTER),
            self.lr_scale,
            checkpoints=self.keeper,
            allow=allow,
            snapshot_every=5,
        )
        self.next_step = 0
        self.losses: dict[int, float] = {}
        self.notes: list[Notes] = []

    def train_until(self, end: int, *, bad: int = -1) -> None:
        while self.next_step < end:
            self.optimizer.zero_grad()
            loss = (self.model(torch.ones(2, 4)) - self.next_step / 100).square().mean()
            loss.backward()
            self.optimizer.step()
            self.losses[self.next_step] = loss.item()
            healthy = self.next_step != bad
            self.notes.append(self.actor.note_step(self.next_step, healthy=healthy, now=1.0))
            self.next_step += 1

    def apply(self, action: AnyAction, command_id: str = "c1", *, attempt: int = 1) -> Outcome:
        command = Command(CommandId(command_id), action, attempt, EXPIRES_AT, "an alert")
        outcome = self.actor.apply(command, attempt=1, next_step=self.next_step, now=1.0)
        if outcome.rolled_back_to is not None:
            self.next_step = outcome.rolled_back_to
        return outcome

    def checkpoint(self, command_id: str) -> None:
        """Asks for one and waits until it is written."""
        assert self.apply(Checkpoint(), command_id).receipt.state == CommandState.ACCEPTED
        assert self.keeper is not None
        assert self.keeper.drain(LONGEST_S)

    def close(self) -> Notes:
        return self.actor.close(next_step=self.next_step, now=1.0, timeout_s=LONGEST_S)

    def weight(self) -> list[float]:
        return [value for p in self.model.parameters() for value in p.flatten().tolist()]


MakeRun = Callable[..., Run]


@pytest.fixture
def make_run() -> Iterator[MakeRun]:
    runs: list[Run] = []

    def make(folder: Path | None, allow: tuple[str, ...] = ACTION_KINDS, run_id: str = "") -> Run:
        runs.append(Run(folder, allow, run_id))
        return runs[-1]

    yield make
    for run in runs:
        run.close()


@pytest.fixture
def run(make_run: MakeRun, tmp_path: Path) -> Run:
    run = make_run(tmp_path / "checkpoints")
    run.actor.begin(0)
    return run


def test_a_rollback_goes_to_before_the_onset_and_replays_exactly(run: Run) -> None:
    run.train_until(23)
    losses, weight = dict(run.losses), run.weight()

    outcome = run.apply(Rollback(before_step=19))

    assert outcome.rolled_back_to == 15
    assert outcome.receipt.state == CommandState.APPLIED
    assert outcome.receipt.detail == {
        "to_step": 14,
        "from_step": 22,
        "source": "snapshot",
        "lr_scale": 1.0,
    }
    assert [(event.kind, event.step) for event in outcome.events] == [("rollback", 23)]
    run.train_until(23)
    assert run.losses == losses
    assert run.weight() == weight


def test_a_rollback_takes_no_state_of_the_onset_or_after(run: Run) -> None:
    run.train_until(30)

    assert run.apply(Rollback(before_step=15)).receipt.state == CommandState.FAILED
    assert run.apply(Rollback(before_step=29), "c2").rolled_back_to == 25


def test_a_rollback_passes_over_a_good_state_that_does_not_fit(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.train_until(22)
    run.optimizer.add_param_group({"params": [nn.Parameter(torch.ones(2))]})
    run.train_until(27)
    run.optimizer.param_groups.pop()
    run.train_until(30)

    assert run.apply(Rollback(before_step=29)).rolled_back_to == 20
    assert ["after step 24 cannot be gone back to" in told for told in caplog.messages] == [True]


def test_where_no_good_state_fits_the_newest_one_s_reason_is_told(run: Run) -> None:
    run.train_until(22)
    run.optimizer.param_groups.pop()

    receipt = run.apply(Rollback(before_step=21)).receipt
    assert receipt.state == CommandState.FAILED
    assert "groups" in str(receipt.detail["error"])


def test_the_first_steps_can_be_undone(run: Run) -> None:
    run.train_until(3, bad=2)

    assert run.apply(Rollback(before_step=2)).rolled_back_to == 0


def test_without_a_good_state_the_receipt_says_so_and_training_goes_on(run: Run) -> None:
    run.train_until(3, bad=1)
    weight = run.weight()

    outcome = run.apply(Rollback())

    assert outcome.receipt.state == CommandState.FAILED
    assert outcome.receipt.detail["error"] == (
        "rollback: found no good state before step None; snapshots held: -1"
    )
    assert (outcome.rolled_back_to, run.weight()) == (None, weight)


def test_a_cut_of_the_rate_made_after_the_snapshot_outlives_the_rollback(run: Run) -> None:
    run.train_until(12)
    cut = run.apply(LowerLr(scale=0.5))

    run.apply(Rollback(before_step=12), "c2")

    assert run.actor.lr_scale == 0.5
    assert cut.receipt.detail == {"lr_scale": 0.5, "before": 1.0}
    assert [event.kind for event in cut.events] == ["lr_scale"]
    assert run.optimizer.param_groups[0]["lr"] == 0.01


def test_a_command_delivered_twice_is_obeyed_once_even_after_a_rollback(run: Run) -> None:
    run.train_until(12)
    first = run.apply(Rollback(before_step=12))
    run.train_until(20)

    again = run.apply(Rollback(before_step=12))

    assert (again.rolled_back_to, again.events, again.stop) == (None, (), False)
    assert again.receipt == first.receipt


def test_an_expired_command_is_not_obeyed(run: Run) -> None:
    command = Command(CommandId("c1"), Stop(), 1, EXPIRES_AT)

    outcome = run.actor.apply(command, attempt=1, next_step=0, now=EXPIRES_AT + 1)

    assert (outcome.stop, outcome.receipt.state) == (False, CommandState.EXPIRED)


def test_a_command_for_an_earlier_life_is_rejected(run: Run) -> None:
    outcome = run.apply(Stop(), attempt=2)

    assert (outcome.stop, outcome.receipt.state) == (False, CommandState.REJECTED)
    assert outcome.receipt.detail["error"] == "attempt: found 2, wanted 1, the one that runs"


def test_what_the_trainer_does_not_allow_is_rejected(make_run: MakeRun) -> None:
    run = make_run(None, allow=("checkpoint",))

    actions: list[AnyAction] = [Stop(), LowerLr(scale=0.5), Rollback()]
    outcomes = [run.apply(action, f"c{index}") for index, action in enumerate(actions)]

    assert [outcome.receipt.state for outcome in outcomes] == [CommandState.REJECTED] * 3
    assert outcomes[0].receipt.detail["error"] == "stop: the trainer allows checkpoint"


def test_a_stop_is_passed_on(run: Run) -> None:
    outcome = run.apply(Stop())

    assert (outcome.stop, outcome.receipt.state) == (True, CommandState.APPLIED)


def test_a_checkpoint_is_accepted_then_applied_when_it_is_on_disk(run: Run) -> None:
    run.train_until(7)

    run.checkpoint("c1")
    notes = run.close()

    assert [receipt.state for receipt in notes.receipts] == [CommandState.APPLIED]
    path = notes.receipts[0].detail["path"]
    assert isinstance(path, str)
    assert Path(path).name == "step-000000006-000001.pt"
    assert [event.kind for event in notes.events] == ["checkpoint"]


def test_a_checkpoint_becomes_good_after_its_healthy_steps(run: Run) -> None:
    run.train_until(7)
    run.checkpoint("c1")

    run.train_until(11)

    assert [(event.kind, event.step) for note in run.notes for event in note.events] == [
        ("checkpoint", 8),
        ("checkpoint_good", 10),
    ]


def test_a_checkpoint_after_which_training_went_wrong_is_not_resumed_from(
    make_run: MakeRun, run: Run
) -> None:
    run.train_until(7)
    run.checkpoint("c1")
    run.train_until(11)
    run.checkpoint("c2")
    run.train_until(14, bad=12)
    run.close()

    assert make_run(run.folder).actor.resume() == 7


def test_a_resumed_run_goes_on_exactly_and_knows_what_it_has_obeyed(
    make_run: MakeRun, run: Run
) -> None:
    run.train_until(7)
    run.apply(LowerLr(scale=0.5), "cut")
    run.checkpoint("c1")
    wanted = run.weight()
    later = make_run(run.folder)

    next_step = later.actor.resume()

    assert (next_step, later.weight(), later.actor.lr_scale) == (7, wanted, 0.5)
    assert later.apply(LowerLr(scale=0.25), "cut").receipt.detail["lr_scale"] == 0.5
    assert later.actor.lr_scale == 0.5
    assert later.apply(Checkpoint(), "c1").receipt.state == CommandState.APPLIED


def test_a_rollback_further_than_memory_reaches_takes_a_good_checkpoint(run: Run) -> None:
    run.train_until(7)
    run.checkpoint("c1")
    run.train_until(60)
    losses = dict(run.losses)

    outcome = run.apply(Rollback(before_step=30), "c2")

    assert outcome.rolled_back_to == 7
    assert str(outcome.receipt.detail["source"]).endswith("step-000000006-000001.pt")
    run.train_until(60)
    assert run.losses == losses


@pytest.mark.parametrize("resumes", [False, True])
def test_a_rollback_takes_an_earlier_run_s_checkpoint_only_if_the_run_goes_on_from_it(
    make_run: MakeRun, tmp_path: Path, *, resumes: bool
) -> None:
    earlier = make_run(tmp_path, run_id="A")
    earlier.actor.begin(0)
    earlier.train_until(7)
    earlier.checkpoint("c1")
    earlier.train_until(20)
    earlier.close()
    later = make_run(tmp_path, run_id="B")
    later.next_step = later.actor.resume() or 0 if resumes else 7
    later.train_until(60)

    outcome = later.apply(Rollback(before_step=30), "c2")

    assert outcome.rolled_back_to == (7 if resumes else None)


def test_checkpoints_that_are_not_finite_are_named_where_none_is_resumed_from(
    make_run: MakeRun, run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    run.train_until(3)
    next(run.model.parameters()).data.fill_(torch.inf)
    run.checkpoint("c1")
    run.close()

    assert make_run(run.folder).actor.resume() is None
    assert "checkpoints that are not finite: 1" in caplog.text


def test_a_person_can_choose_the_step(run: Run) -> None:
    run.train_until(17)
    run.checkpoint("c1")
    run.train_until(25, bad=18)

    outcome = run.apply(Rollback(to_step=16), "c2")

    assert outcome.rolled_back_to == 17


def test_after_a_rollback_the_undone_checkpoints_are_out_of_the_history(
    make_run: MakeRun, run: Run
) -> None:
    run.train_until(22)
    run.checkpoint("c1")
    run.train_until(27)
    run.apply(Rollback(before_step=19), "c2")

    outcome = run.apply(Rollback(to_step=21), "c3")

    assert outcome.receipt.state == CommandState.FAILED
    assert make_run(run.folder).actor.resume() is None


def test_of_several_ranks_one_reads_a_checkpoint_before_it_gives_its_word(run: Run) -> None:
    run.train_until(7)
    run.checkpoint("c1")
    run.train_until(60)
    assert run.keeper is not None
    assert run.keeper.drain(LONGEST_S)  # that it is good is written beside the training, too
    command = Command(CommandId("c2"), Rollback(before_step=30), 1, EXPIRES_AT)
    held = run.actor.prepare(command)

    ready = run.actor.prepare(command, to_step=6)
    verdict = Verdict(is_go=True, to_step=6)
    outcome = run.actor.end(Ended(command, verdict), next_step=60, now=1.0)

    assert (held.states[0], held.ready) == ((6,), None)
    assert (ready.states[0], ready.ready) == ((6,), 6)
    assert outcome.rolled_back_to == 7


def test_a_checkpoint_that_is_damaged_is_promised_to_no_rank(run: Run) -> None:
    run.train_until(7)
    run.checkpoint("c1")
    run.train_until(60)
    command = Command(CommandId("c2"), Rollback(to_step=6), 1, EXPIRES_AT)
    damage(run)
    before = run.weight()

    standing = run.actor.prepare(command, to_step=6)

    assert (standing.states, standing.ready) == (((),), None)
    assert run.weight() == before


def test_what_was_made_ready_for_one_command_is_not_gone_back_to_by_another(run: Run) -> None:
    run.train_until(7)
    run.checkpoint("c1")
    run.train_until(60)
    first = Command(CommandId("c2"), Rollback(to_step=6), 1, EXPIRES_AT)
    assert run.actor.prepare(first, to_step=6).ready == 6
    run.actor.end(Ended(first, off("a rank has left")), next_step=60, now=1.0)

    second = Command(CommandId("c3"), Rollback(to_step=6), 1, EXPIRES_AT)
    assert run.actor.prepare(second).ready is None


def damage(run: Run) -> None:
    """The bytes of the checkpoints on disk, so that no length tells of it."""
    assert run.folder is not None
    for path in run.folder.glob("step-*.pt"):
        octets = bytearray(path.read_bytes())
        octets[len(octets) // 2] ^= 0xFF
        path.write_bytes(octets)


def test_a_checkpoint_without_a_folder_fails_with_a_word(make_run: MakeRun) -> None:
    outcome = make_run(None).apply(Checkpoint())

    assert outcome.receipt.state == CommandState.FAILED
    assert "given no folder" in str(outcome.receipt.detail["error"])


def test_a_folder_that_cannot_be_written_is_a_failed_receipt(
    make_run: MakeRun, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    run = make_run(tmp_path / "file")

    run.checkpoint("c1")
    notes = run.close()

    assert [receipt.state for receipt in notes.receipts] == [CommandState.FAILED]
    assert "not written" in str(notes.receipts[0].detail["error"])


def test_beside_the_actors_state_stands_the_schedules_rate_also_after_a_step_that_raised() -> None:
    run = Run(None)
    run.train_until(1)
    run.lr_scale.set(0.5)
    del run.optimizer.param_groups[0]["betas"]
    with pytest.raises(KeyError):
        run.optimizer.step()

    state = run.actor.state_dict()

    assert state["lr_scale"] == 0.5
    assert run.optimizer.param_groups[0]["lr"] == 0.01
    run.lr_scale.close()
