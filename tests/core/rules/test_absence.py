"""Silence: when it is a failure, and when it is work that takes its time."""

import pytest
from tests.core.rules.builtin_pack import pack

from runwatch.alerts import AlertState, Moment
from runwatch.rules import Liveness, Rule, judge_absence, load_rules
from runwatch.rules.absence import limit_s
from runwatch.rules.rule import Absence
from runwatch.vocabulary import Phase

RULE: dict[str, object] = {
    "alert": "NoStep",
    "absence": {"timeout_s": 60, "times_median": 10, "phases": {"eval": 5, "idle": 0}},
    "for": {"seconds": 5},
    "keep_firing_for": {"seconds": 20},
}


def rule() -> Rule:
    return load_rules({"version": 1, "groups": [{"name": "g", "rules": [RULE]}]})[0]


def silent(
    silent_s: float, phase: Phase = Phase.TRAIN, *, step: int | None = 7, step_s: float = 1.0
) -> Liveness:
    return Liveness(last_step=step, silent_s=silent_s, phase=phase, median_step_s=step_s)


@pytest.mark.parametrize(
    ("liveness", "limit"),
    [
        (silent(0), 60.0),
        (silent(0, step_s=30.0), 300.0),
        (silent(0, Phase.EVAL), 300.0),
        (silent(0, Phase.CHECKPOINT), 60.0),
        (silent(0, Phase.IDLE), None),
    ],
)
def test_how_long_a_silence_may_be_depends_on_steps_and_phase(
    liveness: Liveness, limit: float | None
) -> None:
    absence = rule().absence
    assert absence is not None

    assert limit_s(absence, liveness) == limit


def test_a_pause_that_the_run_came_back_from_is_learned() -> None:
    absence = Absence(timeout_s=60.0, times_longest=3.0)
    shown = Liveness(last_step=7, silent_s=0.0, phase=Phase.TRAIN, longest_pause_s=40.0)

    assert limit_s(absence, silent(0)) == 60.0
    assert limit_s(absence, shown) == 120.0


def test_before_the_pace_is_known_a_rule_may_say_nothing() -> None:
    absence = Absence(timeout_s=60.0, once_known=True)
    shown = Liveness(last_step=7, silent_s=0.0, phase=Phase.TRAIN, longest_pause_s=0.0)

    assert limit_s(absence, silent(0)) is None
    assert limit_s(absence, shown) == 60.0


@pytest.mark.parametrize(
    ("longest_phase_s", "limit"),
    [(None, 1800.0), (0.0, 60.0), (2.0, 60.0), (30.0, 150.0), (4000.0, 20_000.0)],
)
def test_a_phase_that_has_ended_before_is_judged_by_how_long_it_lasted(
    longest_phase_s: float | None, limit: float
) -> None:
    absence = Absence(
        timeout_s=60.0, times_longest=5.0, by_phase=True, phase_factors={Phase.EVAL: 30.0}
    )

    assert limit_s(absence, evaluating(longest_phase_s)) == limit


def test_a_rule_by_factors_waits_for_a_phase_that_always_lasts_longer() -> None:
    absence = Absence(timeout_s=300.0, times_longest=2.0, phase_factors={Phase.EVAL: 6.0})

    assert limit_s(absence, evaluating(20.0)) == 1800.0
    assert limit_s(absence, evaluating(2000.0)) == 4000.0


def test_a_phase_that_a_rule_leaves_alone_is_never_overdue() -> None:
    absence = Absence(timeout_s=60.0, by_phase=True, phase_factors={Phase.EVAL: 0.0})

    assert limit_s(absence, evaluating(1.0)) is None


def evaluating(longest_phase_s: float | None) -> Liveness:
    return Liveness(last_step=7, silent_s=0.0, phase=Phase.EVAL, longest_phase_s=longest_phase_s)


def test_silence_holds_then_fires_and_a_step_ends_it() -> None:
    calm = judge_absence(rule(), silent(60.0), None, 1000.0)
    pending = judge_absence(rule(), silent(61.0), None, 1001.0)
    firing = judge_absence(rule(), silent(65.0), pending.alert, 1005.0)
    recovering = judge_absence(rule(), silent(1.0, step=8), firing.alert, 1007.0)
    resolved = judge_absence(rule(), silent(1.0, step=27), recovering.alert, 1027.0)

    states = [
        change.alert.state for change in (pending, firing, recovering, resolved) if change.alert
    ]
    assert calm.alert is None
    assert states == [
        AlertState.PENDING,
        AlertState.FIRING,
        AlertState.RECOVERING,
        AlertState.RESOLVED,
    ]


def test_the_onset_does_not_depend_on_when_one_looked() -> None:
    early = judge_absence(rule(), silent(61.0), None, 1001.0)
    late = judge_absence(rule(), silent(99.0), None, 1039.0)

    assert early.alert is not None
    assert late.alert is not None
    assert early.alert.onset == late.alert.onset == Moment(7, 1000.0)


def test_a_run_that_never_made_a_step_can_be_silent_too() -> None:
    change = judge_absence(rule(), silent(100.0, Phase.INIT, step=None), None, 1000.0)

    assert change.alert is not None
    assert change.alert.onset.step == 0


def test_a_silence_that_is_no_number_is_on_the_side_of_the_alarm() -> None:
    assert judge_absence(rule(), silent(float("nan")), None, 1000.0).alert is not None


def test_the_pack_lets_a_checkpoint_take_its_time_and_an_idle_run_be() -> None:
    absences = [r.absence for r in pack() if r.absence]

    assert [limit_s(one, silent(0, Phase.CHECKPOINT)) for one in absences] == [
        None,
        900.0,
        1800.0,
    ]
    assert [limit_s(one, silent(0, Phase.IDLE)) for one in absences] == [None] * 3
