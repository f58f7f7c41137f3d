"""The judges of the rules that are defined in code."""

from collections.abc import Sequence

from runwatch.rules.block import Block
from runwatch.rules.evaluation import Laid
from runwatch.rules.following import Found, RowReading, RowValues, Verdicts, follow
from runwatch.rules.nonfinite_origin import Origin, origin_of, origin_of_evaluation
from runwatch.rules.nonfinite_rule import (
    NON_FINITE,
    RUN_COLUMN,
    judge_evaluations,
    judge_non_finite,
)
from runwatch.rules.reporting import excess
from runwatch.rules.rule import Rule
from runwatch.rules.single_row import SingleRow
from runwatch.rules.standing import Standing
from runwatch.rules.window_keys import Histories, WindowKey


class NonFiniteJudge:
    """NON_FINITE or NON_FINITE_EVALUATION, and how it stands."""

    def __init__(self, rule: Rule, columns: tuple[str, ...]) -> None:
        self.rule = rule
        self.standing = Standing(rule, self.columns_of(columns))

    def columns_of(self, layers: tuple[str, ...]) -> tuple[str, ...]:
        return (RUN_COLUMN, *layers) if self._is_of_training else (RUN_COLUMN,)

    def window_keys(self) -> set[WindowKey]:
        return set()

    def judge(
        self, block: Block, histories: Histories, laid: Laid, singly: Sequence[SingleRow]
    ) -> Found:
        judge = judge_non_finite if self._is_of_training else judge_evaluations
        failing_TC, known_TC, shown_TC = judge(block)

        def read_values() -> RowValues:
            return RowValues(shown_TC, excess(None, shown_TC, shown_TC), failing_TC)

        def origin_of_row(row: int, first_layer: str | None) -> Origin | None:
            if self._is_of_training:
                return origin_of(block, row, first_layer)
            return origin_of_evaluation(block, row)

        reading = RowReading(read_values, backward=True, origin_of_row=origin_of_row)
        return follow(self.standing, Verdicts(0, failing_TC, known_TC), reading, block)

    @property
    def _is_of_training(self) -> bool:
        return self.rule.name == NON_FINITE.name
