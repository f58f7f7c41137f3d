"""All that is looked at on the trainer's side, in the order in which it is told."""

import importlib.util
from collections.abc import Mapping
from contextlib import suppress

from runwatch.findings import Finding, Verdict
from runwatch_hooks.doctor.accelerators import accelerators, compiled_reading
from runwatch_hooks.doctor.surroundings import check_environment, check_spool, versions
from runwatch_hooks.errors import AttachError
from runwatch_hooks.settings import read_environment


def examine(variables: Mapping[str, str], model: str | None = None) -> list[Finding]:
    """`model` is `module:factory`; its cost is measured where torch is installed."""
    has_torch = importlib.util.find_spec("torch") is not None
    findings = [*versions(), compiled_reading(), *accelerators(has_torch=has_torch)]
    findings.append(check_environment(variables))
    with suppress(AttachError):  # told already, as a fault of the environment
        findings.append(check_spool(read_environment(variables).spool_dir))
    if model is not None:
        findings += _measured(model, has_torch=has_torch)
    return findings


def _measured(model: str, *, has_torch: bool) -> list[Finding]:
    if not has_torch:
        return [Finding("model", model, Verdict.WRONG, "torch is not installed")]
    program = importlib.import_module("runwatch_hooks.doctor.model_cost")
    found: list[Finding] = program.measure(model)
    return found
