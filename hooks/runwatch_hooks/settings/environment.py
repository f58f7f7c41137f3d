"""The hook's environment variables. No other module reads the environment."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from runwatch.addresses import fault_of
from runwatch.key_texts import fault_of_key, trimmed
from runwatch.ulids import is_ulid
from runwatch_hooks.errors import AttachError
from runwatch_hooks.settings.arguments import check_text, folder_of

DEFAULT_SPOOL_DIR: Final = Path("runwatch-spool")
DEFAULT_PROJECT: Final = "default"

_TRUE: Final = frozenset({"1", "true", "yes", "on"})
_FALSE: Final = frozenset({"", "0", "false", "no", "off"})

_BEARERS: Final[dict[str, str]] = {}
"""Run id from the environment -> name of the run that uses it. A program may train several runs,
but an id belongs to one of them: the first that asks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Defaults for the arguments of `attach`, which take precedence."""

    disabled: bool = False
    """RUNWATCH_DISABLED: attach nothing and patch nothing; the script runs as if the hook were
    absent."""
    url: str | None = field(default=None, repr=False)
    """RUNWATCH_URL: the service, such as http://127.0.0.1:8321. Without it, the run is only spooled
    to disk."""
    token: str | None = field(default=None, repr=False)
    """RUNWATCH_TOKEN: an API key with the scope `ingest`."""
    spool_dir: Path = DEFAULT_SPOOL_DIR
    """RUNWATCH_SPOOL: where frames wait on disk until the service has acknowledged them."""
    run_id: str | None = None
    """RUNWATCH_RUN_ID: the ULID of a run to continue, for a restarted job. In a program that
    watches several runs, it applies to the first."""
    job: str | None = None
    """RUNWATCH_RUN_ID as well: all runs of a program report it, so that `runwatch run` finds those
    that have ids of their own."""
    project: str = DEFAULT_PROJECT
    """RUNWATCH_PROJECT: the project that the run belongs to; API keys can be limited to one."""
    group: str = ""
    """RUNWATCH_GROUP: a name shared by runs that repeat each other, such as seeds or a sweep."""
    rank: int = 0
    """RANK, as torchrun sets it."""
    world_size: int = 1
    """WORLD_SIZE, as torchrun sets it."""
    local_rank: int = 0
    """LOCAL_RANK, as torchrun sets it."""
    elastic_id: str | None = None
    """TORCHELASTIC_RUN_ID: torchrun's name for the job; None if the program was not started by
    torchrun."""
    restart: int = 0
    """TORCHELASTIC_RESTART_COUNT: how often torchrun has restarted the processes."""

    def __post_init__(self) -> None:
        _check_url(self.url)
        _check_token(self.token)
        if self.run_id is not None and not is_ulid(self.run_id):
            raise AttachError(f"run_id: found {self.run_id!r}, wanted a ULID (26 letters)")
        if not 0 <= self.rank < self.world_size:
            raise AttachError(
                f"rank: found {self.rank} of {self.world_size}, wanted 0 to {self.world_size - 1}"
            )


def _check_url(url: str | None) -> None:
    if url is not None and (fault := fault_of(url)):
        raise AttachError(f"url: {fault}, as `url` or in RUNWATCH_URL")


def _check_token(token: str | None) -> None:
    if token is not None and (fault := fault_of_key(token)):
        raise AttachError(f"token: {fault}, as `token` or in RUNWATCH_TOKEN")


def read_environment(variables: Mapping[str, str] = os.environ) -> Environment:
    """Settings from environment variables. Raises AttachError for one that cannot be used.

    If the hook is disabled, nothing else is read, so that nothing else can be wrong.
    """
    if _flag(variables, "RUNWATCH_DISABLED"):
        return Environment(disabled=True)
    return Environment(
        url=trimmed(variables.get("RUNWATCH_URL")) or None,
        token=trimmed(variables.get("RUNWATCH_TOKEN")) or None,
        spool_dir=Path(variables.get("RUNWATCH_SPOOL") or DEFAULT_SPOOL_DIR),
        run_id=variables.get("RUNWATCH_RUN_ID") or None,
        job=variables.get("RUNWATCH_RUN_ID") or None,
        project=variables.get("RUNWATCH_PROJECT") or DEFAULT_PROJECT,
        group=variables.get("RUNWATCH_GROUP", ""),
        rank=_count(variables, "RANK", default=0),
        world_size=_count(variables, "WORLD_SIZE", default=1),
        local_rank=_count(variables, "LOCAL_RANK", default=0),
        elastic_id=variables.get("TORCHELASTIC_RUN_ID") or None,
        restart=_count(variables, "TORCHELASTIC_RESTART_COUNT", default=0),
    )


def is_disabled(variables: Mapping[str, str] = os.environ) -> bool:
    """Whether RUNWATCH_DISABLED is set. Unlike `read_environment` it never raises, so it can be
    called at import."""
    return variables.get("RUNWATCH_DISABLED", "").strip().lower() in _TRUE


def override(
    environment: Environment,
    *,
    run: str,
    run_id: str | None,
    project: str | None,
    group: str | None,
    url: str | None,
    token: str | None,
    spool: str | os.PathLike[str] | None,
) -> Environment:
    """The environment of the run of this name, overridden by the arguments that were given. Raises
    AttachError."""
    found = replace(
        environment,
        project=environment.project if project is None else project,
        group=environment.group if group is None else group,
        url=_given("url", url) or environment.url,
        token=_given("token", token) or environment.token,
        spool_dir=environment.spool_dir if spool is None else folder_of("spool", spool),
    )
    check_text("run", run)
    check_text("project", found.project)
    if not _is_empty(found.group):
        check_text("group", found.group)
    run_id = _given("run_id", run_id)
    return replace(found, run_id=run_id or _goes_on_with(environment.run_id, run))


def _is_empty(text: object) -> bool:
    return isinstance(text, str) and not text


def _given(place: str, text: object) -> str | None:
    if not isinstance(text, str | None):
        raise AttachError(f"{place}: found {type(text).__name__}, wanted a text")
    return trimmed(text) or None


def _goes_on_with(run_id: str | None, run: str) -> str | None:
    """The id from the environment, if this run is the one that uses it (see `_BEARERS`)."""
    return run_id if run_id is not None and _BEARERS.setdefault(run_id, run) == run else None


def _flag(variables: Mapping[str, str], name: str) -> bool:
    text = variables.get(name, "").strip().lower()
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise AttachError(f"{name}: found {text!r}, wanted 1 or 0")


def _count(variables: Mapping[str, str], name: str, *, default: int) -> int:
    text = variables.get(name, "")
    if not text:
        return default
    if not text.isdecimal():
        raise AttachError(f"{name}: found {text!r}, wanted a whole number")
    return int(text)
