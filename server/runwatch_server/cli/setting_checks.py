"""Checks the service's optional packages and the RUNWATCH_* variables."""

import difflib
import importlib.util
import os
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import fields
from importlib import metadata
from typing import Final

from runwatch.extras import pip_install
from runwatch.findings import Finding, Verdict
from runwatch_server.db.sqlite import SAFE_SQLITE
from runwatch_server.errors import SettingsError
from runwatch_server.settings import Settings

OF_CLIENTS: Final = (
    "RUNWATCH_URL",
    "RUNWATCH_TOKEN",
    "RUNWATCH_RUN_ID",
    "RUNWATCH_PROJECT",
    "RUNWATCH_GROUP",
    "RUNWATCH_SPOOL",
    "RUNWATCH_DISABLED",
)
"""Variables that trainers and commands read; all others are the service's settings."""
_PAIRED: Final = ("RUNWATCH_HOST", "RUNWATCH_TLS_CERT", "RUNWATCH_TLS_KEY")
"""Variables that are valid only together with others, so they are checked with all."""
_EXTRAS: Final = (
    ("asyncpg", "postgres", "PostgreSQL"),
    ("apprise", "oncall", "alerts to people without an Alertmanager"),
    ("pyarrow", "arrow", "series as Arrow and Parquet"),
    ("pandas", "arrow", "histories in pandas"),
)


def setting_names() -> list[str]:
    """The variables that the service reads."""
    return [f"RUNWATCH_{field.name.upper()}" for field in fields(Settings)]


def check_extras() -> Iterator[Finding]:
    """Packages that some features need."""
    for module, extra, what_for in _EXTRAS:
        if importlib.util.find_spec(module) is None:
            found = f"not installed, needed for {what_for}"
            yield Finding("installed", module, Verdict.NOTE, found, pip_install(extra))
        else:
            found = f"{metadata.version(module)}, for {what_for}"
            yield Finding("installed", module, Verdict.GOOD, found)


def check_sqlite(version: tuple[int, int, int] = sqlite3.sqlite_version_info) -> Finding:
    """The SQLite that Python is linked with."""
    found = ".".join(map(str, version))
    if version >= SAFE_SQLITE:
        return Finding("installed", "SQLite", Verdict.GOOD, found)
    safe = ".".join(map(str, SAFE_SQLITE))
    return Finding(
        "installed",
        "SQLite",
        Verdict.NOTE,
        f"{found} can damage its WAL when another process writes at a checkpoint",
        f"let nothing but the service write to runwatch.db, or use SQLite {safe} or newer",
    )


def check_settings(variables: Mapping[str, str] = os.environ) -> Iterator[Finding]:
    """Checks each variable by itself, then all together; shows no secrets."""
    known = {*setting_names(), *OF_CLIENTS}
    is_right = True
    ours = sorted(name for name in variables if name.startswith("RUNWATCH_") and variables[name])
    for name in ours:
        if name not in known:
            yield _unknown(name, known)
        elif name not in OF_CLIENTS:
            finding = _checked(name, {} if name in _PAIRED else {name: variables[name]})
            is_right = is_right and finding.verdict is Verdict.GOOD
            yield finding
    if is_right:  # otherwise the same fault would be shown twice
        yield _checked("settings of a service", variables)


def _unknown(name: str, known: set[str]) -> Finding:
    close = difflib.get_close_matches(name, sorted(known), n=1, cutoff=0.8)
    if close:
        found, advice = "nothing reads it", f"did you mean {close[0]}?"
        return Finding("environment", name, Verdict.WRONG, found, advice)
    return Finding("environment", name, Verdict.NOTE, "no part of Runwatch reads it")


def _checked(name: str, variables: Mapping[str, str]) -> Finding:
    try:
        Settings.from_env(variables)
    except SettingsError as error:
        return Finding("environment", name, Verdict.WRONG, str(error))
    return Finding("environment", name, Verdict.GOOD, "can be used")
