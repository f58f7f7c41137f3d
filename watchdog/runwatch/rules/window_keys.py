"""Which window a rule reads: rules that need the same samples share them.

A key is made once for each place in a rule, and equal ones become one object: a step looks up
dozens of them, and must neither build nor compare trees for it.
"""

from dataclasses import dataclass
from threading import Lock
from typing import Final
from weakref import WeakValueDictionary

from runwatch.rules import expressions as tree
from runwatch.rules.block import Level
from runwatch.rules.functions import FUNCTIONS
from runwatch.rules.sampling import must_be_awaited
from runwatch.rules.windows import History
from runwatch.series import FOLLOWING_OBJECTIVES, STATS


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class WindowKey:
    """Which window. Two keys are equal only if they are the same object (see `Reader`)."""

    level: Level
    operand: tree.Expression
    size: int
    owner: str
    """The rule whose failing samples stay out; empty where all samples enter."""
    is_clean: bool
    is_opening: bool
    """It takes the first samples of the attempt, and no more once it is full."""
    is_awaiting: bool
    """A row that recorded none of the operand's series brings no sample, though it is known there
    (see `sampling`)."""
    is_of_objective: bool
    """What it holds is told by the loss, and is worth nothing once the loss means another thing."""
    text: str
    """Names the window in a saved state: the same for windows that are the same, only."""

    def new_history(self, num_columns: int) -> History:
        """A window without samples. A layer's stat comes as a float32, and a verdict on a layer is
        0 or 1: both are kept as float32."""
        is_stat = isinstance(self.operand, tree.Series) and self.operand.name in STATS
        is_verdict = not isinstance(self.operand, tree.Number)
        is_narrow = self.level is Level.LAYER and (is_stat or is_verdict)
        return History(self.size, num_columns, is_narrow=is_narrow)


_in_use: Final[WeakValueDictionary[str, WindowKey]] = WeakValueDictionary()
"""The windows of all rules, by their texts."""
_making: Final = Lock()

Histories = dict[WindowKey, History]


def forget_objective(histories: Histories) -> None:
    """Let all windows over losses and gradients begin anew (see `objectives`)."""
    for key in [key for key in histories if key.is_of_objective]:
        del histories[key]


def reads_layers(node: tree.Expression) -> bool:
    """Whether a number is another in each layer: else one window serves all layers of a rule."""
    return any(
        isinstance(part, tree.AcrossLayers)
        or (isinstance(part, tree.Series) and part.name in STATS)
        for part in tree.walk(node)
    )


class Reader:
    """How one rule reads: what its windows hold, and from when on they speak."""

    def __init__(self, min_history: int | None, owner: str) -> None:
        """`owner` is the rule's name where its baseline is clean, or else empty."""
        self._min_history = min_history
        self._owner = owner
        self._known: dict[tuple[int, Level], tuple[WindowKey, tree.Windowed]] = {}
        """By the node's identity; the node is held with its key, so that no other can take it."""
        self._of_run: dict[int, tuple[bool, tree.Truth]] = {}
        """Likewise."""

    def key(self, level: Level, node: tree.Windowed) -> WindowKey:
        known = self._known.get((id(node), level))
        if known is None:
            known = self._known[id(node), level] = self._key(level, node), node
        return known[0]

    def is_of_run(self, node: tree.Truth) -> bool:
        """Whether a condition is the same in all layers of a row."""
        known = self._of_run.get(id(node))
        if known is None:
            known = self._of_run[id(node)] = not reads_layers(node), node
        return known[0]

    def num_needed(self, node: tree.Windowed) -> int:
        """Samples without which a window says nothing."""
        if node.function == "count":
            return 0
        if node.function in ("prev", "last", "age", "first"):
            return node.size
        asked = (node.size + 1) // 2 if self._min_history is None else self._min_history
        return min(node.size, max(FUNCTIONS[node.function].smallest, asked))

    def _key(self, level: Level, node: tree.Windowed) -> WindowKey:
        if not reads_layers(node.operand):
            level = Level.RUN
        is_clean = bool(self._owner) and node.function in tree.BASELINE_FUNCTIONS
        is_private = is_clean or (bool(self._owner) and tree.has_baseline(node.operand))
        owner = self._owner if is_private else ""
        is_opening = tree.window_of(node).is_opening
        # The values of an operand that has windows itself depend on the rule's min_history.
        min_history = self._min_history if tree.windows_of(node.operand) else None
        operand = tree.render(node.operand)
        parts = (level.value, node.size, min_history, owner, is_clean, is_opening, operand)
        text = "|".join(map(str, parts))
        fresh = WindowKey(
            level=level,
            operand=node.operand,
            size=node.size,
            owner=owner,
            is_clean=is_clean,
            is_opening=is_opening,
            is_awaiting=must_be_awaited(node.operand),
            is_of_objective=not FOLLOWING_OBJECTIVES.isdisjoint(tree.series_read(node.operand)),
            text=text,
        )
        with _making:
            return _in_use.setdefault(text, fresh)
