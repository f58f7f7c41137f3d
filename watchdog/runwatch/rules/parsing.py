"""A rule's text into its typed tree: of Python's expressions, what is on a white list.

What is on the list becomes a node of ours, and all the rest a fault with its column. Nothing is
ever evaluated.
"""

import ast
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final, cast

from runwatch.errors import Fault
from runwatch.rules import expressions as tree
from runwatch.rules.functions import FUNCTIONS, Function, Kind, Parameter
from runwatch.rules.limits import MAX_WINDOW, MAX_WINDOWS_PER_RULE
from runwatch.rules.names import is_metric, nearest
from runwatch.rules.syntax import TextError, column_of, parse_text, words_for
from runwatch.series import METRICS, STATS
from runwatch.vocabulary import Scope

_ARITHMETIC: Final[Mapping[type[ast.operator], tree.ArithmeticOperator]] = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/",
}  # fmt: skip
_COMPARISONS: Final[Mapping[type[ast.cmpop], tree.ComparisonOperator]] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
}  # fmt: skip

_NO_NAMES: Final[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a text became; `condition` is None exactly where there are faults."""

    condition: tree.Truth | None
    faults: tuple[Fault, ...]


def parse_condition(
    text: str, *, place: str, scope: Scope, announced: frozenset[str] = frozenset()
) -> Parsed:
    """The condition in a text, or all that is wrong with it.

    `announced` are the names of the user's own metrics.
    """
    reader = _Reader(place=place, scope=scope, announced=announced)
    condition = reader.read(text)
    if reader.faults:
        return Parsed(None, tuple(reader.faults))
    assert condition is not None
    return Parsed(condition, ())


class _Unreadable(Exception):
    """This part of the text has a fault, which is noted."""


class _Reader:
    """One text on its way to a tree. Goes on after a fault, to find the others too."""

    def __init__(self, *, place: str, scope: Scope, announced: frozenset[str]) -> None:
        self.faults: list[Fault] = []
        self._place = place
        self._scope = scope
        self._announced = announced
        self._per_layer = scope is Scope.LAYER
        self._reads_layers = False
        self._windows: set[tree.Window] = set()

    def read(self, text: str) -> tree.Truth | None:
        try:
            root = parse_text(text)
        except TextError as error:
            self._note(error.column, str(error))
            return None
        try:
            condition = self._truth(root)
        except _Unreadable:
            return None
        if not tree.series_read(condition):
            self._note(1, "found no series, wanted a condition on at least one")
        elif self._scope is Scope.LAYER and not self._reads_layers:
            wanted = f"wanted one of {', '.join(sorted(STATS))}"
            self._note(1, f"found nothing that differs between layers in a layer rule, {wanted}")
        return condition

    def _note(self, column: int, message: str) -> None:
        self.faults.append(Fault(self._place, message, column))

    def _fail(self, node: ast.AST, message: str) -> _Unreadable:
        self._note(column_of(node), message)
        return _Unreadable()

    def _truth(self, node: ast.expr) -> tree.Truth:
        match node:
            case ast.BoolOp():
                operands = self._each([self._truth] * len(node.values), node.values)
                parts = cast(tuple[tree.Truth, ...], operands)
                return tree.Logic("and" if isinstance(node.op, ast.And) else "or", parts)
            case ast.UnaryOp(op=ast.Not()):
                return tree.Not(self._truth(node.operand))
            case ast.Compare():
                return self._comparison(node)
            case ast.Call() if _kind(node) is Kind.CHECK:
                return cast(tree.Truth, self._call(node))
            case ast.Call() if _kind(node) is None:
                raise self._unknown_function(node)
            case _:
                raise self._fail(node, f"found {words_for(node)}, wanted a condition")

    def _comparison(self, node: ast.Compare) -> tree.Comparison:
        if len(node.ops) > 1:
            message = "found a chain of comparisons, wanted one; join two with `and`"
            raise self._fail(node.comparators[0], message)
        operator = _COMPARISONS.get(type(node.ops[0]))
        if operator is None:
            found = type(node.ops[0]).__name__
            raise self._fail(node, f"found the operator {found}, wanted < <= > >= == or !=")
        return tree.Comparison(operator, *self._pair(node.left, node.comparators[0]))

    def _number(self, node: ast.expr) -> tree.Number:
        match node:
            case ast.Constant():
                return tree.Constant(self._constant(node))
            case ast.Name():
                return self._series(node)
            case ast.UnaryOp(op=ast.USub()):
                return tree.Negative(self._number(node.operand))
            case ast.UnaryOp(op=ast.UAdd()):
                return self._number(node.operand)
            case ast.BinOp():
                return self._arithmetic(node)
            case ast.Call() if _kind(node) is None:
                raise self._unknown_function(node)
            case ast.Call() if _kind(node) is not Kind.CHECK:
                return cast(tree.Number, self._call(node))
            case _:
                raise self._fail(node, f"found {words_for(node)}, wanted a number")

    def _constant(self, node: ast.Constant) -> float:
        if isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
            try:
                number = float(node.value)
            except OverflowError:
                number = math.inf
            if math.isfinite(number):
                return number
        raise self._fail(node, f"found {words_for(node)}, wanted a finite number")

    def _series(self, node: ast.Name) -> tree.Series:
        if self._per_layer and node.id in STATS:
            self._reads_layers = True
            return tree.Series(node.id)
        if is_metric(node.id, self._announced):
            return tree.Series(node.id)
        if node.id in STATS:
            message = f"found {node.id}, which each layer has, in a {self._scope} rule"
            raise self._fail(node, f"{message}; wanted `scope: layer` or max_layers({node.id})")
        known = METRICS | self._announced | (STATS if self._per_layer else _NO_NAMES)
        hint = nearest(node.id, known)
        wanted = f"wanted a known one{hint}, or its name under `metrics:`"
        raise self._fail(node, f"found the unknown series {node.id}, {wanted}")

    def _arithmetic(self, node: ast.BinOp) -> tree.Arithmetic:
        operator = _ARITHMETIC.get(type(node.op))
        if operator is None:
            found = type(node.op).__name__
            raise self._fail(node, f"found the operator {found}, wanted + - * or /")
        return tree.Arithmetic(operator, *self._pair(node.left, node.right))

    def _unknown_function(self, node: ast.Call) -> _Unreadable:
        if not isinstance(node.func, ast.Name):
            return self._fail(node, f"found a call of {words_for(node.func)}, wanted a function")
        hint = nearest(node.func.id, FUNCTIONS)
        wanted = (
            f"wanted one of {', '.join(FUNCTIONS)}" if not hint else f"wanted a known one{hint}"
        )
        return self._fail(node, f"found the unknown function {node.func.id}, {wanted}")

    def _call(self, node: ast.Call) -> tree.Expression:
        name = cast(ast.Name, node.func).id
        function = FUNCTIONS[name]
        self._check_arguments(node, name, function)
        if function.kind is Kind.ACROSS:
            return self._across_layers(node, name)
        readers = [self._reader_of(parameter, function) for parameter in function.parameters]
        arguments = self._each(readers, node.args)
        return self._build(node, name, function, arguments)

    def _check_arguments(self, node: ast.Call, name: str, function: Function) -> None:
        if node.keywords:
            raise self._fail(node.keywords[0], "found a named argument, wanted plain ones")
        least, most = function.num_required, len(function.parameters)
        if not least <= len(node.args) <= most:
            wanted = ", ".join(parameter.value for parameter in function.parameters)
            message = f"found {len(node.args)} arguments of {name}, wanted {most}: {wanted}"
            raise self._fail(node, message)

    def _reader_of(
        self, parameter: Parameter, function: Function
    ) -> "Callable[[ast.expr], tree.Expression]":
        match parameter:
            case Parameter.TRUTH:
                return self._truth
            case Parameter.SHARE:
                return self._share
            case Parameter.SIZE | Parameter.LAG:
                return lambda node: self._size(node, function.smallest)
            case Parameter.NUMBER | Parameter.LAYERS:
                return self._number

    def _share(self, node: ast.expr) -> tree.Constant:
        number = self._constant(node) if isinstance(node, ast.Constant) else math.nan
        if not 0.0 <= number <= 1.0:
            raise self._fail(node, f"found {words_for(node)}, wanted {Parameter.SHARE.value}")
        return tree.Constant(number)

    def _size(self, node: ast.expr, smallest: int) -> tree.Constant:
        number = node.value if isinstance(node, ast.Constant) else None
        if type(number) is not int or not smallest <= number <= MAX_WINDOW:
            wanted = f"wanted a whole constant, {smallest} to {MAX_WINDOW}"
            raise self._fail(node, f"found the window {words_for(node)}, {wanted}")
        return tree.Constant(number)

    def _across_layers(self, node: ast.Call, name: str) -> tree.AcrossLayers:
        if name == "rank_of" and not self._per_layer:
            raise self._fail(node, "found rank_of in a rule without layers, wanted `scope: layer`")
        outer_per_layer, outer_reads = self._per_layer, self._reads_layers
        self._per_layer, self._reads_layers = True, False
        try:
            operand = self._number(node.args[0])
            if not self._reads_layers:
                raise self._fail(node.args[0], f"found no stat of a layer in {name}, wanted one")
        finally:
            self._per_layer = outer_per_layer
            self._reads_layers = outer_reads or name == "rank_of"
        return tree.AcrossLayers(cast(tree.AcrossFunction, name), operand)

    def _build(
        self, node: ast.Call, name: str, function: Function, arguments: tuple[tree.Expression, ...]
    ) -> tree.Expression:
        """The node of a call; `arguments` are what the function's parameters ask for."""
        match function.kind:
            case Kind.CHOICE:
                return tree.Choice(*cast(tuple[tree.Truth, tree.Number, tree.Number], arguments))
            case Kind.CHECK:
                (operand,) = cast(tuple[tree.Number], arguments)
                return tree.Check(cast(tree.CheckFunction, name), operand)
            case Kind.ELEMENTWISE:
                (operand,) = cast(tuple[tree.Number], arguments)
                return tree.Elementwise(cast(tree.ElementwiseFunction, name), operand)
            case Kind.DIFFERENCE:
                operand = cast(tree.Number, arguments[0])
                return tree.Arithmetic("-", operand, self._windowed(node, "prev", arguments))
            case _:
                return self._windowed(node, name, arguments)

    def _windowed(
        self, node: ast.Call, name: str, arguments: tuple[tree.Expression, ...]
    ) -> tree.Windowed:
        operand, *rest = arguments
        constants = [part.number for part in rest if isinstance(part, tree.Constant)]
        size = int(constants[-1]) if constants else 1
        parameter = constants[0] if name == "quantile" else 0.0
        windowed = tree.Windowed(name, operand, size, parameter)
        window = tree.window_of(windowed)
        if window not in self._windows and len(self._windows) == MAX_WINDOWS_PER_RULE:
            message = "found one window too many, wanted at most"
            raise self._fail(node, f"{message} {MAX_WINDOWS_PER_RULE} different ones in a rule")
        self._windows.add(window)
        return windowed

    def _pair(self, left: ast.expr, right: ast.expr) -> tuple[tree.Number, tree.Number]:
        sides = self._each([self._number] * 2, [left, right])
        return cast(tuple[tree.Number, tree.Number], sides)

    def _each(
        self, readers: "list[Callable[[ast.expr], tree.Expression]]", nodes: list[ast.expr]
    ) -> tuple[tree.Expression, ...]:
        """All parts read, each by its reader; fails only once all faults are noted."""
        found: list[tree.Expression] = []
        for read, node in zip(readers, nodes, strict=False):
            try:
                found.append(read(node))
            except _Unreadable:
                continue
        if len(found) < len(nodes):
            raise _Unreadable
        return tuple(found)


def _kind(node: ast.Call) -> Kind | None:
    function = FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    return None if function is None else function.kind
