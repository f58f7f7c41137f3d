"""What `make test-lowest` installs are the lower bounds that the project file promises, and those
that the hook checks."""

import re
import tomllib
from pathlib import Path
from typing import Final

import runwatch_hooks.oldest_versions as of_hook

ROOT: Final = Path(__file__).parents[2]
SERVES: Final = ("server", "postgres", "arrow", "oncall", "torch")
"""The extras that are tried: what serves, and of the frameworks the one that the hook is for."""


def lower_bounds() -> dict[str, str]:
    """Of each distribution that serves, as the project file spells it."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    wanted: list[str] = project["dependencies"] + [one for extra in SERVES for one in extras[extra]]
    spelled = (re.match(r"([\w-]+)(?:\[\w+\])?>=([\d.]+)", requirement) for requirement in wanted)
    return {found[1]: found[2] for found in spelled if found is not None}


def oldest() -> dict[str, str]:
    lines = (ROOT / "constraints-lowest.txt").read_text(encoding="utf-8").splitlines()
    return dict(line.split("==") for line in lines if line and not line.startswith("#"))


def is_at(bound: str, version: str) -> bool:
    """`6` is the bound of 6.0.0, and of 6.0.1 where there was no other."""
    return (version + ".").startswith(bound + ".")


def test_each_lower_bound_is_the_version_that_is_tried() -> None:
    tried = oldest()
    bounds = lower_bounds()

    assert len(bounds) > 20
    assert [name for name, bound in bounds.items() if not is_at(bound, tried.get(name, ""))] == []


def test_the_versions_that_the_hook_checks_are_these_bounds() -> None:
    checked = of_hook.OLDEST | {"torch": of_hook.OLDEST_TORCH}

    assert checked.items() <= lower_bounds().items()
    assert "torch" in checked
