"""Transactions that write alerts, commands or notices, outside the one module that should.

A transaction is a call of `DATABASE.write(work, ...)`. Whether its work writes one of the tables
is followed through the functions that it hands its connection to, by their names, among the domains
that a module imports.
"""

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final

from tests.house.budgets.source import Function, Module, modules

TABLES: Final = frozenset({"alerts", "commands", "notices"})
WRITES: Final = frozenset({"insert", "update", "delete", "upsert"})
ALLOWED: Final = frozenset(
    {
        "runwatch_server.alerts.book",
        "runwatch_server.commands.book",
        "runwatch_server.notify.outbox",
        "runwatch_server.runs.purge",
    }
)
"""The modules that are to be the only ones, and what removes all rows of a run."""


def figures() -> dict[str, float]:
    return {"alert_transactions": len(list(Calls(modules()).transactions()))}


class Calls:
    """Which function calls which, within the service."""

    def __init__(self, found: Iterable[Module]) -> None:
        self._modules = [one for one in found if one.name.startswith("runwatch_server.")]
        self._functions: dict[str, list[tuple[Module, Function]]] = defaultdict(list)
        for module in self._modules:
            for function in module.functions():
                if any(one.arg == "connection" for one in function.args.args):
                    self._functions[_key(function.name, module)].append((module, function))

    def transactions(self) -> Iterator[str]:
        """The place of each that writes, outside the modules that may."""
        for module in self._modules:
            if module.name not in ALLOWED:
                for function in module.functions():
                    if any(self._writes(module, work) for work in self._works(module, function)):
                        yield f"{module.name}.{function.name}"

    def _works(self, module: Module, function: Function) -> Iterator[ast.AST]:
        """What a function hands to `write` to be run in a transaction, of what is its own."""
        inner = {node.name: node for node in ast.walk(function) if isinstance(node, Function)}
        for call in ast.walk(function):
            if not (isinstance(call, ast.Call) and _name_of(call.func) in ("write", "_write")):
                continue
            for given in call.args:
                match given:
                    case ast.Lambda():
                        yield given
                    case ast.Name(name) if name in inner:
                        yield inner[name]
                    case ast.Call(ast.Name("partial"), [work, *_]):
                        yield from (one for _, one in self._functions[_key(_name_of(work), module)])
                    case _:
                        pass

    def _writes(self, module: Module, work: ast.AST) -> bool:
        """Whether it, or anything that it calls, writes one of the tables."""
        waiting, seen = [(module, work)], set[ast.AST]()
        while waiting:
            place, node = waiting.pop()
            if node in seen:
                continue
            seen.add(node)
            calls = [one for one in ast.walk(node) if isinstance(one, ast.Call)]
            if any(map(_is_write_of_table, calls)):
                return True
            for call in calls:
                if _is_given_connection(call):
                    found = self._functions[_key(_name_of(call.func), place)]
                    waiting += [one for one in found if one[0].domain in place.domains]
        return False


def _key(name: str, module: Module) -> str:
    """What is private is called in its own module alone."""
    return f"{module.name}.{name}" if name.startswith("_") else name


def _is_given_connection(call: ast.Call) -> bool:
    given = [*call.args, *(one.value for one in call.keywords)]
    return any(isinstance(one, ast.Name) and one.id == "connection" for one in given)


def _is_write_of_table(call: ast.Call) -> bool:
    return (
        _name_of(call.func) in WRITES
        and bool(call.args)
        and isinstance(call.args[0], ast.Name)
        and call.args[0].id in TABLES
    )


def _name_of(called: ast.expr) -> str:
    match called:
        case ast.Name(name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""
