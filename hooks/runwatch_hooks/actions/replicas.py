"""Checkpoints of ranks that hold the same model: written once, beside what each has of its own."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from runwatch_hooks.actions.checkpoints import Checkpoint, CheckpointStore, Loaded
from runwatch_hooks.actions.errors import DamagedCheckpointError
from runwatch_hooks.actions.training_state import Captured
from runwatch_hooks.actions.trees import Mapped


def store_of_rank(
    folder: Path, rank: int, modules: Mapping[str, nn.Module], *, keep: int
) -> CheckpointStore:
    """Rank 0 writes to the folder itself, and every other rank to one of its own below it.

    Under DistributedDataParallel parameters and optimizer are the same on all ranks, and the
    others leave them to rank 0. Any other rank writes all that it holds: its shards, its stage.
    """
    whole = CheckpointStore(folder, keep=keep)
    if rank == 0:
        return whole
    own = folder / f"rank-{rank:05d}"
    if _are_replicas(modules):
        return ReplicaStore(own, whole, keep=keep)
    return CheckpointStore(own, keep=keep)


class ReplicaStore(CheckpointStore):
    """Of a rank that leaves to rank 0 what is the same on both."""

    def __init__(self, folder: Path, whole: CheckpointStore, *, keep: int = 3) -> None:
        super().__init__(folder, keep=keep)
        self._whole = whole

    def save(self, step: int, captured: Captured, actor: Mapping[str, object]) -> Checkpoint:
        return super().save(step, Captured(_own_part(captured.tree), captured.flag), actor)

    def load(self, checkpoint: Checkpoint) -> Loaded:
        own = super().load(checkpoint)
        whole = self._whole.load_newest(
            lambda facts: facts.step == checkpoint.step and not facts.is_undone
        )
        if whole is None:
            raise DamagedCheckpointError(
                f"{checkpoint.path}: found none of rank 0 in {self._whole.folder}, wanted step "
                f"{checkpoint.step}"
            )
        return Loaded(checkpoint, _joined(whole.tree, own.tree), own.actor)

    def is_complete(self, checkpoint: Checkpoint) -> bool:
        return any(
            one.step == checkpoint.step and not one.facts.is_undone for one in self._whole.list()
        )


def _are_replicas(modules: Mapping[str, nn.Module]) -> bool:
    return any(
        isinstance(part, DistributedDataParallel)
        for module in modules.values()
        for part in module.modules()
    )


def _own_part(tree: Mapped) -> Mapped:
    """Buffers (BatchNorm sees each rank's own batches), generators, loaders, schedulers."""
    modules: Mapped = {
        name: {**cast(Mapped, module), "parameters": Mapped()}
        for name, module in cast(Mapped, tree["modules"]).items()
    }
    return {**tree, "modules": modules, "optimizers": {}}


def _joined(whole: Mapped, own: Mapped) -> Mapped:
    theirs = cast("dict[str, Mapped]", whole["modules"])
    modules = {
        name: {**cast(Mapped, module), "parameters": theirs[str(name)]["parameters"]}
        for name, module in cast(Mapped, own["modules"]).items()
    }
    return {**own, "modules": modules, "optimizers": whole["optimizers"]}
