"""The rules RunFailed (a run ended with an error, and nobody has started it again) and
AttemptReplaced (an attempt goes on, though another was opened in its place).

Not rules over rows, since a run that has ended sends none, and those of an attempt that was
replaced are refused: they are judged here, from what is stored.
"""

from dataclasses import replace
from typing import Final

from runwatch.alerts import Alert, AlertState, Change, Moment, Reason
from runwatch.rules import Rule, Transition
from runwatch.rules.episodes import Culprits, Episode
from runwatch.rules.reporting import transition
from runwatch.rules.templates import Template
from runwatch.vocabulary import Severity
from runwatch_server.alerts.failures.queries import Failure
from runwatch_server.rules.own_names import ATTEMPT_REPLACED, RUN_FAILED

_MOST_SHOWN: Final = 200
"""Characters of the reason in the summary, which has one line."""

FAILED: Final = Rule(
    name=RUN_FAILED,
    severity=Severity.CRITICAL,
    summary=Template("the run failed after step {step}"),
    description=Template(
        "Its program ended with an error and reported that, and no new attempt has begun. The "
        "run's page shows the whole error."
    ),
    runbook="docs/runbooks/run-failed.md",
    document={"builtin": RUN_FAILED, "version": 1},
)
REPLACED: Final = Rule(
    name=ATTEMPT_REPLACED,
    severity=Severity.CRITICAL,
    summary=Template("two trainers report to this run"),
    description=Template(
        "The older one trains on, but nobody watches it any more: its data waits in its spool, and "
        "commands go to the newer one. The audit names the key that opened the newer attempt. "
        "Either the run was started twice, or somebody who has a key of the project has taken its "
        "place."
    ),
    runbook="docs/runbooks/attempt-replaced.md",
    document={"builtin": ATTEMPT_REPLACED, "version": 1},
)
_RULES: Final = {rule.name: rule for rule in (FAILED, REPLACED)}


def transition_of(failure: Failure, now: float) -> Transition:
    """The transition to report for a failure. Its value is the number of seconds since."""
    onset = Moment(failure.last_step, failure.at)
    fired = Moment(failure.last_step, now)
    told = transition(
        _RULES[failure.rule],
        Change(Alert(AlertState.FIRING, onset, fired), Reason.HELD),
        None,
        Episode(failure.attempt, 0, Culprits(), now - failure.at),
        fired,
        rank=0,
    )
    error = _first_line(failure.reason)
    return replace(told, summary=f"{told.summary}: {error}" if error else told.summary)


def _first_line(reason: str) -> str:
    line = next((line.strip() for line in reason.splitlines() if line.strip()), "")
    return line if len(line) <= _MOST_SHOWN else f"{line[: _MOST_SHOWN - 1]}…"
