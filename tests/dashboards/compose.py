"""docker-compose.yml as Compose reads it: with its variables filled in."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

ROOT: Final = Path(__file__).parents[2]
COMPOSE_FILE: Final = ROOT / "docker-compose.yml"
_VARIABLE: Final = re.compile(r"\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")


class MissingVariableError(Exception):
    """One that Compose would ask for."""


def interpolated(text: str, variables: Mapping[str, str]) -> str:
    """Raises MissingVariableError for `${NAME:?why}` without a value."""

    def value(match: re.Match[str]) -> str:
        found = variables.get(match["name"], "")
        if not found and match["kind"] == "?":
            raise MissingVariableError(f"{match['name']}: {match['text']}")
        return found or (match["text"] if match["kind"] == "-" else "")

    return _VARIABLE.sub(value, text)


def required_variables() -> set[str]:
    return {
        match["name"]
        for match in _VARIABLE.finditer(COMPOSE_FILE.read_text())
        if match["kind"] == "?"
    }


def load_compose(variables: Mapping[str, str]) -> Any:
    return yaml.safe_load(interpolated(COMPOSE_FILE.read_text(), variables))


def filled_in() -> Any:
    """With a secret made up for each variable that wants one."""
    return load_compose({name: f"made-up-{name}-0123456789" for name in required_variables()})
