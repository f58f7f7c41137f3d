"""The JSON messages between a trainer and the service, one type per message.

Both sides encode and decode with these types, so that neither can drift from the other. Paths are
under `/api/v1`; a trainer needs a key with the scope `ingest`.
"""

from typing import Annotated, Any, Final, Literal

import msgspec

from runwatch.commands import Command
from runwatch.frames import MAX_ATTEMPT, MAX_RANK, MAX_STEP, Scalar
from runwatch.vocabulary import Phase, RunId

TEXT_LIMIT = 256

_Attempt = Annotated[int, msgspec.Meta(ge=0, le=MAX_ATTEMPT)]
_Rank = Annotated[int, msgspec.Meta(ge=0, le=MAX_RANK)]
_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_STEP)]
"""Steps or counts: a larger number fits no column of the database and no chart."""
_LastStep = Annotated[int, msgspec.Meta(ge=-1, le=MAX_STEP)]
"""-1 means before the first step."""
_LONGEST_S = 1e9
"""About thirty years."""
_ActionKind = Annotated[str, msgspec.Meta(pattern=r"^[a-z0-9_]{1,64}$")]
"""May be a kind that this service does not know yet. Stored separated by spaces."""

UNDERSTANDS_HEADER = "Runwatch-Understands"
"""Header of the request that opens an attempt: what the trainer supports beyond the first version,
so that neither side is sent a field that it would refuse. A service that does not know the header
ignores it."""
SIGNATURES = "signatures"
"""The trainer checks `Command.signature` if it is given a secret."""

ATTEMPT_TOKEN_HEADER = "Runwatch-Attempt-Token"
"""Header of every other request about an attempt: `AttemptOpen.token`, which proves that the
request comes from whoever opened the attempt. An API key does not: a whole project may share it."""
WRONG_ATTEMPT_TOKEN = "wrong_attempt_token"
"""Code of the problem (403) with which such a request is refused if no attempt of the run was
opened with its token."""


def is_name(text: str) -> bool:
    """Whether a run or project can have this name: not too long, and with at least one visible
    character."""
    return len(text) <= TEXT_LIMIT and any(
        character.isprintable() and not character.isspace() for character in text
    )


MAX_CONFIG_BYTES: Final = 256 * 1024
"""Of a run's configuration, as JSON."""
MAX_HOST_BYTES: Final = 16 * 1024
"""Of the facts of an attempt's host, as JSON."""


class RunOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """`POST /runs`: create a run, or find it again under the same id."""

    run_id: RunId
    """Made by the trainer, so that it can be stored before the service answers."""
    name: str
    """The name for people; several runs may have the same one."""
    project: str = "default"
    """The project, whose keys and rules apply to the run."""
    config: dict[str, Any] = {}
    """The user's hyper-parameters; stored and shown, never interpreted."""
    group: str = ""
    """Runs of a project that repeat one another (seeds, a sweep) and are compared; empty for
    none."""


class AttemptOpen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /runs/{run_id}/attempts`: start an attempt, one lifetime of the run's processes."""

    token: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{26,128}$")]
    """A random secret made by the trainer, known to it and the service alone: see
    ATTEMPT_TOKEN_HEADER. The same token always gives the same attempt."""
    started_at: float
    """Unix seconds by the trainer's clock."""
    resume_step: _Count = 0
    """The first step that it trains."""
    live: bool = True
    """False for an attempt that is over and is sent afterwards: it does not replace the live
    one."""
    world_size: Annotated[int, msgspec.Meta(ge=1, le=MAX_RANK + 1)] = 1
    """Number of ranks."""
    allow: tuple[_ActionKind, ...] = ()
    """Kinds of action that the trainer will carry out (`runwatch.commands.ACTION_KINDS`), so that
    the service proposes nothing that would be rejected. The trainer checks them again."""
    host: dict[str, Scalar] = {}
    """Where it runs, as shown on the run's page."""


class AttemptOpened(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """The reply when an attempt was opened."""

    attempt: int
    """Increases with each attempt of the run; frames of an older live attempt are refused."""
    secret: bytes = b""
    """Signs the attempt's commands (`runwatch.signatures`): from now on the trainer refuses a
    command without a signature. Only sent to a trainer that supports SIGNATURES, by a service that
    signs."""


class FrameReply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Reply of `POST /runs/{run_id}/frames`, once the frame is on disk."""

    acked: int
    """Sequence number of the frame that this acknowledges."""
    next: int
    """The lowest sequence number that the service does not hold."""
    duplicate: bool = False
    commands: tuple[Command, ...] = ()


class Heartbeat(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /runs/{run_id}/heartbeat`: a rank is alive, and says what it is doing."""

    # The wide bounds protect others: replicas share their signs of life in one write, and a number
    # that does not fit its column would hold back those of all other runs.
    attempt: _Attempt
    """The attempt that is alive."""
    rank: _Rank
    """The rank that sends this."""
    last_step: _LastStep | None
    """Null before the first step."""
    step_age_s: Annotated[float, msgspec.Meta(ge=0, le=_LONGEST_S)]
    """Seconds since the last step ended, by the trainer's monotonic clock."""
    phase: Phase
    lr_scale: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0
    """The LR scale in force, so that the service need not assume it."""
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
    """`POST /runs/{run_id}/attempts/{attempt}/close`: the attempt ends regularly.

    Rank 0 ends the attempt. Another rank ends it only by failing, as the others cannot go on
    without it; otherwise nothing more is expected of that rank.
    """

    status: Literal["finished", "failed", "stopped"]
    """How it ended."""
    last_step: _LastStep | None = None
    """Null if no step was made."""
    reason: str = ""
    """The reason, such as an exception."""
    rank: _Rank = 0
    """The rank that sends this."""


class Problem(msgspec.Struct, frozen=True):
    """An error's body (RFC 9457, `application/problem+json`)."""

    title: str
    status: int
    code: str
    detail: str = ""
