"""All checks on the trainer's side, in the order in which they are reported."""

import importlib
import importlib.util
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from runwatch.findings import Finding, Verdict
from runwatch_hooks.doctor.surroundings import check_environment, check_spool, versions
from runwatch_hooks.errors import AttachError
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
    has_torch = importlib.util.find_spec("torch") is not None
    findings = [*versions(), *(_readings() if has_torch else [_NO_TORCH])]
    findings.append(check_environment(variables))
    with suppress(AttachError):  # already reported, as a fault of the environment
        findings.append(check_spool(read_environment(variables).spool_dir))
    if model is not None and has_torch:
        findings += _with_torch("model_cost").measure(model)
    elif model is not None:
        findings.append(Finding("model", model, Verdict.WRONG, "torch is not installed"))
    return findings


def _readings() -> list[Finding]:
    module = _with_torch("accelerators")
    return [module.compiled_reading(), *module.accelerators()]


def _with_torch(module: str) -> Any:
    """Import a module that needs torch, which may be missing on the service's machine."""
    return importlib.import_module(f"runwatch_hooks.doctor.{module}")
