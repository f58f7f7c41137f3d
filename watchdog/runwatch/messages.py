"""The JSON that a trainer and the service exchange, one type a message.

Both sides encode and decode with these, so that neither can drift from the other. Paths are
under `/api/v1`; a trainer needs a key with the scope `ingest`.
"""

from typing import Annotated, Any, Literal

import msgspec

from runwatch.commands import Command
from runwatch.frames import MAX_ATTEMPT, MAX_RANK, MAX_STEP, Scalar
from runwatch.vocabulary import Phase, RunId

TEXT_LIMIT = 256

_Attempt = Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPT)]
_Rank = Annotated[int, msgspec.Meta(ge=0, le=MAX_RANK)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]
"""Of steps, or of what is counted: more is no number that a column holds or a chart shows."""
_LastStep = Annotated[int, msgspec.Meta(ge=-1, le=MAX_STEP)]
"""-1: before the first."""
_LONGEST_S = 1e9
"""Some thirty years."""
_ActionKind = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,64}$")]
"""Also one that this service does not know yet; they are kept separated by spaces."""

UNDERSTANDS_HEADER = "Runwatch-Understands"
"""Of the request that opens an attempt: what the trainer can do beyond the first version, so that
neither side is sent a field that it would refuse. A service that does not know it ignores it."""
SIGNATURES = "signatures"
"""The trainer checks `Command.signature`, where it is given a secret."""


def is_name(text: str) -> bool:
    """Whether a run or project can be called so: not too long, and something that one can see."""
    return len(text) <= TEXT_LIMIT and any(
        character.isprintable() and not character.isspace() for character in text
    )


class RunOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /runs`: make the run known, or find it again under the same id."""

    run_id: RunId
    """Made by the trainer, so that it can be written down before the service answers."""
    name: str
    """What people call it; several runs may bear one."""
    project: str = "default"
    """Whose keys and rules it is under."""
    config: dict[str, Any] = {}
    """The user's hyper-parameters; stored and shown, never interpreted."""
    group: str = ""
    """Runs of a project that repeat one another (seeds, a sweep) and are compared; empty: none."""


class AttemptOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /runs/{run_id}/attempts`: one life of the run's processes begins."""

    token: str
    """A ULID made by the trainer: the same token gives the same attempt, however often asked."""
    started_at: float
    """Unix seconds by the trainer's clock."""
    resume_step: _Count = 0
    """The first step that it trains."""
    live: bool = True
    """False for an attempt that is over and is sent afterwards: it does not fence others."""
    world_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANK + 1)] = 1
    """Its ranks."""
    allow: tuple[_ActionKind, ...] = ()
    """Kinds of action that the trainer will carry out (`runwatch.commands.ACTION_KINDS`), so
    that the service proposes nothing that would be rejected. The trainer checks it again."""
    host: dict[str, Scalar] = {}
    """Where it runs, as the run's page shows it."""


class AttemptOpened(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """Its reply."""

    attempt: int
    """Grows with each attempt of the run; a frame of an older, live one is refused."""
    secret: bytes = b""
    """Signs the attempt's commands (`runwatch.signatures`): from now on the trainer refuses one
    without. Only for a trainer that said it understands SIGNATURES, of a service that signs."""


class FrameReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reply of `POST /runs/{run_id}/frames` once the frame is on disk."""

    acked: int
    """Sequence number of the frame that this answers."""
    next: int
    """The lowest sequence number that the service does not hold."""
    duplicate: bool = False
    commands: tuple[Command, ...] = ()


class Heartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /runs/{run_id}/heartbeat`: alive, and doing what.

    Its bounds are wide, and are there for the others: replicas share their signs of life in one
    write, and a number that no column holds would keep those of all other runs back with it.
    """

    attempt: _Attempt
    """The one that is alive."""
    rank: _Rank
    """Who says it."""
    last_step: _LastStep | None
    """None before the first step."""
    step_age_s: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]
    """Seconds since the last step ended, by the trainer's monotonic clock."""
    phase: Phase
    lr_scale: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """What is in force, so that the service need not assume it."""
    dropped_rows: _Count = 0
    """Rows lost on the trainer's side since the attempt began."""
    spooled_frames: _Count = 0
    """Frames waiting to be sent."""


class HeartbeatReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    server_time: float
    commands: tuple[Command, ...] = ()


class CommandsReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reply of `GET /runs/{run_id}/commands/next?attempt=&rank=&wait_s=`."""

    commands: tuple[Command, ...] = ()


class AttemptClose(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /runs/{run_id}/attempts/{attempt}/close`: the life ends in order.

    Rank 0 ends the attempt. Another rank ends it only by failing, as the others cannot go on
    without it; else nothing more is expected of that rank alone.
    """

    status: Literal["finished", "failed", "stopped"]
    """How it ended."""
    last_step: _LastStep | None = None
    """Null where there was none."""
    reason: str = ""
    """Why: an exception, say."""
    rank: _Rank = 0
    """Who says it."""


class Problem(msgspec.Struct, frozen=True):
    """An error's body (RFC 9457, `application/problem+json`)."""

    title: str
    status: int
    code: str
    detail: str = ""
