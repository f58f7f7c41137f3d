"""All checks on the trainer's side, in the order in which they are reported."""

import importlib
import importlib.util
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from runwatch.findings import Finding, Verdict
from runwatch_hooks.doctor.surroundings import (
    check_environment,
    check_spool,
    version_of,
    versions,
)
from runwatch_hooks.errors import AttachError
from runwatch_hooks.oldest_versions import OLDEST_TORCH
from runwatch_hooks.settings.environment import read_environment

_NO_TORCH: Final = Finding(
    "installed",
    "torch",
    Verdict.NOTE,
    "not installed",
    "pip install torch, or watch with runwatch_hooks.plain.open_run, which needs none",
)


def examine(variables: Mapping[str, str], model: str | None = None) -> list[Finding]:
    """All findings. `model` is `module:factory`; its cost is measured if torch is installed."""
    torch = _torch()
    has_torch = torch.verdict is Verdict.GOOD
    findings = [*versions(), torch, *(_readings() if has_torch else [])]
    findings.append(check_environment(variables))
    with suppress(AttachError):  # already reported, as a fault of the environment
        findings.append(check_spool(read_environment(variables).spool_dir))
    if model is not None and has_torch:
        findings += _with_torch("model_cost").measure(model)
    elif model is not None:
        findings.append(Finding("model", model, Verdict.WRONG, f"torch: {torch.found}"))
    return findings


def _torch() -> Finding:
    """Whether it is there, can be imported and is new enough."""
    if importlib.util.find_spec("torch") is None:
        return _NO_TORCH
    try:
        found = str(importlib.import_module("torch").__version__)
    except Exception as error:  # noqa: BLE001 - whatever breaks in another package's import
        found = f"cannot be imported ({type(error).__name__}: {error})"
        return Finding("installed", "torch", Verdict.WRONG, found, "install it again")
    return version_of("torch", found, OLDEST_TORCH)


def _readings() -> list[Finding]:
    module = _with_torch("accelerators")
    return [module.compiled_reading(), *module.accelerators()]


def _with_torch(module: str) -> Any:
    """Import a module that needs torch, which may be missing on the service's machine."""
    return importlib.import_module(f"runwatch_hooks.doctor.{module}")
