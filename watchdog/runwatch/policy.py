"""What becomes of an action that a rule asks for: told, asked about, done, or held back.

The last word is the trainer's allow-list; this is the service's, and it returns its reason.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from runwatch.commands import AnyAction, Checkpoint, Detail, LowerLr, Rollback, Stop
from runwatch.vocabulary import PolicyMode


class PolicyVerdict(StrEnum):
    PROPOSE = "propose"
    """Shown, and nothing more."""
    AWAIT_APPROVAL = "await_approval"
    ACT = "act"
    SUPPRESS = "suppress"


class PolicyReason(StrEnum):
    OBSERVE_ONLY = "observe_only"
    NEEDS_APPROVAL = "needs_approval"
    WITHIN_BUDGET = "within_budget"
    NOT_ALLOWED = "not_allowed"
    """The trainer did not put this kind of action on its allow-list."""
    ALREADY_OPEN = "already_open"
    """One of its kind is on its way."""
    COOLING_DOWN = "cooling_down"
    BUDGET_SPENT = "budget_spent"
    BELOW_LR_FLOOR = "below_lr_floor"
    NO_EFFECT = "no_effect"
    """The learning rate is already as low, or lower."""


ALREADY_PROPOSED: Final = "already_proposed"
"""Why an action is not taken although the policy allows it: another of its kind already waits for a
person's approval."""
ALREADY_ROLLED_BACK: Final = "already_rolled_back"
"""Likewise: what it answers to was taken back by another's rollback."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyLimits:
    """How much rules may do to one run. None: no limit."""

    max_rollbacks: int | None = 3
    """A run that needs a fourth needs a person: an endless loop of rollbacks trains nothing."""
    max_lr_cuts: int | None = 4
    max_checkpoints: int | None = 50
    cooldown_steps: int = 50
    """Between two actions of one kind; both this and the next must have passed."""
    cooldown_s: float = 0.0
    min_lr_scale: float = 0.05


@dataclass(frozen=True, slots=True)
class PastAction:
    """An action that rules took in this run before, or that is under way."""

    kind: str
    step: int
    at: float
    """Unix seconds by the service's clock."""
    is_open: bool = False
    """Whether it is still on its way to the trainer, or waits for a person."""


@dataclass(frozen=True, slots=True)
class Decision:
    verdict: PolicyVerdict
    reason: PolicyReason


def decide(
    action: AnyAction,
    *,
    mode: PolicyMode,
    allowed: Collection[str],
    history: Sequence[PastAction],
    limits: PolicyLimits,
    step: int,
    now: float,
    lr_scale: float = 1.0,
) -> Decision:
    """What becomes of an action. `history` holds this run's past actions of rules, in any order.

    In `observe` everything is proposed. Otherwise what the limits forbid is suppressed, so that
    nobody is asked to approve what could not be done or is being done already.
    """
    if mode is PolicyMode.OBSERVE:
        return Decision(PolicyVerdict.PROPOSE, PolicyReason.OBSERVE_ONLY)
    objection = _objection(action, allowed, history, limits, step, now, lr_scale)
    if objection is not None:
        return Decision(PolicyVerdict.SUPPRESS, objection)
    if mode is PolicyMode.ASK:
        return Decision(PolicyVerdict.AWAIT_APPROVAL, PolicyReason.NEEDS_APPROVAL)
    return Decision(PolicyVerdict.ACT, PolicyReason.WITHIN_BUDGET)


def _objection(
    action: AnyAction,
    allowed: Collection[str],
    history: Sequence[PastAction],
    limits: PolicyLimits,
    step: int,
    now: float,
    lr_scale: float,
) -> PolicyReason | None:
    if action.kind not in allowed:
        return PolicyReason.NOT_ALLOWED
    if isinstance(action, LowerLr):
        if not action.scale >= limits.min_lr_scale:
            return PolicyReason.BELOW_LR_FLOOR
        if action.scale >= lr_scale:
            return PolicyReason.NO_EFFECT
    same_kind = [past for past in history if past.kind == action.kind]
    if any(past.is_open for past in same_kind):
        return PolicyReason.ALREADY_OPEN
    budget = _budget(action, limits)
    if budget is not None and len(same_kind) >= budget:
        return PolicyReason.BUDGET_SPENT
    if any(_is_cooling_down(past, limits, step, now) for past in same_kind):
        return PolicyReason.COOLING_DOWN
    return None


def _budget(action: AnyAction, limits: PolicyLimits) -> int | None:
    match action:
        case Checkpoint():
            return limits.max_checkpoints
        case LowerLr():
            return limits.max_lr_cuts
        case Rollback():
            return limits.max_rollbacks
        case Detail() | Stop():
            return None


def _is_cooling_down(past: PastAction, limits: PolicyLimits, step: int, now: float) -> bool:
    """A rollback takes the step count back, so a distance in steps counts in both directions."""
    return abs(step - past.step) < limits.cooldown_steps or now - past.at < limits.cooldown_s
