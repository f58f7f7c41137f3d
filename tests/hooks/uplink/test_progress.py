"""What the heartbeats tell of a trainer that says nothing itself."""

from runwatch.vocabulary import Phase
from runwatch_hooks.uplink.stalls import ProgressBoard


class Model:
    is_evaluating = False

    def __call__(self) -> bool:
        return self.is_evaluating


def test_an_evaluation_is_seen_by_the_models_mode() -> None:
    model = Model()
    board = ProgressBoard(model)
    board.tell(7, Phase.TRAIN, 1.0)
    stepped = board.see()

    model.is_evaluating = True
    evaluating = board.see()
    model.is_evaluating = False
    back = board.see()

    phases = [one.phase for one in (stepped, evaluating, back)]
    assert phases == [Phase.TRAIN, Phase.EVAL, Phase.TRAIN]
    assert stepped.since <= evaluating.since <= back.since  # a silence begins anew with a phase
    assert {one.last_step for one in (stepped, evaluating, back)} == {7}


def test_a_model_that_trains_in_evaluation_mode_is_not_taken_for_evaluating() -> None:
    model = Model()
    model.is_evaluating = True
    board = ProgressBoard(model)
    board.tell(7, Phase.TRAIN, 1.0)

    assert board.see().phase is Phase.TRAIN


def test_what_is_said_goes_before_what_is_seen() -> None:
    model = Model()
    board = ProgressBoard(model)
    board.tell(7, Phase.TRAIN, 1.0)
    model.is_evaluating = True
    board.tell(7, Phase.CHECKPOINT, 1.0)

    assert board.see().phase is Phase.CHECKPOINT


def test_the_end_of_a_long_phase_is_no_long_silence() -> None:
    board = ProgressBoard()
    board.tell(7, Phase.TRAIN, 1.0)
    board.tell(7, Phase.EVAL, 1.0)
    during = board.see().since
    board.tell(7, Phase.TRAIN, 1.0)

    assert board.see().since > during
