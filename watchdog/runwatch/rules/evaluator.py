"""The streaming evaluator: rows in, changes of alerts out."""

from collections.abc import Sequence

from runwatch.rules.observations import Rows
from runwatch.rules.rule import Rule
from runwatch.rules.transitions import Transition


class Evaluator:
    """Judges the rules over one rank's rows, in order."""

    def __init__(self, rules: Sequence[Rule]) -> None:
        self.rules = tuple(rules)

    def observe(self, rows: Rows) -> list[Transition]:
        """The changes that these rows bring, in the order of their rows, then of the rules."""
        raise NotImplementedError(rows.num_rows)

    def state(self) -> bytes:
        """All that it remembers."""
        raise NotImplementedError

    @classmethod
    def restore(cls, rules: Sequence[Rule], state: bytes) -> "Evaluator":
        """An evaluator that goes on where the saved one stopped; rules that are new or were
        changed since start cold."""
        raise NotImplementedError((rules, state))
