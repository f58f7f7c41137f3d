"""The product's modules, parsed."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from tests.house.documents import ROOT

ROOTS: Final = ("watchdog", "hooks", "server", "migrations")
IMPORTERS: Final = ("runwatch_server.importing", "runwatch_importers")
"""Readers of other people's logs: a file a format, and so outside the budgets."""
VERSIONS: Final = "runwatch_migrations.versions"
"""A file a version of the schema, which nobody edits."""

Function = ast.FunctionDef | ast.AsyncFunctionDef
Documented = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    name: str
    """As it is imported; of a package that of the package."""
    file: Path
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(self.tree))

    @property
    def is_package(self) -> bool:
        return self.file.name == "__init__.py"

    @property
    def base(self) -> str:
        """Its name without its folder's."""
        return self.name.rpartition(".")[2]

    @property
    def num_lines(self) -> int:
        return self.text.count("\n")

    @property
    def domain(self) -> str:
        """Its folder below the package."""
        return ".".join(self.name.split(".")[:2])

    @cached_property
    def domains(self) -> frozenset[str]:
        """Its own, and those that it imports from."""
        imported = (".".join(name.split(".")[:2]) for name in self.imported())
        return frozenset({self.domain, *imported})

    def functions(self) -> Iterator[Function]:
        return (node for node in self.nodes if isinstance(node, Function))

    def imported(self) -> Iterator[str]:
        """The names that are imported, modules or what is in them, at any place."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from (one.name for one in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                yield from (f"{node.module}.{one.name}" for one in node.names)


@cache
def modules() -> tuple[Module, ...]:
    """Of core, hook, service and migrations, in the order of their paths."""
    return tuple(_read(file) for root in ROOTS for file in _files(ROOT / root))


def _files(root: Path) -> list[Path]:
    found = sorted(root.rglob("*.py"))
    return [file for file in found if not _name(file).startswith((*IMPORTERS, VERSIONS))]


def _read(file: Path) -> Module:
    return Module(_name(file), file, file.read_text(encoding="utf-8"))


def _name(file: Path) -> str:
    """Of the module in a file."""
    parts = file.relative_to(ROOT).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
