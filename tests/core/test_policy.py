"""What becomes of an action that a rule asks for."""

import pytest

from runwatch.commands import AnyAction, Checkpoint, LowerLr, Rollback, Stop
from runwatch.policy import (
    Decision,
    PastAction,
    PolicyLimits,
    PolicyReason,
    PolicyVerdict,
    decide,
)
from runwatch.vocabulary import PolicyMode

ALL = ("checkpoint", "lower_lr", "rollback", "stop")


def decided(
    action: AnyAction,
    *history: PastAction,
    mode: PolicyMode = PolicyMode.AUTO,
    allowed: tuple[str, ...] = ALL,
    lr_scale: float = 1.0,
) -> Decision:
    limits = PolicyLimits(max_rollbacks=2, cooldown_steps=50, cooldown_s=30.0, min_lr_scale=0.1)
    return decide(
        action,
        mode=mode,
        allowed=allowed,
        history=history,
        limits=limits,
        step=1000,
        now=5000.0,
        lr_scale=lr_scale,
    )


def suppressed(reason: PolicyReason) -> Decision:
    return Decision(PolicyVerdict.SUPPRESS, reason)


def past(kind: str, step: int = 100, at: float = 100.0, *, is_open: bool = False) -> PastAction:
    return PastAction(kind, step, at, is_open)


@pytest.mark.parametrize(
    ("mode", "verdict", "reason"),
    [
        (PolicyMode.OBSERVE, PolicyVerdict.PROPOSE, PolicyReason.OBSERVE_ONLY),
        (PolicyMode.ASK, PolicyVerdict.AWAIT_APPROVAL, PolicyReason.NEEDS_APPROVAL),
        (PolicyMode.AUTO, PolicyVerdict.ACT, PolicyReason.WITHIN_BUDGET),
    ],
)
def test_the_mode_says_how_far_a_rule_may_go(
    mode: PolicyMode, verdict: PolicyVerdict, reason: PolicyReason
) -> None:
    assert decided(Rollback(), mode=mode) == Decision(verdict, reason)


def test_observing_proposes_whatever_the_limits_say() -> None:
    decision = decided(Stop(), mode=PolicyMode.OBSERVE, allowed=())

    assert decision.verdict is PolicyVerdict.PROPOSE


def test_what_the_trainer_does_not_allow_is_held_back() -> None:
    assert decided(Stop(), allowed=("checkpoint",)) == suppressed(PolicyReason.NOT_ALLOWED)


def test_one_of_a_kind_at_a_time() -> None:
    on_its_way = past("rollback", is_open=True)

    assert decided(Rollback(), on_its_way) == suppressed(PolicyReason.ALREADY_OPEN)
    assert decided(Checkpoint(), on_its_way).verdict is PolicyVerdict.ACT


def test_a_third_rollback_is_beyond_the_budget_of_two() -> None:
    twice = (past("rollback"), past("rollback", 300))

    assert decided(Rollback(), *twice) == suppressed(PolicyReason.BUDGET_SPENT)


@pytest.mark.parametrize(
    "last", [past("rollback", 951), past("rollback", 1040), past("rollback", 1, 4971.0)]
)
def test_after_an_action_steps_and_seconds_must_pass_also_when_steps_went_back(
    last: PastAction,
) -> None:
    assert decided(Rollback(), last) == suppressed(PolicyReason.COOLING_DOWN)


def test_the_cooldown_is_over_in_time() -> None:
    assert decided(Rollback(), past("rollback", 950, 4970.0)).verdict is PolicyVerdict.ACT


def test_the_learning_rate_is_never_cut_below_the_floor_nor_raised() -> None:
    assert decided(LowerLr(0.05)) == suppressed(PolicyReason.BELOW_LR_FLOOR)
    assert decided(LowerLr(0.5), lr_scale=0.5) == suppressed(PolicyReason.NO_EFFECT)
    assert decided(LowerLr(0.25), lr_scale=0.5).verdict is PolicyVerdict.ACT
