"""The service's settings; only `Settings.from_env` reads the environment."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar
from urllib.parse import urlsplit

from runwatch.addresses import place_of
from runwatch.policy import PolicyLimits
from runwatch.vocabulary import PolicyMode
from runwatch_server.errors import SettingsError
from runwatch_server.host_names import is_host_pattern

T = TypeVar("T")

_POSITIVE: Final = (
    *("stall_s", "lost_s", "rollup_every_s", "maintain_every_s", "pack_after_h"),
    *("requests_per_s", "ingest_per_s", "refused_per_s", "unpacked_mib_per_s", "patience_s"),
    *("stop_s", "states_mib"),
)
_COUNTS: Final = (
    *("max_rollbacks", "max_lr_cuts", "max_checkpoints", "cooldown_steps"),
    *("disk_reserve_mib", "project_quota_mib"),
)
_LEAST_FRAMES_MIB: Final = 256
"""Half of it is for frames that are worked on, and the largest takes up to 128 MiB."""
_ANYWHERE: Final = ("0.0.0.0", "::")
"""Wildcard addresses: a service can listen on them, but no request is addressed to them."""
_LOOPBACK: Final = ("127.0.0.1", "::1", "localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Each is read from `RUNWATCH_<NAME>`; a command-line option overrides it."""

    data_dir: Path = Path("runwatch-data")
    """Folder of the SQLite database and its lock; on a local disk, never on NFS."""
    database_url: str | None = field(default=None, repr=False)
    """`postgresql://user@host/name`, shared by all replicas; PGPASSWORD and ~/.pgpass are read.
    Without it, a SQLite file in the data directory, which one process alone can use."""
    host: str = "127.0.0.1"
    """Address to listen on; one that other machines can reach needs TLS here or in a proxy."""
    port: int = 8321
    """TCP port; 0 takes a free one and prints it."""
    behind_proxy: bool = False
    """Set this where a proxy in front provides TLS: `host` may then be reachable by others."""
    tls_cert: Path | None = None
    """PEM file of the certificate, to serve TLS without a proxy."""
    tls_key: Path | None = None
    """PEM file of the certificate's key."""
    allowed_hosts: tuple[str, ...] = ()
    """Host names, separated by commas, that requests may be addressed to, against DNS rebinding:
    `runwatch.example.com`, or `*.example.com` for all names below it. IP addresses, localhost and
    `host` are always allowed."""
    external_url: str = ""
    """Address at which people reach the service, such as https://runwatch.example, for the links in
    messages. Its host is allowed as if it were in `allowed_hosts`. The `url` in the receivers' file
    overrides it."""
    policy: PolicyMode = PolicyMode.OBSERVE
    """How far rules may act on a run that has no policy of its own: observe, ask or auto."""
    max_rollbacks: int = 3
    """Most rollbacks that rules may trigger in one run; a run that needs more needs a person."""
    max_lr_cuts: int = 4
    """Most times that rules may lower the learning rate of one run."""
    max_checkpoints: int = 50
    """Most checkpoints that rules may order in one run: they fill a disk."""
    cooldown_steps: int = 50
    """Least number of steps between two actions of one kind."""
    cooldown_s: float = 0.0
    """Least number of seconds between two actions of one kind; both cooldowns must have passed."""
    min_lr_scale: float = 0.05
    """Lowest learning rate that rules may set, as a share of what the schedule gives."""
    secret_file: Path | None = None
    """File of the keys that commands are signed with, one per line, the same for all replicas: the
    first signs for new attempts, the others for attempts that began under them. With SQLite the
    service makes such a file in the data directory; with PostgreSQL commands are signed only if
    this or `secret` is set."""
    secret: str = field(default="", repr=False)
    """The keys of `secret_file`, separated by commas, for where a file is hard to provide."""
    receivers: Path | None = None
    """YAML file of the receivers of alerts; by default receivers.yaml in the data directory."""
    scrape_key_file: Path | None = None
    """File to which the service writes a key with the scope `read`, for a Prometheus beside it."""
    requests_per_s: float = 100.0
    """Requests per second that one key may make, apart from a trainer's, as a long-run average;
    five seconds' worth may come at once."""
    ingest_per_s: float = 5000.0
    """Requests per second that trainers may make with one key. The default is some fifty trainers
    at full speed, or thousands at their usual pace: more than two cores can store."""
    refused_per_s: float = 5.0
    """Requests per second without a valid key that one address may make, as a long-run average; a
    minute's worth may come at once."""
    unpacked_mib_per_s: float = 128.0
    """MiB per second that the frames of one key may take once they are unpacked, as a long-run
    average; two seconds' worth may come at once. The default is thousands of layers at hundreds of
    steps per second; what exceeds it is sent again by the trainer, later."""
    frames_mib: int = 512
    """Memory for unpacked frames that are being received, wait to be judged or are being judged.
    Beyond it they wait in the database only, and are read again in their turn; so a backlog, or a
    restart with one, takes no more than this. 256 or more."""
    states_mib: int = 2048
    """Memory for what the evaluators of all runs remember: 1.4 MB for a run of 100 layers, 150 MB
    for one of 20,000. Beyond it the runs that were silent longest are saved and dropped, and loaded
    again with their next frame; a project has half of it at most."""
    streams_per_key: int = 100
    """Event streams that one key may hold open; each open page is one."""
    streams: int = 2000
    """Event streams that may be open in total; each queries the database once a second."""
    metrics_per_run: int = 2000
    """Metric names that a run may have; further ones are left out of its frames, which its timeline
    says. A page of a run with 20 000 takes seconds."""
    patience_s: float = 30.0
    """Longest wait for the rest of a request, or for a client to read its answer. After that the
    connection is closed, within twice this time."""
    disk_reserve_mib: int = 256
    """With less than this free on the data directory's disk, frames are refused until there is
    more; everything else goes on within the reserve. 0: never refused. Not used with PostgreSQL,
    which has a disk of its own."""
    project_quota_mib: int = 0
    """Most telemetry that one project may store; beyond it, its frames and new runs are refused
    until runs are removed or retention removes some, which is noticed within minutes, and other
    projects go on. 0: no limit."""
    queue_works: int = 4096
    """Writes that may wait in the queue; beyond that, requests are answered with 503. The default
    is a few seconds of work and some 100 MB."""
    judge_processes: int = 0
    """Processes that judge runs, beside the one that answers requests; each run is judged in one of
    them. 0: a thread of the service does it. For machines with many cores: each process takes some
    80 MB, and a core when much data arrives."""
    stall_s: float = 300.0
    """A run that still sends heartbeats is shown as stalled after this long without a new step."""
    lost_s: float = 60.0
    """A run is shown as lost after this long without any message: six of the trainer's
    heartbeats. People are told of one that failed if no new attempt begins for as long."""
    lost_days: float = 7.0
    """A run that has been lost for this long ends as failed, so that its data is kept no longer
    than that of others; likewise one that was brought in and never closed. 0: never."""
    rollup_every_s: float = 5.0
    """How often finished stretches of 1024 steps are summed up into rollups."""
    maintain_every_s: float = 3600.0
    """How often data past its retention is removed."""
    objects_url: str | None = field(default=None, repr=False)
    """Where older frames are packed to: `s3://bucket/prefix`, with endpoint, region and credentials
    from the usual AWS_* variables, or `file:///a/folder`, which all replicas share. Without it they
    stay in the database."""
    pack_after_h: float = 24.0
    """Frames are packed this many hours after they arrived; readers see no difference."""
    raw_days: float = 30.0
    """How long frames are kept after their run ended; their rollups and alerts stay. 0 means for
    ever, here and in the next two. Projects and runs may have ages of their own
    (`runwatch retention`)."""
    evidence_days: float = 0.0
    """How long frames around an alert are kept; never shorter than other frames."""
    rollup_days: float = 0.0
    """How long rollups of layers are kept; never shorter than frames. Those of metrics stay."""
    drain_s: float = 10.0
    """How long requests in progress may take when the service stops."""
    stop_s: float = 60.0
    """How long a stop may take after that, such as with a database that does not answer; then the
    process ends at once, as if it was killed."""

    def __post_init__(self) -> None:
        _check_days(self.raw_days, self.evidence_days, self.rollup_days, self.lost_days)
        _check("port", self.port, 0 <= self.port <= 65535, "0 to 65535")
        for name in ("queue_works", "streams_per_key", "streams", "metrics_per_run"):
            most: int = getattr(self, name)
            _check(name, most, most >= 1, "at least 1")
        _check("frames_mib", self.frames_mib, self.frames_mib >= _LEAST_FRAMES_MIB, "256 or more")
        for name in _POSITIVE:
            value: float = getattr(self, name)
            _check(name, value, 0 < value < 10**9, "a positive number")
        for name in (
            "project_quota_mib",
            "max_rollbacks",
            "max_lr_cuts",
            "max_checkpoints",
            "cooldown_steps",
        ):
            count: int = getattr(self, name)
            _check(name, count, count >= 0, "0 or more")
        num_judging = self.judge_processes
        _check("judge_processes", num_judging, 0 <= num_judging <= 64, "0 to 64")
        _check("cooldown_s", self.cooldown_s, 0 <= self.cooldown_s < 10**9, "0 or more seconds")
        _check("min_lr_scale", self.min_lr_scale, 0 < self.min_lr_scale <= 1, "above 0, at most 1")
        _check("drain_s", self.drain_s, 0 <= self.drain_s <= 600, "0 to 600 seconds")
        if (self.tls_cert is None) != (self.tls_key is None):
            raise SettingsError("tls_cert, tls_key: found one of them, wanted both or none")
        if self.secret and self.secret_file is not None:
            raise SettingsError("secret, secret_file: found both, wanted one of them or none")
        _check_hosts(self.allowed_hosts)
        if self.external_url and not is_link_base(self.external_url):
            raise SettingsError(
                f"external_url: found {place_of(self.external_url)}, wanted https://host, with or "
                "without a port and a path, and without a user: it is in every message"
            )
        if not self.is_loopback and not self.behind_proxy and self.tls_cert is None:
            raise SettingsError(
                f"host: found {self.host!r}, which others can reach in clear text; wanted TLS "
                "(tls_cert, tls_key), or behind_proxy if a proxy provides it, or 127.0.0.1"
            )

    @property
    def is_loopback(self) -> bool:
        return self.host in _LOOPBACK

    @property
    def own_url(self) -> str:
        """The address at which a process on the same machine reaches the service."""
        scheme = "http" if self.tls_cert is None else "https"
        own = "127.0.0.1" if self.host in _ANYWHERE else self.host
        return f"{scheme}://{f'[{own}]' if ':' in own else own}:{self.port}"

    @property
    def trusted_hosts(self) -> tuple[str, ...]:
        """Names that requests may be addressed to. IP addresses are no names, and need none."""
        external = urlsplit(self.external_url).hostname
        named = () if external is None else (external,)
        own = () if self.host in _ANYWHERE else (self.host,)
        return ("localhost", *own, *named, *self.allowed_hosts)

    @property
    def policy_limits(self) -> PolicyLimits:
        """The budgets of what rules may do to one run."""
        return PolicyLimits(
            max_rollbacks=self.max_rollbacks,
            max_lr_cuts=self.max_lr_cuts,
            max_checkpoints=self.max_checkpoints,
            cooldown_steps=self.cooldown_steps,
            cooldown_s=self.cooldown_s,
            min_lr_scale=self.min_lr_scale,
        )

    @classmethod
    def from_env(
        cls,
        variables: Mapping[str, str] = os.environ,
        given: Mapping[str, object] = MappingProxyType({}),
    ) -> "Settings":
        """The settings of the environment, overridden by those in `given`.

        Raises SettingsError for one that cannot be used.
        """
        found = {
            one.name: _parse(one.name, variables[f"RUNWATCH_{one.name.upper()}"])
            for one in fields(cls)
            if variables.get(f"RUNWATCH_{one.name.upper()}")
        }
        return cls(**{**found, **given})  # type: ignore[arg-type]  # each parser gives its field's type


