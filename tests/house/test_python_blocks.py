"""The Python that the documents show uses names and arguments that there are.

Most of it are fragments around a reader's own model, which cannot be run as they stand; what they
import and what they pass is compared with the code, without importing other people's frameworks.
"""

import ast
import importlib.util
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

import pytest
from tests.house import documents
from tests.house.documents import Block

from runwatch_hooks import attach
from runwatch_hooks.plain import open_run
from runwatch_hooks.reading import RunReading
from runwatch_hooks.watch import Watch

BLOCKS: Final = documents.blocks("python")
CALLED: Final[Mapping[str, Callable[..., object]]] = {
    "attach": attach,
    "open_run": open_run,
    "history": RunReading.history,
}
WATCH: Final = {name for name in dir(Watch) if not name.startswith("_")}


def top_names(module: str) -> set[str]:
    """What a module of ours defines or hands on, from its source alone."""
    spec = importlib.util.find_spec(module)
    assert spec is not None, module
    assert spec.origin is not None, module
    found: set[str] = set()
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ImportFrom | ast.Import):
            found |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign) and name_of(node.targets[0]) == "__all__":
            found |= set(ast.literal_eval(node.value))
    return found


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_what_is_imported_from_us_is_there(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("runwatch"):
            names = {alias.name for alias in node.names}
            assert names <= top_names(str(node.module)), f"{block.place}: {node.module}"


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.place)
def test_what_is_passed_to_us_is_taken(block: Block) -> None:
    for node in ast.walk(ast.parse(block.text)):
        if isinstance(node, ast.Call):
            function = CALLED.get(name_of(node.func))
            given = {keyword.arg for keyword in node.keywords if keyword.arg is not None}
            if function is not None:
                assert given <= set(inspect.signature(function).parameters), block.place
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            is_watch = node.value.id == "watch"
            assert not is_watch or node.attr in WATCH, f"{block.place}: watch.{node.attr}"


def name_of(function: ast.expr) -> str:
    if isinstance(function, ast.Attribute):
        return function.attr
    return function.id if isinstance(function, ast.Name) else ""
