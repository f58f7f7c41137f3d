"""Checkpoints of jobs with several ranks, which can be resumed by another number of ranks.

Rank 0 writes to the folder itself, and every other rank to a subfolder of its own. A job with
another number of ranks takes what it needs from all of these folders, if it can read them.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import cast

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.ranks import World
from runwatch_hooks.state.checkpoint_files import Checkpoint
from runwatch_hooks.state.checkpoints import CheckpointStore, Loaded
from runwatch_hooks.state.loop_state import ProcessRng
from runwatch_hooks.state.outcomes import DamagedCheckpointError, StateMismatchError
from runwatch_hooks.state.sharded import MODULES, OPTIMIZERS, extents_of, gathered
from runwatch_hooks.state.training_state import TrainingState
from runwatch_hooks.state.tree import Captured, Mapped

log = OwnLog(__name__)


class RankCheckpoints(CheckpointStore):
    """The checkpoints of one rank.

    With DistributedDataParallel, parameters and optimizer state are the same on all ranks, and only
    rank 0 writes them. Otherwise each rank writes everything it holds: its shards or its stage.
    """

    def __init__(
        self,
        folder: Path,
        world: World,
        state: TrainingState,
        *,
        keep: int = 3,
        run_id: str = "",
    ) -> None:
        super().__init__(
            _folder_of(folder, world.rank), keep=keep, world_size=world.world_size, run_id=run_id
        )
        self._root = folder
        self._rank = world.rank
        self._state = state
        self._leaves_to_rank_0 = world.rank > 0 and _are_replicas(state.modules)

    def save(self, step: int, captured: Captured, actor: Mapping[str, object]) -> Checkpoint:
        if self._leaves_to_rank_0:
            captured = Captured(_own_part(captured.tree), captured.flag)
        return super().save(step, captured, actor)

    def places(self) -> Mapped:
        return extents_of(self._state)

    def loadable(self) -> Sequence[Checkpoint]:
        """This rank's checkpoints, and those of other numbers of ranks that are complete.

        If a run saved a step with two numbers of ranks, rank 0's newest decides, so that all ranks
        take the same. The order is that of rank 0's folder if it is known, because each folder
        numbers its files by itself.
        """
        newest = {_saving_of(one): one for one in _sound(_store(self._root).list())}
        foreign = {saving: one for saving, one in newest.items() if self._is_foreign(one)}
        ours = [
            one
            for one in self.list()
            if not self._is_foreign(one) and _saving_of(one) not in foreign
            if not self._leaves_to_rank_0 or _saving_of(one) in newest
        ]
        whole = [one for one in foreign.values() if self._is_whole(one)]

        def order(one: Checkpoint) -> tuple[int, int]:
            return newest.get(_saving_of(one), one).facts.serial, one.facts.serial

        return sorted([*ours, *whole], key=order)

    def load(self, checkpoint: Checkpoint, *, mapped: bool = False) -> Loaded:
        if self._is_foreign(checkpoint):
            return self._gathered(checkpoint)
        own = super().load(checkpoint, mapped=mapped)
        if not self._leaves_to_rank_0:
            return own
        whole = self._part_of(0, checkpoint)
        return Loaded(checkpoint, _joined(whole.tree, own.tree), own.actor)

    def _is_foreign(self, checkpoint: Checkpoint) -> bool:
        """Whether another number of ranks wrote it. Old checkpoints do not record the number."""
        return checkpoint.facts.world_size not in (0, self.world_size)

    def _is_whole(self, checkpoint: Checkpoint) -> bool:
        return all(
            self._find_part(rank, checkpoint) is not None
            for rank in range(checkpoint.facts.world_size)
        )

    def _find_part(self, rank: int, checkpoint: Checkpoint) -> Checkpoint | None:
        """The checkpoint that `rank` saved together with this one; None if it is missing."""
        world_size = checkpoint.facts.world_size
        held = _sound(_store(_folder_of(self._root, rank)).list())
        found = [
            one
            for one in held
            if _saving_of(one) == _saving_of(checkpoint) and one.facts.world_size == world_size
        ]
        return found[-1] if found else None

    def _part_of(self, rank: int, checkpoint: Checkpoint, *, mapped: bool = False) -> Loaded:
        """Raises DamagedCheckpointError."""
        folder = _folder_of(self._root, rank)
        found = self._find_part(rank, checkpoint)
        if found is None:
            raise DamagedCheckpointError(
                f"{checkpoint.path}: found none of rank {rank} in {folder}, wanted step "
                f"{checkpoint.step}"
            )
        return _store(folder).load(found, mapped=mapped)

    def _gathered(self, checkpoint: Checkpoint) -> Loaded:
        """This rank's part of a state that another number of ranks wrote.

        Files are mapped into memory, and only what this rank needs is copied. Raises
        StateMismatchError, rather than skip the checkpoint: a job must not start over because its
        state was not understood.
        """
        num_ranks = checkpoint.facts.world_size
        parts = [self._part_of(rank, checkpoint, mapped=True) for rank in range(num_ranks)]
        is_new = self._rank >= num_ranks
        base = parts[0 if is_new else self._rank].tree
        objects = cast(Mapped, base["objects"])
        if is_new:  # with rank 0's generators it would drop out the same units as rank 0
            objects = {**objects, "rng": ProcessRng().state_dict()}
        log.warning(
            "step %d was saved by %d ranks and is resumed by %d: weights and optimizers are "
            "complete; a loader continues at the position that it had on its rank",
            checkpoint.step,
            num_ranks,
            self.world_size,
        )
        try:
            tree = gathered({**base, "objects": objects}, parts, self._state)
        except (StateMismatchError, KeyError, IndexError) as error:  # unknown names or indices
            raise StateMismatchError(
                f"{checkpoint.path}: the parts of {num_ranks} ranks do not fit ({error!r})"
            ) from error
        return Loaded(checkpoint, tree, parts[0].actor)


def _folder_of(root: Path, rank: int) -> Path:
    return root if rank == 0 else root / f"rank-{rank:05d}"


def _store(folder: Path) -> CheckpointStore:
    """A store used only for reading."""
    return CheckpointStore(folder)


def _saving_of(checkpoint: Checkpoint) -> tuple[str, int]:
    """(run id, step), which identifies what the ranks saved together."""
    return checkpoint.facts.run_id, checkpoint.step


def _sound(held: Iterable[Checkpoint]) -> list[Checkpoint]:
    return [one for one in held if not one.facts.is_undone]


def _are_replicas(modules: Mapping[str, nn.Module]) -> bool:
    return any(
        isinstance(part, DistributedDataParallel)
        for module in modules.values()
        for part in module.modules()
    )


def _own_part(tree: Mapped) -> Mapped:
    """What differs between DDP ranks: buffers (BatchNorm statistics of the rank's own batches),
    generators, loaders; also schedulers."""
    modules: Mapped = {
        name: {**cast(Mapped, module), "parameters": Mapped()}
        for name, module in cast(Mapped, tree[MODULES]).items()
    }
    return {**tree, MODULES: modules, OPTIMIZERS: {}}


def _joined(whole: Mapped, own: Mapped) -> Mapped:
    theirs = cast("dict[str, Mapped]", whole[MODULES])
    modules = {
        name: {**cast(Mapped, module), "parameters": theirs[str(name)]["parameters"]}
        for name, module in cast(Mapped, own[MODULES]).items()
    }
    return {**own, MODULES: modules, OPTIMIZERS: whole[OPTIMIZERS]}