def is_link_base(url: str) -> bool:
    """Whether links for everybody can be built on it: it also holds no user or password."""
    return "@" not in url and is_http_url(url)


def is_http_url(url: str) -> bool:
    """Whether links can be built on it: http or https, a host, an optional port and path."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_usable and not parts.query and not parts.fragment


def _parse(name: str, text: str) -> object:
    parser = _PARSERS.get(name, float)
    try:
        return parser(text)
    except ValueError as error:
        raise SettingsError(f"RUNWATCH_{name.upper()}: found {text!r} ({error})") from error


def _flag(text: str) -> bool:
    flags = {"1": True, "true": True, "yes": True, "0": False, "false": False, "no": False}
    if text.lower() not in flags:
        raise ValueError("wanted 1 or 0")
    return flags[text.lower()]


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(host.strip() for host in text.split(",") if host.strip())


_PARSERS: Final[Mapping[str, Callable[[str], object]]] = {
    "data_dir": Path,
    "database_url": str,
    "objects_url": str,
    "receivers": Path,
    "secret_file": Path,
    "secret": str,
    "scrape_key_file": Path,
    "host": str,
    "port": int,
    "behind_proxy": _flag,
    "tls_cert": Path,
    "tls_key": Path,
    "allowed_hosts": _hosts,
    "external_url": str,
    "policy": PolicyMode,
    "max_rollbacks": int,
    "max_lr_cuts": int,
    "max_checkpoints": int,
    "cooldown_steps": int,
    "queue_works": int,
    "judge_processes": int,
    "streams_per_key": int,
    "streams": int,
    "metrics_per_run": int,
    "disk_reserve_mib": int,
    "project_quota_mib": int,
    "frames_mib": int,
    "states_mib": int,
}


def _check(name: str, value: object, holds: bool, wanted: str) -> None:
    if not holds:
        raise SettingsError(f"{name}: found {value}, wanted {wanted}")


def _check_hosts(hosts: tuple[str, ...]) -> None:
    for host in hosts:
        wanted = "a name without scheme, port and path, or one such as *.example.com"
        found = place_of(host) if "://" in host else host.rpartition("@")[2]
        _check("allowed_hosts", found, is_host_pattern(host), wanted)


def _check_days(*ages: float) -> None:
    names = ("raw_days", "evidence_days", "rollup_days", "lost_days")
    for name, days in zip(names, ages, strict=True):
        _check(name, days, 0 <= days < 10**6, "0 (for ever) or a number of days")
