"""A rule, as it is once its document has been read and found good."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cached_property
from typing import Final

import msgspec

from runwatch.alerts import AT_ONCE, Span
from runwatch.commands import AnyAction
from runwatch.ladders import Rung
from runwatch.rules.diagnosis import Diagnosis
from runwatch.rules.expressions import Truth
from runwatch.rules.templates import EMPTY, Template
from runwatch.vocabulary import Phase, Scope, Severity

_TEXTS: Final = ("annotations", "diagnosis")
"""The parts of a rule's document that are there for people alone."""


class Baseline(StrEnum):
    """Which samples enter the windows of a rule."""

    ALL = "all"
    CLEAN = "clean"
    """Those at which the rule itself was not failing: a spike must not hide the next one."""


@dataclass(frozen=True, slots=True)
class Absence:
    """When the lack of steps is a failure."""

    timeout_s: float
    """The shortest silence that counts."""
    times_median: float = 0.0
    """Silence must also last this many median step times, so that slow steps do not alarm."""
    times_longest: float = 0.0
    """And this many times the longest pause that the run has come back from by itself; in a
    phase, the longest that it has lasted."""
    once_known: bool = False
    """Nothing is said before the run's pace is known: a run that starts may take its time."""
    phase_factors: Mapping[Phase, float] = field(default_factory=dict[Phase, float])
    """The limit is multiplied by this in a phase that takes its time; 0: never in this phase."""
    by_phase: bool = False
    """A phase that has ended before is judged by how long it lasted then, without a factor."""


@dataclass(frozen=True, slots=True)
class Inhibition:
    """Which rules explain an alert, so that nobody need be told of it beside theirs."""

    rules: tuple[str, ...]
    within_steps: int = 64
    """Around the time for which theirs stands: what spreads through a network takes some steps."""
    scope: Scope = Scope.RUN
    """`layer`: only where every layer that the alert names fails by their account too."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One rule. Exactly one of `when` and `absence` is set, but for those of IN_CODE, which
    have neither: they are defined in code, so that no document can weaken them."""

    name: str
    scope: Scope = Scope.RUN
    when: Truth | None = None
    absence: Absence | None = None
    text: str = ""
    """The expression as it was written."""
    min_history: int | None = None
    """Finite samples that a window needs before it says anything; None: half of the window."""
    for_: Span = AT_ONCE
    keep_firing_for: Span = AT_ONCE
    keep_doublings: int = 0
    """How often `keep_firing_for` is doubled, once for each time that the condition came back, so
    that what comes and goes is one alert. Only rules of IN_CODE have any."""
    severity: Severity = Severity.WARNING
    labels: Mapping[str, str] = field(default_factory=dict[str, str])
    summary: Template = EMPTY
    description: Template = EMPTY
    runbook: str = ""
    diagnosis: Diagnosis = field(default_factory=Diagnosis)
    actions: tuple[AnyAction, ...] = ()
    """Asked for at once when it fires."""
    ladder: tuple[Rung, ...] = ()
    """Asked for one after another, each when the run did not recover after the one before."""
    every: str | None = None
    """Judged only at rows that recorded this metric."""
    baseline: Baseline = Baseline.ALL
    relearn_after: int = 0
    """With a clean baseline: failing samples in a row after which they enter the windows, as a
    new level that will last; 0: never."""
    inhibited_by: tuple[Inhibition, ...] = ()
    shadow: bool = False
    """Judged, kept and shown, but nobody is told and nothing is done: a rule on trial."""
    group: str = ""
    document: Mapping[str, object] = field(default_factory=dict[str, object])
    """The rule as a normalised document."""

    @cached_property
    def hash(self) -> str:
        """SHA-256, in hex, of the canonical JSON of the document."""
        return hashlib.sha256(msgspec.json.encode(self.document, order="sorted")).hexdigest()

    @cached_property
    def verdict_hash(self) -> str:
        """The same of what decides when it fires and what is done then: without its texts, which
        a new version of the service may word in another way."""
        kept = {key: part for key, part in self.document.items() if key not in _TEXTS}
        return hashlib.sha256(msgspec.json.encode(kept, order="sorted")).hexdigest()

    @property
    def annotations(self) -> dict[str, str]:
        """As they were written, placeholders and all."""
        written = {
            "summary": self.summary.text,
            "description": self.description.text,
            "runbook": self.runbook,
        }
        return {name: text for name, text in written.items() if text}
