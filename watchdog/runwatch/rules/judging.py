"""One rule over a block of rows: its verdicts, and the changes that they make.

A rule with a clean baseline decides by its own verdicts what enters its windows, row by row. It is
judged as if nothing failed, over as many rows as that has held for lately; at the first failing row
the rest is put back, and judged again without that row's failing samples. So a healthy run is
judged a block at a time, and a failing one still gets the verdicts of one row after the other.

Legend: T rows, R rows of a stretch, C columns (layers, or one for the run).
"""

from collections.abc import Sequence
from functools import reduce

import numpy as np

from runwatch.rules.block import Block
from runwatch.rules.condition import OfOneRow, condition_of
from runwatch.rules.evaluation import Evaluation, Laid
from runwatch.rules.following import Found, RowReading, RowValues, Verdicts, follow
from runwatch.rules.nonfinite_rule import RUN_COLUMN
from runwatch.rules.reporting import excess
from runwatch.rules.rule import Rule
from runwatch.rules.single_row import LAID_ALONE, SingleRow, lay_rows
from runwatch.rules.standing import Standing
from runwatch.rules.window_keys import Histories, WindowKey
from runwatch.rules.windows import Bools
from runwatch.vocabulary import Scope


def _of_one(row: SingleRow, failing: bool | None) -> Verdicts:
    """The verdict on one row of the run; None is unknown."""
    return Verdicts(row.place, np.array([[failing is True]]), np.array([[failing is not None]]))


