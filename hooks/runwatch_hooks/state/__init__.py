"""Acts on the training: snapshots, rollback, checkpoints, LR scale, and the actor that uses
them."""

from runwatch_hooks.state.actor import Actor
from runwatch_hooks.state.checkpoint_files import Checkpoint
from runwatch_hooks.state.checkpoint_manager import CheckpointKeeper
from runwatch_hooks.state.checkpoints import CheckpointStore
from runwatch_hooks.state.loop_state import Generator, HasState
from runwatch_hooks.state.lr_scale import LrScale
from runwatch_hooks.state.outcomes import ActionError, Notes, Outcome
from runwatch_hooks.state.rank_checkpoints import RankCheckpoints
from runwatch_hooks.state.snapshots import SnapshotRing
from runwatch_hooks.state.training_state import TrainingState
from runwatch_hooks.state.tree import Captured

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
