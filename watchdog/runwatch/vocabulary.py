"""The words both sides of the wire use, as types (docs/design.md, section 2)."""

from enum import StrEnum
from typing import NewType

RunId = NewType("RunId", str)
"""A ULID; one training job, however often it restarts."""

CommandId = NewType("CommandId", str)
AlertId = NewType("AlertId", str)


class RunState(StrEnum):
    """What a run is doing, as the service sees it."""

    STARTING = "starting"
    TRAINING = "training"
    EVALUATING = "evaluating"
    CHECKPOINTING = "checkpointing"
    IDLE = "idle"
    """The process speaks, and says that no step is due: it trains another run, say."""
    STALLED = "stalled"
    """The process speaks, but no step arrives."""
    LOST = "lost"
    """The process is silent."""
    FINISHED = "finished"
    FAILED = "failed"
    STOPPED = "stopped"

    @property
    def is_ended(self) -> bool:
        return self in (RunState.FINISHED, RunState.FAILED, RunState.STOPPED)

    @property
    def has_speed(self) -> bool:
        """Whether its newest steps tell how fast it is now."""
        return not self.is_ended and self not in (RunState.STALLED, RunState.LOST, RunState.IDLE)


class Phase(StrEnum):
    """What a trainer says that it is busy with; a stall is judged by it."""

    INIT = "init"
    COMPILE = "compile"
    TRAIN = "train"
    EVAL = "eval"
    CHECKPOINT = "checkpoint"
    IDLE = "idle"

    @classmethod
    def named(cls, name: str) -> "Phase":
        """What a phase that a program names is to us: idle, where the name is none of these."""
        return cls(name) if name in list(cls) else cls.IDLE


class Severity(StrEnum):
    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"
    """Pages a person."""

    @property
    def gravity(self) -> int:
        """The larger, the graver."""
        return tuple(Severity).index(self)


class Scope(StrEnum):
    """What one verdict of a rule is about."""

    RUN = "run"
    LAYER = "layer"
    RANK = "rank"


class PolicyMode(StrEnum):
    """How far a run lets rules act on it."""

    OBSERVE = "observe"
    """Actions are only proposed."""
    ASK = "ask"
    """An action waits for a person's approval."""
    AUTO = "auto"
    """Actions are carried out within the budgets."""
