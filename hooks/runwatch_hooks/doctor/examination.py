"""All checks on the trainer's side, in the order in which they are reported."""

import importlib
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

import runwatch
from runwatch.addresses import without_user
from runwatch.errors import InvalidInputError
from runwatch.findings import Finding, Verdict
from runwatch.number_texts import counted
from runwatch_hooks.errors import AttachError
from runwatch_hooks.oldest_versions import OLDEST, OLDEST_TORCH, fault_of_version
from runwatch_hooks.settings.environment import Environment, read_environment
from runwatch_hooks.uplink.client import UplinkSettings
from runwatch_hooks.uplink.spool import find_spools


def versions() -> Iterator[Finding]:
    """Versions of runwatch, Python, and the packages that the hook needs besides torch."""
    yield Finding("installed", "runwatch", Verdict.GOOD, runwatch.__version__)
    found = f"{platform.python_version()} on {platform.system()} {platform.machine()}"
    yield Finding("installed", "Python", Verdict.GOOD, found)
    for name, oldest in OLDEST.items():
        yield version_of(name, metadata.version(name), oldest)


def version_of(name: str, found: str, oldest: str) -> Finding:
    """A package's version, which may be too old."""
    if fault := fault_of_version(name, found, oldest):
        return Finding("installed", name, Verdict.WRONG, fault, f"pip install '{name}>={oldest}'")
    return Finding("installed", name, Verdict.GOOD, found)


def check_environment(variables: Mapping[str, str]) -> Finding:
    """What `attach` would read from the environment, or the first error."""
    try:
        environment = read_environment(variables)
        UplinkSettings(
            url=environment.url, token=environment.token, spool_dir=environment.spool_dir
        )
    except InvalidInputError as error:
        return Finding("environment", "hook", Verdict.WRONG, str(error))
    return _found(environment)


def _found(environment: Environment) -> Finding:
    if environment.disabled:
        text = "RUNWATCH_DISABLED is set: attach does nothing"
        return Finding("environment", "hook", Verdict.NOTE, text, "unset it to be watched")
    if environment.url is None:
        text = f"no RUNWATCH_URL: runs are written to {environment.spool_dir}, and sent to nobody"
        return Finding("environment", "hook", Verdict.NOTE, text, "set it, or `runwatch sync`")
    address = without_user(environment.url)
    if environment.token is None:
        text = f"{address}, without a key"
        return Finding("environment", "hook", Verdict.WRONG, text, "set RUNWATCH_TOKEN")
    return Finding("environment", "hook", Verdict.GOOD, f"{address}, with a key")


def check_spool(folder: Path) -> Finding:
    """Whether frames can be spooled there, and how much of earlier runs is still waiting."""
    above = folder
    while not above.exists() and above != above.parent:
        above = above.parent
    if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
        advice = "set RUNWATCH_SPOOL to a folder that can be written"
        text = f"{folder}: cannot be written"
        return Finding("spool", str(folder), Verdict.WRONG, text, advice)
    free = shutil.disk_usage(above).free
    wanted = UplinkSettings(spool_dir=folder).min_free_bytes
    if free < wanted:
        text = f"{_size(free)} are free on its disk, {_size(wanted)} are left to others"
        return Finding(
            "spool", str(folder), Verdict.WRONG, text, "make room, or set RUNWATCH_SPOOL"
        )
    return _waiting(folder, free)


def _waiting(folder: Path, free: int) -> Finding:
    spools = list(find_spools(folder)) if folder.is_dir() else []
    if not spools:
        return Finding("spool", str(folder), Verdict.GOOD, f"empty, {_size(free)} free")
    num_bytes = sum(file.stat().st_size for spool in spools for file in spool.glob("*.seg"))
    num_bad = sum(1 for spool in spools for _ in spool.glob("*.bad"))
    refused = f", {num_bad} files of refused or damaged frames" if num_bad else ""
    text = f"{counted(len(spools), 'spool')} to be sent, {_size(num_bytes)}{refused}"
    advice = f"runwatch sync {folder}, when their trainers have ended"
    return Finding("spool", str(folder), Verdict.NOTE, text, advice)


def _size(num_bytes: int) -> str:
    """Three digits, in KiB, MiB or GiB."""
    if num_bytes < 1000 * 2**10:
        return f"{num_bytes / 2**10:.3g} KiB"
    if num_bytes < 1000 * 2**20:
        return f"{num_bytes / 2**20:.3g} MiB"
    return f"{num_bytes / 2**30:.3g} GiB"


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