class ConditionJudge:
    """A rule with a condition, and how it stands."""

    def __init__(self, rule: Rule, columns: tuple[str, ...]) -> None:
        self.rule = rule
        self.standing = Standing(rule, self.columns_of(columns))
        self._condition = condition_of(rule)

    def columns_of(self, layers: tuple[str, ...]) -> tuple[str, ...]:
        return layers if self.rule.scope is Scope.LAYER else (RUN_COLUMN,)

    def window_keys(self) -> set[WindowKey]:
        """The windows that the rule needs."""
        return self._condition.window_keys()

    def judge(
        self, block: Block, histories: Histories, laid: Laid, singly: Sequence[SingleRow]
    ) -> Found:
        """`singly` are the rows of a short block, none of a longer one."""
        if self.standing.is_quiet and not self._concerns(block):
            return []
        one = self._condition.of_one_row
        if one is not None and (len(singly) == 1 or (singly and not one.looks_across)):
            return self._judge_singly(one, singly, block, laid)
        found: Found = []
        triggered_T = self._triggered(block)
        start, width = 0, block.num_rows
        while start < block.num_rows:
            rows = range(start, min(block.num_rows, start + width))
            reading = Evaluation(block, self._condition.reader, histories, laid, rows)
            verdicts = self._verdicts(reading, triggered_T, rows)
            fails = bool(verdicts.failing_RC.any())
            start += len(verdicts.failing_RC)
            width = 1 if fails else 2 * width
            if fails or not self.standing.is_quiet:
                found.extend(follow(self.standing, verdicts, self._reading(reading), block))
            self._keep(reading, verdicts, histories, fails=fails)
        return found

    def _judge_singly(
        self, one: OfOneRow, rows: Sequence[SingleRow], block: Block, laid: Laid
    ) -> Found:
        for key, sample in one.shared:
            if key not in laid:
                lay_rows(rows, key, sample)
                laid[key] = LAID_ALONE
        found: Found = []
        for row in rows:
            found += self._judge_one(one, row, block, laid)
        return found

    def _judge_one(self, one: OfOneRow, row: SingleRow, block: Block, laid: Laid) -> Found:
        private: Laid = {}
        for key, sample in one.private:
            row.lay(key, sample(row))
            private[key] = LAID_ALONE
        failing = one.verdict(row) if self._is_triggered(row, block) else None
        found: Found = []
        if failing or not self.standing.is_quiet:
            rows = range(row.place, row.place + 1)
            reading = Evaluation(block, self._condition.reader, row.histories, laid, rows, private)
            found = follow(self.standing, _of_one(row, failing), self._reading(reading), block)
        if self._condition.is_clean:
            self._keep_one(row, failing, private)
        return found

    def _keep_one(self, row: SingleRow, failing: bool | None, private: Laid) -> None:
        """`_keep` for one row."""
        if failing or self.standing.has_streaks:
            verdicts = _of_one(row, failing)
            self.standing.count_streaks(verdicts.failing_RC, verdicts.known_RC)
        stays_out = failing is True
        if stays_out and self.rule.relearn_after:
            stays_out = bool(self.standing.streaks_L[0] <= self.rule.relearn_after)
        for key in private:
            if stays_out and key.is_clean:
                row.lay(key, None)
            row.histories[key].keep()

    def _is_triggered(self, row: SingleRow, block: Block) -> bool:
        """The same as `_triggered`, of one row."""
        names = self._condition.series if self.rule.every is None else (self.rule.every,)
        if not names or any(row.read(name) is not None for name in names):
            return True
        stats = block.rows.stat_columns
        return any(name in stats and bool(block.records(name)[row.place]) for name in names)

    def _concerns(self, block: Block) -> bool:
        """Whether the block has a column of any series that the rule reads. Where it has none, no
        verdict is known and no sample enters a window: most runs lack the metrics of some rules,
        which would cost as much as the others. (A window over the steps alone takes every row.)
        """
        if self._condition.has_window_of_all_rows:
            return True
        return not self._condition.series or not self._condition.series.isdisjoint(block.names)

    def _triggered(self, block: Block) -> Bools:
        """(T,) the rows that recorded what a verdict needs: a rule is not judged twice because
        a row came that tells it nothing."""
        if self.rule.every is not None:
            return block.records(self.rule.every)
        recorded = [block.records(name) for name in self._condition.series]
        return reduce(np.logical_or, recorded) if recorded else np.ones(block.num_rows, np.bool_)

    def _verdicts(self, reading: Evaluation, triggered_T: Bools, rows: range) -> Verdicts:
        for level, node in self._condition.windows:
            reading.lay(level, node)
        truths = reading.truths(self._condition.when, reading.grid(self._condition.level))
        shape_RC = (len(rows), len(self.standing.columns))
        known_RC = truths.known.reshape(shape_RC) & triggered_T[rows.start : rows.stop, np.newaxis]
        verdicts = Verdicts(rows.start, truths.values.reshape(shape_RC) & known_RC, known_RC)
        if not self._condition.is_clean:
            return verdicts
        failing_rows = np.flatnonzero(verdicts.failing_RC.any(axis=1))
        return verdicts.before(int(failing_rows[0]) + 1) if failing_rows.size else verdicts

    def _reading(self, reading: Evaluation) -> RowReading:
        shape_RC = (reading.num_rows, len(self.standing.columns))
        subject, comparison = self._condition.subject, self._condition.comparison

        def read_values() -> RowValues:
            points = reading.grid(self._condition.level)
            shown = reading.numbers(subject, points)
            values = np.where(shown.known, shown.values, np.nan)
            limit = (
                values if comparison is None else reading.numbers(comparison.right, points).values
            )
            beyond = excess(comparison, values, limit)
            known = shown.known.reshape(shape_RC)
            return RowValues(values.reshape(shape_RC), beyond.reshape(shape_RC), known)

        is_low = comparison is not None and comparison.operator in ("<", "<=")
        return RowReading(
            read_values,
            self._condition.is_backward,
            downward=is_low,
            series=self._condition.series,
        )

    def _keep(
        self, reading: Evaluation, verdicts: Verdicts, histories: Histories, *, fails: bool
    ) -> None:
        """Let the stretch into the rule's own windows, but for what was failing: its last row, if
        any of it `fails`."""
        if not self._condition.is_clean:
            return
        self.standing.count_streaks(verdicts.failing_RC, verdicts.known_RC)
        if not fails:
            for key in reading.private:
                histories[key].keep()
            return
        failing_C = verdicts.failing_RC[-1]
        if self.rule.relearn_after:
            failing_C = failing_C & (self.standing.streaks_L <= self.rule.relearn_after)
        for key, samples in reading.private.items():
            kept = samples.before(len(verdicts.failing_RC))
            if key.is_clean and failing_C.any():
                stays_out = failing_C if len(failing_C) == kept.enter_TL.shape[1] else True
                kept.enter_TL[-1] &= ~np.asarray(stays_out)
            histories[key].lay(kept)
            histories[key].keep()
