"""A rule's condition made ready to be judged: once, for all runs that it is judged over.

A service holds the same rules against a thousand runs, and to read and compile them for each took
more time than the first frames of a run, and a megabyte.
"""

from dataclasses import dataclass
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from runwatch.rules import expressions as tree
from runwatch.rules.block import Level
from runwatch.rules.names import STEP, comes_from_gradients
from runwatch.rules.rule import Baseline, Rule
from runwatch.rules.sampling import series_awaited
from runwatch.rules.single_row import Compiler, Verdict, Worth, can_be_compiled
from runwatch.rules.window_keys import Reader, WindowKey
from runwatch.vocabulary import Scope


@dataclass(frozen=True, slots=True)
class OfOneRow:
    """A condition compiled for a single row, and what such a row brings to each of its windows."""

    verdict: Verdict
    shared: tuple[tuple[WindowKey, Worth], ...]
    """Inner ones first."""
    private: tuple[tuple[WindowKey, Worth], ...]
    """Of this rule alone; they may read the shared ones."""
    looks_across: bool
    """It asks what layers are in the row, which is computed in arrays."""


class Condition:
    """What judging asks of a rule with a condition, and no run changes."""

    def __init__(self, rule: Rule) -> None:
        assert rule.when is not None
        self.rule: Final = rule
        self.when: Final = rule.when
        self.is_clean: Final = rule.baseline is Baseline.CLEAN
        self.level: Final = Level.LAYER if rule.scope is Scope.LAYER else Level.RUN
        self.reader: Final = Reader(rule.min_history, rule.name if self.is_clean else "")
        self.windows: Final = windows_with_level(rule.when, self.level)
        self.series: Final = tree.series_read(rule.when) - {STEP}
        self.has_window_of_all_rows: Final = any(
            not series_awaited(node.operand) for _, node in self.windows
        )
        self.subject, self.comparison = tree.subject_of(rule.when)
        self.is_backward: Final = comes_from_gradients(self.series)
        is_of_run = self.level is Level.RUN and can_be_compiled(rule.when)
        self.of_one_row: Final = self._compile() if is_of_run else None

    def window_keys(self) -> set[WindowKey]:
        """The windows that the rule needs."""
        return {self.reader.key(level, node) for level, node in self.windows}

    def _compile(self) -> OfOneRow:
        compiler = Compiler(self.reader)
        keys = dict.fromkeys(self.reader.key(level, node) for level, node in self.windows)
        windows = {key: compiler.brought(key) for key in keys}
        return OfOneRow(
            compiler.verdict(self.when),
            shared=tuple((key, sample) for key, sample in windows.items() if not key.owner),
            private=tuple((key, sample) for key, sample in windows.items() if key.owner),
            looks_across=any(isinstance(part, tree.AcrossLayers) for part in tree.walk(self.when)),
        )


def windows_with_level(node: tree.Expression, level: Level) -> list[tuple[Level, tree.Windowed]]:
    """Every window of a tree, inner ones first, and whether it is the run's or the layers'."""
    below = Level.LAYER if isinstance(node, tree.AcrossLayers) else level
    found = [window for child in tree.children(node) for window in windows_with_level(child, below)]
    return [*found, (level, node)] if isinstance(node, tree.Windowed) else found


_in_use: Final[WeakValueDictionary[int, Condition]] = WeakValueDictionary()
"""By the rule's identity: a condition holds its rule, so no other rule can take that meanwhile."""
_making: Final = Lock()


def condition_of(rule: Rule) -> Condition:
    """The same one for as long as anybody holds it."""
    with _making:
        condition = _in_use.get(id(rule))
        if condition is None:
            condition = _in_use[id(rule)] = Condition(rule)
        return condition
