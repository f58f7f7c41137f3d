"""The one rule that nobody can remove: a loss, gradient or parameter that is not finite."""

from typing import Final

from runwatch.alerts import Span
from runwatch.commands import Rollback
from runwatch.rules.rule import Rule
from runwatch.rules.templates import Template
from runwatch.vocabulary import Scope, Severity

NON_FINITE: Final = Rule(
    name="NonFinite",
    scope=Scope.LAYER,
    text="not isfinite(loss) or nonfinite > 0",
    keep_firing_for=Span(steps=20),
    severity=Severity.CRITICAL,
    summary=Template("not finite since step {onset_step}: {first_layer}"),
    runbook="docs/runbooks/non-finite.md",
    actions=(Rollback(),),
    document={"builtin": "NonFinite", "version": 1},
)
