"""The typed tree that a rule's text becomes: all that the evaluator will ever see of it.

Two kinds of node, numbers and truths. Nodes compare by what they mean, not by where they stood
in the text, so that equal parts of different rules share their windows.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal as OneOf

ArithmeticOperator = OneOf["+", "-", "*", "/"]
ComparisonOperator = OneOf["<", "<=", ">", ">=", "==", "!="]
ElementwiseFunction = OneOf["abs", "log10"]
CheckFunction = OneOf["isnan", "isinf", "isfinite"]
AcrossFunction = OneOf["max_layers", "median_layers", "rank_of"]


@dataclass(frozen=True, slots=True)
class Constant:
    number: float


@dataclass(frozen=True, slots=True)
class Series:
    """A metric, or a stat of each layer; which of them, the scope decides."""

    name: str


@dataclass(frozen=True, slots=True)
class Negative:
    operand: "Number"


@dataclass(frozen=True, slots=True)
class Arithmetic:
    operator: ArithmeticOperator
    left: "Number"
    right: "Number"


@dataclass(frozen=True, slots=True)
class Elementwise:
    function: ElementwiseFunction
    operand: "Number"


@dataclass(frozen=True, slots=True)
class Choice:
    """`where(condition, then, otherwise)`"""

    condition: "Truth"
    then: "Number"
    otherwise: "Number"


@dataclass(frozen=True, slots=True)
class Windowed:
    """A function of the `size` samples before the current one."""

    function: str
    operand: "Number | Truth"
    size: int
    parameter: float = 0.0
    """The q of a quantile."""


@dataclass(frozen=True, slots=True)
class AcrossLayers:
    """One number of all layers; or, for `rank_of`, each layer's place among them."""

    function: AcrossFunction
    operand: "Number"


@dataclass(frozen=True, slots=True)
class Comparison:
    operator: ComparisonOperator
    left: "Number"
    right: "Number"


@dataclass(frozen=True, slots=True)
class Check:
    function: CheckFunction
    operand: "Number"


@dataclass(frozen=True, slots=True)
class Not:
    operand: "Truth"


@dataclass(frozen=True, slots=True)
class Logic:
    operator: OneOf["and", "or"]
    operands: tuple["Truth", ...]


Number = Constant | Series | Negative | Arithmetic | Elementwise | Choice | Windowed | AcrossLayers
Truth = Comparison | Check | Not | Logic
Expression = Number | Truth

BASELINE_FUNCTIONS = frozenset(
    ("median", "mean", "std", "min", "max", "quantile", "mad", "ewma", "zscore", "robust_z")
)
"""Functions that say what is normal. With `baseline: clean` their windows leave out the samples
at which the rule was failing; the other functions tell what happened, and always see it all."""


def children(node: Expression) -> tuple[Expression, ...]:
    match node:
        case Constant() | Series():
            return ()
        case Negative() | Elementwise() | AcrossLayers() | Check() | Not() | Windowed():
            return (node.operand,)
        case Arithmetic() | Comparison():
            return (node.left, node.right)
        case Choice():
            return (node.condition, node.then, node.otherwise)
        case Logic():
            return node.operands


def walk(node: Expression) -> Iterator[Expression]:
    """The node and all below it, from left to right."""
    yield node
    for child in children(node):
        yield from walk(child)


def series_read(node: Expression) -> frozenset[str]:
    return frozenset(part.name for part in walk(node) if isinstance(part, Series))


@dataclass(frozen=True, slots=True)
class Window:
    """What is kept for a function: which samples, how many, and whether the first or the last."""

    operand: Expression
    size: int
    is_opening: bool


def window_of(node: Windowed) -> Window:
    return Window(node.operand, node.size, node.function == "first")


def windows_of(node: Expression) -> frozenset[Window]:
    """The distinct windows that a tree needs."""
    return frozenset(window_of(part) for part in walk(node) if isinstance(part, Windowed))


def has_baseline(node: Expression) -> bool:
    return any(
        isinstance(part, Windowed) and part.function in BASELINE_FUNCTIONS for part in walk(node)
    )


def subject_of(node: Truth) -> "tuple[Number, Comparison | None]":
    """What a condition looks at: the left side of its first comparison, which is what an alert
    shows as its value; a condition without a comparison looks at its first check's operand."""
    for part in walk(node):
        if isinstance(part, Comparison):
            return part.left, part
    check = next(part for part in walk(node) if isinstance(part, Check))
    return check.operand, None


@dataclass(frozen=True, slots=True)
class JudgedLevel:
    """The series whose level a condition judges, before any window."""

    series: str
    is_low_worse: bool


_KEEPS_LEVEL = BASELINE_FUNCTIONS - {"std", "mad"} | {"first", "last", "prev", "slope"}
"""Functions that are the higher, the higher the level of their window."""


def judged_level(node: Truth) -> JudgedLevel | None:
    """What a condition's first comparison judges, in it or in what it counts; None if that is no
    level: a difference in size, a comparison for equality, or with the very value before."""
    _, comparison = subject_of(node)
    if comparison is None:
        return None
    if isinstance(comparison.left, Windowed) and comparison.left.function == "count":
        counted = comparison.left.operand
        return judged_level(counted) if isinstance(counted, Truth) else None
    left, right = comparison.left, comparison.right
    series = _level_of(left)
    is_lag = isinstance(right, Windowed) and right.function == "prev" and right.operand == left
    if series is None or is_lag or comparison.operator in ("==", "!="):
        return None
    return JudgedLevel(series, comparison.operator in ("<", "<="))


def _level_of(node: Number) -> str | None:
    """The series of which an expression is the higher, the higher its level."""
    match node:
        case Series():
            return node.name
        case Windowed() if node.function in _KEEPS_LEVEL and not isinstance(node.operand, Truth):
            return _level_of(node.operand)
        case Elementwise(function="log10"):
            return _level_of(node.operand)
        case Arithmetic(operator="-" | "/"):
            series = _level_of(node.left)
            is_own = series is not None and series_read(node.right) <= {series}
            return series if is_own else None
        case _:
            return None


def render(node: Expression) -> str:
    """The tree as text, fully bracketed: equal trees and no others give equal texts."""
    parts = [render(child) for child in children(node)]
    match node:
        case Constant() | Series():
            return repr(node.number) if isinstance(node, Constant) else node.name
        case Negative() | Not():
            return f"{'-' if isinstance(node, Negative) else 'not '}({parts[0]})"
        case Arithmetic() | Comparison() | Logic():
            return "(" + f" {node.operator} ".join(parts) + ")"
        case Windowed():
            parameter = f", {node.parameter!r}" if node.function == "quantile" else ""
            return f"{node.function}({parts[0]}{parameter}, {node.size})"
        case Choice():
            return f"where({', '.join(parts)})"
        case Elementwise() | Check() | AcrossLayers():
            return f"{node.function}({parts[0]})"
