"""An alert's diagnosis card: onset, first anomalies, likely causes, what to try, what was tried."""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from runwatch.nonfinite import JsonNumber, to_json
from runwatch.rules.diagnosis import Cause, rank
from runwatch.stalls import StalledRank
from runwatch.terminal_text import readable_line
from runwatch_server.alerts.actions.rungs import RungView, rungs_of
from runwatch_server.alerts.diagnosis.findings import Findings
from runwatch_server.alerts.diagnosis.run_words import words_of_command
from runwatch_server.alerts.records import AlertRecord
from runwatch_server.clock import rfc3339
from runwatch_server.commands.records import CommandRecord

_SHORT_ORDER = 3
_PROPOSED = "proposed"


class OnsetView(msgspec.Struct, frozen=True):
    step: int
    at: datetime
    """By the trainer's clock."""
    attempt: int
    rank: int
    host: str | None
    """The name of the rank's host; null if it is unknown."""
    layer: str | None
    """The first layer that failed; null if unknown, or if the rule does not look at layers."""


class OrderView(msgspec.Struct, frozen=True):
    step: int
    series: str
    layer: str | None
    value: JsonNumber
    words: str


class ChangeView(msgspec.Struct, frozen=True):
    step: int | None
    kind: str
    words: str


class CauseView(msgspec.Struct, frozen=True):
    cause: str
    score: int
    """Number of signs found that support it."""
    evidence: tuple[str, ...]


class SimilarView(msgspec.Struct, frozen=True):
    id: str
    run_id: str
    rule: str
    onset_step: int
    resolution: str | None
    recovery: str | None
    tried: tuple[str, ...]


class StalledView(msgspec.Struct, frozen=True):
    rank: int
    host: str | None
    step: int
    """The step that ended last on this rank."""
    stage: str
    """`data`, `forward`, `backward`, `optimizer`, `collective`, `device`, `saving`, `hook` or
    `program`."""
    place: str
    """The innermost line of the program's own code."""
    stack: tuple[str, ...]
    """The innermost lines of the training thread's stack, the innermost first."""
    held: str | None
    """What the operating system kept from going on: `on_disk` (the thread), `child_on_disk` or
    `child_stopped`; null if nothing is known to be."""
    stalled_s: float
    """For how long it had stood there when it told so."""
    is_apart: bool
    """Whether it stands elsewhere than the others, which seem to wait for it."""
    words: str


class TriedView(msgspec.Struct, frozen=True):
    id: str
    kind: str
    state: str
    step: int | None
    words: str


class DiagnosisView(msgspec.Struct, frozen=True, kw_only=True):
    """The diagnosis card."""

    onset: OnsetView
    order: list[OrderView]
    """Series that left their usual range around the onset, in the order in which they did."""
    changed_before: list[ChangeView]
    stalled: list[StalledView]
    """Where the ranks stood when a rule about missing steps fired, those apart first; of many ranks
    one for each place."""
    causes: list[CauseView]
    """Likely causes, those with the most evidence first; equal ones in the rule's order."""
    try_first: str
    worked_if: str
    bundles: list[str]
    """Paths, on the trainer's machine, of diagnostic bundles for `runwatch replay`."""
    similar: list[SimilarView]
    """Earlier alerts of the same rule in the project, and what was tried then."""
    proposed: TriedView | None
    """Proposals that wait for a person."""
    tried: list[TriedView]
    ladder: list[RungView]
    """The actions that the rule asks for, one after another, while the run does not recover."""
    recovery: str | None
    short: str
    """The card in a few lines, as messages show it."""


def card_of(
    alert: AlertRecord,
    findings: Findings,
    commands: Sequence[CommandRecord],
    similar: Sequence[SimilarView],
) -> DiagnosisView:
    waiting = [one for one in commands if one.state == _PROPOSED]
    return DiagnosisView(
        onset=OnsetView(
            step=alert.onset_step,
            at=rfc3339(alert.onset_at),
            attempt=alert.attempt,
            rank=alert.rank,
            host=findings.host,
            layer=alert.facts.first_layer,
        ),
        order=[
            OrderView(
                step=one.departure.step,
                series=one.series,
                layer=one.layer,
                value=to_json(one.departure.value),
                words=one.words,
            )
            for one in findings.order
        ],
        changed_before=[ChangeView(one.step, one.kind, one.words) for one in findings.changed],
        stalled=[_stalled(one) for one in alert.facts.stalled],
        causes=ranked_causes(alert, findings),
        try_first=alert.facts.try_first,
        worked_if=alert.facts.worked_if,
        bundles=list(findings.bundles),
        similar=list(similar),
        proposed=_tried(waiting[0]) if waiting else None,
        tried=[_tried(one) for one in reversed(commands) if one.state != _PROPOSED],
        ladder=rungs_of(alert, commands),
        recovery=alert.recovery,
        short=short_of(alert, findings),
    )


def ranked_causes(alert: AlertRecord, findings: Findings) -> list[CauseView]:
    causes = tuple(Cause(one.cause, one.signs) for one in alert.facts.causes)
    return [
        CauseView(one.text, len(one.evidence), one.evidence)
        for one in rank(causes, dict(findings.signs))
    ]


def short_of(alert: AlertRecord, findings: Findings) -> str:
    """A few lines: the host, first anomalies, changes before, the likeliest cause, what to try."""
    order = "; ".join(one.words for one in findings.order[:_SHORT_ORDER])
    changed = "; ".join(one.words for one in findings.changed[-_SHORT_ORDER:])
    causes = ranked_causes(alert, findings)
    likely = ""
    if causes:
        evidence = f" ({'; '.join(causes[0].evidence)})" if causes[0].evidence else ""
        likely = causes[0].cause + evidence
    replay = "; ".join(f"runwatch replay {path}" for path in findings.bundles)
    lines = [  # what trainers name begins none of its own; a rule's author may want several
        ("Host", readable_line(_hosts(alert, findings))),
        ("First", readable_line(order)),
        ("Before", readable_line(changed)),
        ("Likely", readable_line(likely)),
        ("Try", alert.facts.try_first),
        ("Replay", readable_line(replay)),
    ]
    return "\n".join(f"{name}: {text}" for name, text in lines if text)


def _hosts(alert: AlertRecord, findings: Findings) -> str:
    """Where to look: at the ranks that hold up the others, if there are any."""
    apart = [one.host for one in alert.facts.stalled if one.is_apart and one.host is not None]
    return ", ".join(dict.fromkeys(apart)) or findings.host or ""


def similar_of(alert: AlertRecord, commands: Sequence[CommandRecord]) -> SimilarView:
    return SimilarView(
        id=alert.id,
        run_id=alert.run_id,
        rule=alert.rule,
        onset_step=alert.onset_step,
        resolution=alert.resolution,
        recovery=alert.recovery,
        tried=tuple(words_of_command(one) for one in reversed(commands)),
    )


def _stalled(one: StalledRank) -> StalledView:
    return StalledView(
        rank=one.rank,
        host=one.host,
        step=one.step,
        stage=one.stall.stage,
        place=one.stall.place,
        stack=one.stall.stack,
        held=one.stall.held,
        stalled_s=one.stall.stalled_s,
        is_apart=one.is_apart,
        words=one.stall.words,
    )


def _tried(command: CommandRecord) -> TriedView:
    return TriedView(
        id=command.id,
        kind=command.kind,
        state=command.state,
        step=command.ended_step,
        words=words_of_command(command),
    )
