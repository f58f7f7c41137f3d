"""The texts of messages: what happened, where, since when, what was done, how to look at it.

Names come from whoever may send a run: none may begin a line of its own, turn around what is read
beside it, or call people who are not on call.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from runwatch.commands import CommandState
from runwatch.number_texts import count, counted, number
from runwatch.terminal_text import readable, readable_line
from runwatch_server.alerts.actions.rungs import ladder_in_words
from runwatch_server.alerts.records import Resolution
from runwatch_server.clock import rfc3339
from runwatch_server.commands.records import CommandRecord
from runwatch_server.notify.cases import Case
from runwatch_server.notify.records import Kind
from runwatch_server.notify.settling import AGAIN_STEPS
from runwatch_server.runbooks import runbook_url

MAX_CASES: Final = 10
"""Most alerts that one message describes in full."""
_MAX_LAYERS: Final = 4
_TITLE_CHARS: Final = 150
"""Of a summary within a title: Slack and Apprise cut titles at some 250 characters."""
_MENTION: Final = re.compile(
    r"@(?=(?:everyone|channel|here|all)\b|&?\d{15})|(?<!\w)@(?=[a-z])|<(?=[@!#]|\w+[:/])",
    re.IGNORECASE,
)
"""What makes a chat notify all of a channel, or somebody, and the beginning of links with a text of
their own (`<https://...|sign in>`). An ID of Discord's has 17 digits or more, and a `@384` of a
name is none."""
_ZERO_WIDTH_SPACE: Final = "\u200b"

_CLOSED: Final[Mapping[Resolution | None, str]] = {
    Resolution.RUN_ENDED: "because the run ended; it had not recovered",
    Resolution.ATTEMPT_ENDED: "because a newer attempt began; it had not recovered",
    Resolution.RULE_CHANGED: "because its rule was changed or removed",
}


def title_of(cases: Sequence[Case], kind: Kind, *, still_open: int = 0) -> str:
    """The line that a pager shows; all cases are of one run. A message that they fire says so even
    if it comes so late that they are over."""
    run = readable_line(f"run {cases[0].run_name} ({cases[0].alert.project})")
    rules = _enumerated(list(dict.fromkeys(case.alert.rule for case in cases)), 3)
    times = max(case.times for case in cases)
    if kind is Kind.RESOLVED:
        rest = f", after {count(times)} times" if times > 1 else ""
        rest += f", {still_open} still open" if still_open else ""
        state = _ended_how(cases)
    else:
        rest = f", again: {count(times)} times" if times > 1 else ""
        rest += _what_of(cases[0])
        state = max((case.alert.severity for case in cases), key=lambda one: one.gravity)
        state += _over_by_now(cases)
    return _calling_nobody(f"[{state}] {rules} in {run}{rest}")


def _ended_how(cases: Sequence[Case]) -> str:
    if did_all_recover(cases):
        return "resolved"
    is_settled = any(case.alert.resolution is Resolution.SETTLED_WORSE for case in cases)
    return "not recovered" if is_settled else "closed, not recovered"


def _over_by_now(cases: Sequence[Case]) -> str:
    """What a message that these fire adds if all of them are over by the time it is sent."""
    ends = [case.resolved_at for case in cases if case.resolved_at and case.is_reported_over]
    if len(ends) < len(cases):
        return ""
    since = rfc3339(max(ends)).strftime("%H:%M")
    if did_all_recover(cases):
        return f", over since {since}"
    return f", closed at {since}, not recovered"


def _what_of(case: Case) -> str:
    """What happened, of the most urgent alert: many a channel shows no more than the title."""
    summary = readable_line(case.alert.facts.summary)
    if len(summary) > _TITLE_CHARS:
        summary = f"{summary[: _TITLE_CHARS - 1]}…"
    return f": {summary}" if summary else ""


def body_of(cases: Sequence[Case], *, url: str, dedup_key: str) -> str:
    parts = [_about(case, url) for case in cases[:MAX_CASES]]
    if len(cases) > MAX_CASES:
        parts.append(f"and {counted(len(cases) - MAX_CASES, 'more alert')} of this run")
    return _calling_nobody("\n\n".join([*parts, f"Dedup key: {dedup_key}"]))


def did_all_recover(cases: Sequence[Case]) -> bool:
    """Whether alerts that are over ended because the run is healthy again."""
    return all(case.alert.resolution in (None, Resolution.RECOVERED) for case in cases)


def worst_about(case: Case) -> str:
    """The worst value and where it was, and the most layers at once; empty if none is known."""
    peak, widest = case.alert.facts.peak, case.alert.facts.widest
    if peak is None:
        return ""
    value = number(peak.value)
    layer = "" if peak.layer is None else f" in {peak.layer}"
    wide = f", {count(widest.num_layers)} layers at most" if widest.num_layers > 1 else ""
    return f"{value} at step {count(peak.step)}{layer}{wide}"


def done_about(commands: Sequence[CommandRecord]) -> str:
    """The commands that were ordered because of an alert, and their results."""
    told = [
        f"{command.kind}: {command.state}"
        + ("" if command.ended_step is None else f" at step {count(command.ended_step)}")
        + _standing_of_proposal(command)
        for command in reversed(commands)
    ]
    return "; ".join(told) or "nothing was ordered"


def _standing_of_proposal(command: CommandRecord) -> str:
    """What becomes of it, whatever the run's policy: under `observe` it waits for nobody."""
    if command.state is not CommandState.PROPOSED:
        return ""
    if command.after_id is not None:
        return ", once another command has ended"
    return ", and done only if a person approves it"


