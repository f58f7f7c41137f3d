"""The rules that the service ships, read once: to read YAML takes longer than most tests."""

from functools import cache
from pathlib import Path
from typing import Any, Final

import yaml

from runwatch.rules import Rule, load_rules

ROOT: Final = Path(__file__).parents[3]
_PACK: Final = ROOT / "server" / "runwatch_server" / "rules" / "builtin.yaml"


@cache
def pack() -> tuple[Rule, ...]:
    return load_rules(document_of(_PACK))


@cache
def document_of(file: Path) -> Any:
    """What a file of YAML holds; nobody changes it."""
    return yaml.safe_load(file.read_text(encoding="utf-8"))
