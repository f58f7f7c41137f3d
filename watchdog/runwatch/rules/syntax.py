"""A rule's text into Python's syntax tree, within limits that no text can stretch.

Length and alphabet are checked before the parser sees the text, number of parts and depth after:
then whatever walks the tree may use recursion.
"""

import ast
import re
from threading import Lock
from typing import Final

from runwatch.rules.limits import MAX_DEPTH, MAX_NODES, MAX_TEXT_CHARS

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_ \t\r\n.,+\-*/<>=!()]")
_LONGEST_NAME_SHOWN: Final = 80
_ONE_AT_A_TIME: Final = Lock()
"""CPython counts the depth of the tree that it makes in one place for all threads, and raises a
SystemError where a second one came in between, as it may while rubbish is collected (gh-106905)."""


class TextError(Exception):
    """A text that is no expression, or too big a one."""

    def __init__(self, column: int, message: str) -> None:
        super().__init__(message)
        self.column = column


def parse_text(text: str) -> ast.expr:
    """The expression in a text. Raises TextError with the column, counted from 1."""
    if len(text) > MAX_TEXT_CHARS:
        message = f"found {len(text)} characters, wanted at most {MAX_TEXT_CHARS}"
        raise TextError(MAX_TEXT_CHARS + 1, message)
    if foreign := _FOREIGN.search(text):
        wanted = "wanted names, numbers, calls, and or not, comparisons and + - * /"
        raise TextError(foreign.start() + 1, f"found {foreign.group()!r}, {wanted}")
    flat = re.sub(r"\s", " ", text)
    indent = len(flat) - len(flat.lstrip())
    try:
        with _ONE_AT_A_TIME:
            root = ast.parse(flat.lstrip(), mode="eval").body
    except SyntaxError as error:
        column = indent + (error.offset or 1)
        raise TextError(column, f"{error.msg}, wanted an expression") from error
    except (ValueError, MemoryError, RecursionError) as error:
        raise TextError(1, f"cannot be parsed ({type(error).__name__})") from error
    _check_size(root, indent)
    return root


def column_of(node: ast.AST) -> int:
    """Where a part begins, counted from 1."""
    return int(getattr(node, "col_offset", 0)) + 1


def words_for(node: ast.expr) -> str:
    """A part of the text as an error message names it; never long."""
    match node:
        case ast.Constant():
            is_huge = type(node.value) is int and abs(node.value) >= 10**20
            return "a huge number" if is_huge else repr(node.value)[:_LONGEST_NAME_SHOWN]
        case ast.Name():
            return node.id[:_LONGEST_NAME_SHOWN]
        case ast.Call(func=ast.Name(id=name)):
            return f"{name[:_LONGEST_NAME_SHOWN]}(...)"
        case ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not()):
            return "a condition"
        case ast.UnaryOp() | ast.BinOp():
            return "a calculation"
        case _:
            return f"this {type(node).__name__.lower()}"


def _check_size(root: ast.expr, indent: int) -> None:
    """Walk without recursion, for the tree may still be deeper than Python's stack; and move each
    part to the column that it has in the text."""
    num_nodes = 0
    waiting: list[tuple[ast.expr | ast.keyword, int]] = [(root, 1)]
    while waiting:
        node, depth = waiting.pop()
        node.col_offset += indent
        num_nodes += 1
        if depth > MAX_DEPTH:
            raise TextError(column_of(node), f"found a depth over the limit of {MAX_DEPTH}")
        if num_nodes > MAX_NODES:
            message = f"found a number of parts over the limit of {MAX_NODES}"
            raise TextError(column_of(node), message)
        children = [
            child
            for child in ast.iter_child_nodes(node)
            if isinstance(child, (ast.expr, ast.keyword))
        ]
        waiting.extend((child, depth + 1) for child in reversed(children))
