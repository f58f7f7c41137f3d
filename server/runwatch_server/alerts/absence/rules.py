"""Rules about silence, judged at ticks of the monotonic clock, because silence brings no rows.

The rules with `absence` fire when a rank makes no step for some time. RunLost fires when a run
sends nothing at all, RankLost when one rank does while others still send. These two are defined
here and not in a rule file: that a process is gone is not a matter of configuration.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final

from runwatch.alerts import Alert, AlertState, Change, Moment, Reason
from runwatch.rules import Liveness, Rule, Transition, judge_absence
from runwatch.rules.episodes import Culprits, Episode
from runwatch.rules.reporting import transition
from runwatch.rules.rule import Absence
from runwatch.rules.templates import Template
from runwatch.rules.transitions import episode_id
from runwatch.vocabulary import Scope, Severity
from runwatch_server.alerts.absence.standing import NOWHERE, Standing
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.rules.own_names import RANK_LOST, RUN_LOST
from runwatch_server.runs.rank_activity import RankFacts

_OVER: Final = (Reason.CLEARED_EARLY, Reason.CLEARED, Reason.RECOVERED)
"""Reasons that only apply once what the alert misses has come."""
OF_CONTACT: Final = (RUN_LOST, RANK_LOST)
"""The rules about ranks that send nothing; the others are about steps."""


@dataclass(frozen=True, slots=True)
class AbsenceAlert:
    """An open alert about silence."""

    alert: Alert
    episode: str
    inhibited_by: str | None = None
    """The rule whose alert about the same rank explains this one."""
    shadow: bool = False
    """Whether the rule is on trial; such an alert explains no other."""


def run_lost(lost_s: float) -> Rule:
    """The rule that fires when all ranks of a run have fallen silent."""
    return Rule(
        name=RUN_LOST,
        absence=Absence(timeout_s=lost_s),
        severity=Severity.CRITICAL,
        summary=Template("the run has sent nothing since step {step}"),
        description=Template(
            "The process, its machine or the network is gone. Check whether the process is there. "
            "If it is, its frames wait in its spool and arrive later."
        ),
        runbook="docs/runbooks/run-lost.md",
        document={"builtin": RUN_LOST, "version": 1, "lost_s": lost_s},
    )


def rank_lost(lost_s: float) -> Rule:
    """The rule that fires when one rank has fallen silent and others have not."""
    return Rule(
        name=RANK_LOST,
        scope=Scope.RANK,
        absence=Absence(timeout_s=lost_s),
        severity=Severity.CRITICAL,
        summary=Template("rank {rank} has sent nothing since step {step}, while other ranks do"),
        description=Template(
            "The process of rank {rank}, its machine or its network is gone. The others wait for "
            "it at the next collective operation. Look at that process and its machine, then "
            "restart the job from its last checkpoint."
        ),
        runbook="docs/runbooks/rank-lost.md",
        document={"builtin": RANK_LOST, "version": 1, "lost_s": lost_s},
    )


def silent_s(rule: Rule, facts: RankFacts, team: Sequence[RankFacts]) -> float:
    """How long, in seconds, the silence that a rule is about has lasted; `team` are the run's
    ranks.

    The silence of a rank is counted from the newest message of any rank: if all fall silent at
    once, as when a job is killed, no rank is reported lost before the run is.
    """
    newest_s = min(rank.contact_age_s for rank in team)
    if rule.name == RUN_LOST:
        return newest_s
    if rule.name == RANK_LOST:
        return facts.contact_age_s - newest_s
    return facts.step_age_s


def is_broken(rule: Rule, facts: RankFacts, team: Sequence[RankFacts]) -> bool:
    """Whether what a rule misses, a message or a step, has come since the service began to
    listen."""
    if rule.name == RUN_LOST:
        return any(rank.has_spoken for rank in team)
    return facts.has_spoken if rule.name == RANK_LOST else facts.has_stepped


def rules_of_absence(rules: Sequence[Rule], rank: int) -> list[Rule]:
    """The rules by which a rank's silence is judged."""
    return [
        rule
        for rule in rules
        if rule.absence is not None and (rank == 0 or rule.scope is Scope.RANK)
    ]


def explained_by(rule: Rule, firing: Collection[str]) -> str | None:
    """The firing rule about the same rank, if any, that explains an alert of this rule."""
    names = (name for one in rule.inhibited_by for name in one.rules)
    return next((name for name in names if name in firing), None)


def judge_silence(
    rule: Rule,
    facts: RankFacts,
    team: Sequence[RankFacts],
    known: AbsenceAlert | None,
    *,
    lost_s: float,
    now: float,
    longest_phase_s: float | None = None,
) -> Change | None:
    """The new state of an absence rule's alert after a look at one rank of a team. None if nothing
    can be said now: the rank is lost, which RunLost or RankLost reports once, or the service has
    listened for less time than the silence of an alert from before a restart has to last."""
    is_lost = not facts.contact_age_s <= lost_s
    if is_lost and rule.name not in OF_CONTACT:
        return None
    liveness = Liveness(
        last_step=facts.last_step,
        silent_s=silent_s(rule, facts, team),
        phase=facts.phase,
        median_step_s=facts.step_time_s,
        longest_pause_s=facts.longest_pause_s,
        longest_phase_s=longest_phase_s,
    )
    change = judge_absence(rule, liveness, None if known is None else known.alert, now)
    if change.reason in _OVER and known is not None and not is_broken(rule, facts, team):
        return None
    return change


def transition_of(
    rule: Rule,
    change: Change,
    facts: RankFacts,
    known: AbsenceAlert | None,
    *,
    silence_s: float,
    num_before: int,
    inhibited_by: str | None,
    standing: Standing = NOWHERE,
) -> tuple[Transition, AbsenceAlert | None]:
    """The transition to report for a change, and the alert to remember. `standing` is where the
    ranks stand.

    `num_before` counts the rule's earlier alerts in this attempt: a run may fall silent twice after
    the same step, and those are two episodes.
    """
    before = None if known is None else known.alert
    alert = change.alert or before
    assert alert is not None
    told = transition(
        rule,
        change,
        before,
        Episode(facts.attempt, 0, Culprits(), silence_s),
        Moment(alert.onset.step, alert.since.at),
        facts.rank,
        phase=facts.phase,
        where=standing.words,
    )
    told = replace(
        told,
        step=max(alert.onset.step if facts.last_step is None else facts.last_step, 0),
        onset_step=max(alert.onset.step, 0),
        inhibited_by=inhibited_by,
        stalled=standing.ranks,
        episode=_new_episode(told, num_before) if known is None else known.episode,
    )
    open_alert = AbsenceAlert(alert, told.episode, inhibited_by, rule.shadow)
    return told, open_alert if _goes_on(change) else None


def absence_alert_of(record: AlertRecord, *, since: float) -> AbsenceAlert:
    """The alert of a stored record, to go on with after a restart. `since` is when it entered its
    current state."""
    onset = Moment(record.onset_step, record.onset_at)
    alert = Alert(record.state, onset, Moment(record.last_step, since))
    return AbsenceAlert(alert, record.episode, record.inhibited_by, record.shadow)


def _goes_on(change: Change) -> bool:
    return change.alert is not None and change.alert.state is not AlertState.RESOLVED


def _new_episode(told: Transition, num_before: int) -> str:
    return episode_id(
        told.rule,
        told.labels,
        attempt=told.attempt,
        segment=num_before,
        onset_step=told.onset_step,
    )
