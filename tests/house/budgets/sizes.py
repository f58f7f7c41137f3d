"""How much there is to read: files, statements, imports, docstrings, names."""

import ast
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tests.house.budgets.source import Documented, Module, modules

ROLES: Final = frozenset(
    {
        "api", "app", "assembly", "collector", "errors", "kernels", "queries", "records", "service",
        "settings", "tables", "texts",
    }
)  # fmt: skip
"""Names of modules that mean the same in each folder."""


def figures() -> dict[str, float]:
    found = modules()
    lines = sum(module.num_lines for module in found)
    return {
        "product_files": len(found),
        "single_importers": len(single_importers(found)),
        "import_lines_percent": 100 * sum(map(_import_lines, found)) / lines,
        "statements": sum(map(_num_statements, found)),
        "docstring_percent": 100 * sum(map(_docstring_lines, found)) / lines,
        "longest_function": max(length for length, _ in function_lengths(found)),
        "class_names_of_several": len(names_of_several(_public_classes(found))),
        "module_names_of_several": len(names_of_several(_module_names(found))),
    }


def single_importers(found: Iterable[Module]) -> list[tuple[str, str]]:
    """Modules that one other module alone imports, which is in the same folder; and that one."""
    by_name = {module.name: module for module in found}
    importers: dict[str, set[str]] = defaultdict(set)
    for module in by_name.values():
        for name in module.imported():
            target = name if name in by_name else name.rpartition(".")[0]
            if target in by_name and target != module.name:
                importers[target].add(module.name)
    return sorted(
        (name, importer)
        for name, all_importers in importers.items()
        for importer in all_importers
        if len(all_importers) == 1
        and not by_name[name].is_package
        and by_name[importer].file.parent == by_name[name].file.parent
    )


def _import_lines(module: Module) -> int:
    imports = (one for one in module.nodes if isinstance(one, ast.Import | ast.ImportFrom))
    return sum(map(_num_lines, imports))


def _num_statements(module: Module) -> int:
    """Without texts that stand alone: docstrings."""
    statements = [node for node in module.nodes if isinstance(node, ast.stmt)]
    return len(statements) - sum(map(_is_text, statements))


def _docstring_lines(module: Module) -> int:
    """Those of modules, classes and functions."""
    firsts = (node.body[0] for node in module.nodes if isinstance(node, Documented) and node.body)
    return sum(_num_lines(first) for first in firsts if _is_text(first))


def _is_text(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Constant(str())):
            return True
        case _:
            return False


def function_lengths(found: Iterable[Module]) -> list[tuple[int, str]]:
    """Lines of each function, without decorators, and its place."""
    return [
        (_num_lines(function), f"{module.name}.{function.name}")
        for module in found
        for function in module.functions()
    ]


def _num_lines(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _public_classes(found: Iterable[Module]) -> Iterator[str]:
    for module in found:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name


def _module_names(found: Iterable[Module]) -> Iterator[str]:
    for module in found:
        if not module.is_package and module.base not in ROLES and module.base[0] != "_":
            yield module.base


def names_of_several(names: Iterable[str]) -> list[str]:
    return sorted(name for name, number in Counter(names).items() if number > 1)
