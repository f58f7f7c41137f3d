"""Finds the checkpoint that a restarted program continues from.

Unlike a rollback, it may be one that is still on probation: the last one of a run that was stopped
normally had no further steps to prove itself.
"""

from runwatch_hooks.actions.checkpoint_files import CheckpointFacts
from runwatch_hooks.actions.checkpoints import Loaded
from runwatch_hooks.actions.keeper import CheckpointKeeper
from runwatch_hooks.agreement import Meeting
from runwatch_hooks.own_log import OwnLog

log = OwnLog(__name__)


def checkpoint_to_resume(
    keeper: CheckpointKeeper | None, meeting: Meeting | None = None
) -> Loaded | None:
    """The newest sound checkpoint: of this run, or else of another in the folder. With several
    ranks, which meet here, the newest that all of them can load. Raises StoreError."""
    loaded = _newest(keeper) if meeting is None else _common(keeper, meeting)
    if loaded is None and keeper is not None and (num_nonfinite := keeper.num_nonfinite()):
        log.warning("nothing to resume; checkpoints that are not finite: %d", num_nonfinite)
    return loaded


def _newest(keeper: CheckpointKeeper | None) -> Loaded | None:
    return None if keeper is None else keeper.load_newest(_is_sound, of_any_run=True)


def _common(keeper: CheckpointKeeper | None, meeting: Meeting) -> Loaded | None:
    held = set[int]() if keeper is None else set(keeper.steps(_is_sound, of_any_run=True))
    while (step := meeting.common(held)) is not None and keeper is not None:
        loaded = keeper.load_newest(
            lambda facts: _is_sound(facts) and facts.step == step, of_any_run=True
        )
        run_id = None if loaded is None else loaded.checkpoint.facts.run_id
        if meeting.all_took_one(run_id):
            return loaded
        held.discard(step)  # damaged on a rank, or not the same run's: no rank takes it
    return None


def _is_sound(facts: CheckpointFacts) -> bool:
    return not facts.is_suspect and not facts.is_undone
