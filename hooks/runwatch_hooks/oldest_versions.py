"""The oldest versions that the hook works with, and what is said about older ones."""

import re
import sys
from importlib import import_module
from typing import Final

OLDEST_TORCH: Final = "2.6"
OLDEST: Final = {
    "msgspec": "0.20",
    "numpy": "1.26",
    "urllib3": "2.2",
    **({"zstandard": "0.23"} if sys.version_info < (3, 14) else {}),
}
"""Of what is installed with the hook, as pyproject.toml says."""


def fault_of_version(name: str, found: str, oldest: str) -> str | None:
    """What is wrong with this version; None if it is new enough, or says nothing."""
    numbers, wanted = _numbers(found), _numbers(oldest)
    if not numbers or numbers >= wanted:
        return None
    return f"runwatch needs {name} {oldest} or later, found {found}"


def check_torch() -> None:
    """Raises ImportError for a torch that is too old, before anything that it lacks is asked for;
    Python shows the reason as it is, and not only the name that could not be imported."""
    if fault := fault_of_version("torch", str(import_module("torch").__version__), OLDEST_TORCH):
        raise ImportError(fault)


def _numbers(version: str) -> tuple[int, ...]:
    """`2.10.0a0+git1` -> (2, 10, 0)."""
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(map(int, release[0].split("."))) if release else ()
