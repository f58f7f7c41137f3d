"""Ages are counted from arrival, on one clock."""

from runwatch.messages import Heartbeat
from runwatch.vocabulary import Phase, RunId, RunState
from runwatch_server.runs.liveness import Liveness
from runwatch_server.runs.states import judge_state

RUN = RunId("01J00000000000000000000000")


def heartbeat(liveness: Liveness, *, now: float, step_age_s: float, phase: Phase) -> None:
    beat = Heartbeat(1, 0, last_step=9, step_age_s=step_age_s, phase=phase, lr_scale=0.5)
    liveness.note_heartbeat(RUN, beat, now=now)


def state(liveness: Liveness, *, now: float) -> RunState:
    facts = liveness.facts(RUN, now=now)
    return judge_state(facts, stall_s=100.0, lost_s=30.0, known=RunState.TRAINING)


def test_the_step_time_is_learned_from_the_frames() -> None:
    liveness = Liveness()
    liveness.note_frame(RUN, 1, 0, last_step=2, times=[5.0, 5.5, 6.0], now=100.0)

    (facts,) = liveness.facts(RUN, now=107.0)

    assert facts.step_time_s == 0.5
    assert facts.step_age_s == 7.0


def test_a_heartbeat_tells_the_age_of_the_step_and_not_its_own() -> None:
    liveness = Liveness()
    liveness.open_attempt(RUN, 1, now=0.0)
    heartbeat(liveness, now=200.0, step_age_s=150.0, phase=Phase.TRAIN)

    (facts,) = liveness.facts(RUN, now=201.0)

    assert (facts.contact_age_s, facts.step_age_s) == (1.0, 151.0)
    assert state(liveness, now=201.0) is RunState.STALLED


def test_an_evaluation_is_no_stall() -> None:
    liveness = Liveness()
    liveness.open_attempt(RUN, 1, now=0.0)
    heartbeat(liveness, now=200.0, step_age_s=150.0, phase=Phase.EVAL)

    assert state(liveness, now=201.0) is RunState.EVALUATING


def test_a_run_of_which_no_step_is_due_is_idle() -> None:
    """As one of several that a program trains one after another; not in training, nor stalled."""
    liveness = Liveness()
    liveness.open_attempt(RUN, 1, now=0.0)
    heartbeat(liveness, now=200.0, step_age_s=150.0, phase=Phase.IDLE)

    assert state(liveness, now=201.0) is RunState.IDLE


def test_silence_is_lost_and_a_word_brings_it_back() -> None:
    liveness = Liveness()
    liveness.note_frame(RUN, 1, 0, last_step=2, times=[1.0, 2.0], now=100.0)

    assert state(liveness, now=131.0) is RunState.LOST
    heartbeat(liveness, now=131.0, step_age_s=0.1, phase=Phase.TRAIN)
    assert state(liveness, now=132.0) is RunState.TRAINING


def test_a_beat_that_comes_late_says_that_nobody_listened() -> None:
    liveness = Liveness()
    liveness.note_frame(RUN, 1, 0, last_step=2, times=[1.0, 2.0], now=100.0)
    liveness.beat(now=100.0)

    assert state(liveness, now=1100.0) is RunState.TRAINING  # before the beat has come
    assert liveness.beat(now=1100.0) == 999.0
    assert state(liveness, now=1101.0) is RunState.TRAINING


def test_what_was_heard_after_a_pause_is_not_put_off_by_it() -> None:
    """Else a rank that falls silent then would be listened for as long again as the pause was."""
    liveness = Liveness()
    liveness.beat(now=100.0)
    liveness.note_frame(RUN, 1, 0, last_step=2, times=[1.0, 2.0], now=1099.0)
    liveness.beat(now=1100.0)

    assert state(liveness, now=1105.0) is RunState.TRAINING
    for second in range(1, 60):
        liveness.beat(now=1100.0 + second)
    assert state(liveness, now=1159.0) is RunState.LOST


def test_what_others_wait_for_moves_no_deadline_while_the_beats_come() -> None:
    """As when the states of runs could not be looked at for half a minute."""
    liveness = Liveness()
    liveness.note_frame(RUN, 1, 0, last_step=2, times=[1.0, 2.0], now=100.0)
    pauses_s = {liveness.beat(now=100.0 + second) for second in range(31)}

    assert pauses_s == {0.0}
    assert state(liveness, now=131.0) is RunState.LOST


def test_an_older_attempt_is_not_heard() -> None:
    liveness = Liveness()
    liveness.open_attempt(RUN, 2, now=0.0)
    liveness.note_frame(RUN, 1, 0, last_step=2, times=[1.0], now=5.0)

    (facts,) = liveness.facts(RUN, now=6.0)

    assert (facts.attempt, facts.contact_age_s) == (2, 6.0)
