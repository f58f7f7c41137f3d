"""Acts on the training: snapshots, rollback, checkpoints, LR scale, and the actor that uses
them."""

from runwatch_hooks.actions.actor import Actor
from runwatch_hooks.actions.captured import Captured
from runwatch_hooks.actions.checkpoint_files import Checkpoint
from runwatch_hooks.actions.checkpoints import CheckpointStore
from runwatch_hooks.actions.errors import ActionError
from runwatch_hooks.actions.keeper import CheckpointKeeper
from runwatch_hooks.actions.lr_scale import LrScale
from runwatch_hooks.actions.outcomes import Notes, Outcome
from runwatch_hooks.actions.rank_checkpoints import RankCheckpoints
from runwatch_hooks.actions.rng import Generator, HasState
from runwatch_hooks.actions.snapshots import SnapshotRing
from runwatch_hooks.actions.training_state import TrainingState

__all__ = [
    "ActionError",
    "Actor",
    "Captured",
    "Checkpoint",
    "CheckpointKeeper",
    "CheckpointStore",
    "Generator",
    "HasState",
    "LrScale",
    "Notes",
    "Outcome",
    "RankCheckpoints",
    "SnapshotRing",
    "TrainingState",
]
