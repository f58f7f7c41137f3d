"""Rules: parsed, checked, and judged over series, alike over live and over stored data."""

from runwatch.rules.absence import Liveness, judge_absence
from runwatch.rules.evaluator import Evaluator
from runwatch.rules.loading import load_rules
from runwatch.rules.nonfinite_rule import IN_CODE, IN_CODE_NAMES, NON_FINITE
from runwatch.rules.observations import Rows
from runwatch.rules.rule import Absence, Baseline, Rule
from runwatch.rules.saving import with_hashes
from runwatch.rules.transitions import Transition

__all__ = [
    "IN_CODE",
    "IN_CODE_NAMES",
    "NON_FINITE",
    "Absence",
    "Baseline",
    "Evaluator",
    "Liveness",
    "Rows",
    "Rule",
    "Transition",
    "judge_absence",
    "load_rules",
    "with_hashes",
]
