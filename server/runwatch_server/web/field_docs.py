"""Reads the docstrings below a class's fields from its source, for help texts and documents."""

import ast
import inspect
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise


def field_texts(kind: type) -> dict[str, str]:
    """Field name -> its docstring, inherited fields included.

    Fields without one are left out; so are all fields if the source is not available.
    """
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        found |= _texts_of_module(one.__module__).get(one.__qualname__, {})
    return found


@cache
def _texts_of_module(name: str) -> dict[str, dict[str, str]]:
    """Class name -> field texts; each module is parsed once."""
    try:
        tree = ast.parse(inspect.getsource(sys.modules[name]))
    except (OSError, TypeError, KeyError):
        return {}
    classes = (node for node in tree.body if isinstance(node, ast.ClassDef))
    return {definition.name: dict(_texts_of(definition)) for definition in classes}


def _texts_of(definition: ast.ClassDef) -> Iterator[tuple[str, str]]:
    for field, text in pairwise(definition.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            yield field.target.id, one_line(text.value.value)


def one_line(text: str) -> str:
    return " ".join(text.split())
