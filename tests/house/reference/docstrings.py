"""The texts that stand below the fields of a class, as its source has them."""

import ast
import inspect
import textwrap
from itertools import pairwise


def field_texts(kind: type) -> dict[str, str]:
    """By the field's name; a field without a text is left out."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(definition, ast.ClassDef)
    found: dict[str, str] = {}
    for field, text in pairwise(definition.body):
        if (
            isinstance(field, ast.AnnAssign)
            and isinstance(field.target, ast.Name)
            and isinstance(text, ast.Expr)
            and isinstance(text.value, ast.Constant)
            and isinstance(text.value.value, str)
        ):
            found[field.target.id] = one_line(text.value.value)
    return found


def one_line(text: str) -> str:
    return " ".join(text.split())


def table(heading: list[str], rows: list[list[str]]) -> str:
    """A markdown table; bars within cells are kept from ending them."""
    lines = [heading, ["---"] * len(heading), *rows]
    cells = [[cell.replace("|", "\\|") for cell in line] for line in lines]
    return "\n".join("| " + " | ".join(line) + " |" for line in cells)
