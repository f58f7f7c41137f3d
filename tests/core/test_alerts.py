"""The life of an alert, verdict by verdict."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runwatch.alerts import Alert, AlertState, Change, Moment, Reason, Span, advance, end, rewind


def alert(state: AlertState, *, onset: int = 10, since: int | None = None) -> Alert:
    return Alert(state, Moment(onset, onset), Moment(onset if since is None else since, 0.0))


def at(step: int) -> Moment:
    return Moment(step, float(step))


HOLD, KEEP = Span(steps=3), Span(steps=5)


@pytest.mark.parametrize(
    ("before", "failing", "step", "state", "reason"),
    [
        (None, False, 10, None, Reason.NOTHING),
        (None, None, 10, None, Reason.UNKNOWN),
        (None, True, 10, AlertState.PENDING, Reason.BEGAN),
        (alert(AlertState.PENDING), True, 12, AlertState.PENDING, Reason.HOLDING),
        (alert(AlertState.PENDING), True, 13, AlertState.FIRING, Reason.HELD),
        (alert(AlertState.PENDING), None, 13, AlertState.PENDING, Reason.UNKNOWN),
        (alert(AlertState.PENDING), False, 13, None, Reason.CLEARED_EARLY),
        (alert(AlertState.FIRING), True, 99, AlertState.FIRING, Reason.STILL_FIRING),
        (alert(AlertState.FIRING), None, 99, AlertState.FIRING, Reason.UNKNOWN),
        (alert(AlertState.FIRING), False, 20, AlertState.RECOVERING, Reason.CLEARED),
        (alert(AlertState.RECOVERING, since=20), False, 24, AlertState.RECOVERING, Reason.KEPT),
        (alert(AlertState.RECOVERING, since=20), True, 24, AlertState.FIRING, Reason.RELAPSED),
        (alert(AlertState.RECOVERING, since=20), False, 25, AlertState.RESOLVED, Reason.RECOVERED),
        (alert(AlertState.RESOLVED), False, 30, None, Reason.NOTHING),
        (alert(AlertState.RESOLVED), True, 30, AlertState.PENDING, Reason.BEGAN),
    ],
)
def test_a_verdict_moves_an_alert(
    before: Alert | None, failing: bool | None, step: int, state: AlertState | None, reason: Reason
) -> None:
    change = advance(before, failing, at(step), hold=HOLD, keep=KEEP)

    assert (change.alert.state if change.alert else None, change.reason) == (state, reason)


def test_without_a_span_an_alert_fires_and_resolves_at_once() -> None:
    fired = advance(None, True, at(7))
    over = advance(fired.alert, False, at(8))

    assert fired == Change(Alert(AlertState.FIRING, at(7), at(7)), Reason.HELD)
    assert over == Change(Alert(AlertState.RESOLVED, at(7), at(8)), Reason.RECOVERED)


def test_seconds_pass_by_the_moment_and_not_by_steps() -> None:
    hold = Span(seconds=30)
    pending = advance(None, True, Moment(5, 100.0), hold=hold).alert

    assert advance(pending, True, Moment(500, 129.0), hold=hold).reason is Reason.HOLDING
    assert advance(pending, True, Moment(6, 130.0), hold=hold).reason is Reason.HELD


def test_rows_pass_as_they_are_judged_however_many_steps_lie_between_them() -> None:
    hold = Span(rows=3)
    pending = advance(None, True, Moment(0, 0.0, row=1), hold=hold).alert

    assert advance(pending, True, Moment(200, 9.0, row=3), hold=hold).reason is Reason.HOLDING
    assert advance(pending, True, Moment(300, 9.0, row=4), hold=hold).reason is Reason.HELD


def test_a_clock_that_is_set_back_stops_no_span_of_steps() -> None:
    pending = advance(None, True, Moment(5, 5000.0), hold=HOLD).alert
    fired = advance(pending, True, Moment(8, 1400.0), hold=HOLD)
    recovering = advance(fired.alert, False, Moment(9, 5000.0), keep=KEEP).alert

    assert fired.reason is Reason.HELD
    assert advance(recovering, False, Moment(14, 1400.0), keep=KEEP).reason is Reason.RECOVERED


def test_an_onset_earlier_than_now_counts_for_how_long_it_held() -> None:
    change = advance(None, True, at(10), hold=HOLD, onset=at(7))

    assert change.alert == Alert(AlertState.FIRING, at(7), at(10))


def test_a_rollback_undoes_what_was_pending_in_it_and_nothing_else() -> None:
    assert rewind(alert(AlertState.PENDING), 10, at(10)).reason is Reason.UNDONE
    assert rewind(alert(AlertState.PENDING), 11, at(11)).alert == alert(AlertState.PENDING)
    assert rewind(alert(AlertState.FIRING), 5, at(5)).alert == alert(AlertState.FIRING)


def test_recovery_goes_on_from_where_training_goes_on() -> None:
    recovering = rewind(alert(AlertState.RECOVERING, since=20), 8, at(8)).alert

    assert advance(recovering, False, at(12), keep=KEEP).reason is Reason.KEPT
    assert advance(recovering, False, at(13), keep=KEEP).reason is Reason.RECOVERED


def test_the_end_of_an_attempt_ends_its_alerts() -> None:
    ended = end(alert(AlertState.FIRING), at(50))

    assert end(None, at(50)) == Change(None, Reason.NOTHING)
    assert end(alert(AlertState.PENDING), at(50)) == Change(None, Reason.ENDED)
    assert ended.alert == Alert(AlertState.RESOLVED, Moment(10, 10), at(50))


@given(st.lists(st.sampled_from([True, False, None]), max_size=60))
def test_only_a_fired_alert_is_ever_resolved(verdicts: list[bool | None]) -> None:
    current: Alert | None = None
    fired = False
    for step, failing in enumerate(verdicts):
        change = advance(current, failing, at(step), hold=HOLD, keep=KEEP)
        current = change.alert
        fired = fired or change.reason is Reason.HELD
        assert fired or change.reason is not Reason.RECOVERED
        assert current is None or math.isfinite(current.since.at)
