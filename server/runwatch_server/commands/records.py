"""Commands, the runs they are for, and their events, as they are stored."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from runwatch.commands import AnyAction, Command, CommandState
from runwatch.frames import Scalar
from runwatch.vocabulary import AlertId, CommandId, PolicyMode, RunId, RunState


@dataclass(frozen=True, slots=True, kw_only=True)
class Addressee:
    """The facts about a run that are needed to command it."""

    run_id: RunId
    project: str
    name: str
    state: RunState
    policy: PolicyMode | None
    """None: the service's default."""
    attempt: int
    """The live attempt; 0 before the first."""
    num_ranks: int
    """Number of its ranks; each must answer a command."""
    allow: frozenset[str]
    """Kinds of action that its trainer allows."""
    last_step: int | None
    signing_key: str | None = None
    """Fingerprint of the key that its trainer's secret is derived from; None: its commands are not
    signed."""


@dataclass(frozen=True, slots=True)
class CommandMark:
    """The columns of a pending command that are safe to read for all runs at once.

    There are no texts among them: a damaged one in a single run must not block all the others.
    """

    run_id: RunId
    id: CommandId
    attempt: int
    state: CommandState
    expires_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRecord:
    """A command as it is stored."""

    run_id: RunId
    id: CommandId
    attempt: int
    action: AnyAction
    state: CommandState
    reason: str
    requested_by: str
    created_at: float
    expires_at: float
    automatic: bool = False
    segment: int | None = None
    """Segment of the alert that asked for it; a rollback undoes it and all before it."""
    alert_id: AlertId | None = None
    action_index: int | None = None
    after_id: CommandId | None = None
    idempotency_key: str | None = None
    signature: str | None = None
    ended_at: float | None = None
    ended_step: int | None = None
    detail: Mapping[str, Scalar] = field(default_factory=dict[str, Scalar])

    @property
    def kind(self) -> str:
        return self.action.kind

    def to_command(self) -> Command:
        """The command as it is sent to the trainer."""
        return Command(
            id=self.id,
            action=self.action,
            attempt=self.attempt,
            expires_at=self.expires_at,
            reason=self.reason,
            requested_by=self.requested_by,
            signature=self.signature or "",
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandEvent:
    """One thing that happened to a command."""

    number: int
    run_id: RunId
    command_id: CommandId
    kind: str
    rank: int | None
    at: float
    actor: str
    detail: Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptReceipt:
    """A rank's newest answer to a command."""

    rank: int
    state: CommandState
    step: int
    at: float
    detail: Mapping[str, Scalar]