def layers_about(case: Case) -> str:
    """Failing layers, worst first; empty if the rule is not about layers."""
    facts = case.alert.facts
    named = ", ".join(facts.layers[:_MAX_LAYERS])
    more = facts.num_layers - len(facts.layers[:_MAX_LAYERS])
    return named + (f", +{more}" if more > 0 else "")


def alert_url(case: Case, url: str) -> str:
    """The alert's own page; empty if the service has no address for people."""
    return f"{url}/alerts/{case.alert.id}" if url else ""


def runbook_of(case: Case, url: str) -> str:
    """The URL of its runbook; as the rule names it if the service has no address for people."""
    named = case.alert.facts.runbook
    return (runbook_url(named, url) if url else "") or named


def link_to(case: Case, url: str) -> str:
    """The run's page at the step; empty if the service has no address for people."""
    step = case.alert.onset_step
    return f"{url}/runs/{case.alert.run_id}?step={step}" if url else ""


def _about(case: Case, url: str) -> str:
    alert = case.alert
    runbook = runbook_of(case, url)
    ladder = ladder_in_words(alert, case.commands)
    lines = [
        readable_line(f"{alert.rule} ({alert.severity}): {alert.facts.summary}"),
        readable(case.card or alert.facts.description),
        f"Where: {_where(case)}",
        f"Since: step {count(alert.onset_step)} ({_shown(rfc3339(alert.onset_at))})",
        f"Again: {count(case.times)} times by now, at most {AGAIN_STEPS} steps apart"
        if case.times > 1
        else "",
        readable_line(f"Worst: {worst_about(case)}") if worst_about(case) else "",
        f"Done: {done_about(case.commands)}",
        f"Ladder: {ladder}" if ladder else "",
        _standing(case),
        f"Alert: {alert_url(case, url) or f'runwatch alerts --run {alert.run_id}'}",
        f"Run: {link_to(case, url)}" if url else "",
        f"Runbook: {runbook}" if runbook else "",
    ]
    return "\n".join(line for line in lines if line)


def _where(case: Case) -> str:
    alert = case.alert
    place = f"run {case.run_name} ({alert.run_id}), attempt {alert.attempt}, rank {alert.rank}"
    if alert.facts.first_layer is not None:
        place += f", first in {alert.facts.first_layer}; failing: {layers_about(case)}"
    return readable_line(place)


def _standing(case: Case) -> str:
    alert = case.alert
    if case.is_reported_over:
        recovery = "" if alert.recovery is None else f", {alert.recovery.replace('_', ' ')}"
        at = "" if case.resolved_at is None else f" ({_shown(rfc3339(case.resolved_at))})"
        if alert.resolution is Resolution.SETTLED_WORSE:
            step = count(alert.resolved_step)
            outcome = readable_line(alert.facts.outcome)
            return f"State: not recovered: {outcome}, at step {step}{at}"
        if not did_all_recover([case]):
            step, why = count(alert.resolved_step), _CLOSED[alert.resolution]
            return f"State: closed at step {step}{at}, {why}"
        return f"State: resolved at step {count(alert.last_step)}{at}{recovery}"
    if case.settles_step is not None:
        over, told = count(alert.resolved_step), count(case.settles_step)
        return f"State: over since step {over}; told as resolved if nothing comes until step {told}"
    acked = "" if alert.acked_by is None else f", acknowledged by {alert.acked_by}"
    return f"State: {alert.state} at step {count(alert.last_step)}{acked}"


def _calling_nobody(text: str) -> str:
    """The text as people read it, in which no chat finds a mention or a link of the form <...>."""
    return _MENTION.sub(lambda found: found[0] + _ZERO_WIDTH_SPACE, text)


def _shown(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _enumerated(names: Sequence[str], most: int) -> str:
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")
