"""Settings of the transport: the service, intervals and limits."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from runwatch.addresses import fault_of
from runwatch.errors import InvalidInputError
from runwatch.key_texts import fault_of_key

_LARGEST_SEGMENT_BYTES: Final = 16 * 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class TransportSettings:
    """Settings of one `Transport`. Raises InvalidInputError for a value that cannot work."""

    url: str | None = field(default=None, repr=False)
    """Address of the service, such as `https://runwatch.example:8080`; None: spool only."""
    token: str | None = field(default=None, repr=False)
    """An API key with the scope `ingest`. Never logged."""
    spool_dir: Path
    """Each rank of an attempt creates a folder of its own below it."""
    queue_bytes: int = 64 * 2**20
    """Limit on rows that the sender has not taken yet, and on frames in memory while the disk is
    full."""
    spool_bytes: int = 2**30
    """Limit on frames on disk: weeks of a small model, a night of a large one."""
    min_free_bytes: int = 256 * 2**20
    """The spool leaves at least this much of the disk free, for the trainer's own checkpoints."""
    send_interval_s: float = 0.2
    """Steps that end within it are sent in one frame; an urgent row does not wait for it."""
    calm_interval_s: float = 1.0
    """The interval for a run in which nothing urgent has happened for some seconds."""
    heartbeat_s: float = 10.0
    stall_s: float = 40.0
    """A step that takes longer, and far longer than any before, is told with its stack. Shorter
    than the minute after which StepOverdue fires, so that the alert can say where."""
    long_poll_s: float = 25.0
    """How long the service may hold a poll: less than the 60 s at which proxies time out."""
    connect_timeout_s: float = 5.0
    read_timeout_s: float = 10.0

    def __post_init__(self) -> None:
        if self.url is not None and (fault := fault_of(self.url)):
            raise InvalidInputError(f"url: {fault}")
        if self.token is not None and (fault := fault_of_key(self.token)):
            raise InvalidInputError(f"token: {fault}")
        _check("queue_bytes", self.queue_bytes, 2**16)
        _check("spool_bytes", self.spool_bytes, 2**16)
        _check("send_interval_s", self.send_interval_s, 0.001)
        _check("calm_interval_s", self.calm_interval_s, 0.001)
        _check("stall_s", self.stall_s, 0.001)
        _check("heartbeat_s", self.heartbeat_s, 0.001)
        _check("long_poll_s", self.long_poll_s, 0.0)
        _check("connect_timeout_s", self.connect_timeout_s, 0.001)
        _check("read_timeout_s", self.read_timeout_s, 0.001)

    @property
    def segment_bytes(self) -> int:
        """Size of a spool file. A full spool drops its oldest file, so there must be several."""
        return min(_LARGEST_SEGMENT_BYTES, self.spool_bytes // 8)


def _check(place: str, number: float, lowest: float) -> None:
    if not number >= lowest:
        raise InvalidInputError(f"{place}: found {number}, wanted at least {lowest}")
