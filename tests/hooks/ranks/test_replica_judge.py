"""Which parameters are copies, as their values show it, and which rank stands apart."""

from collections.abc import Callable, Sequence

import pytest
import torch
from tests.hooks.ranks.fingerprints import fingerprint
from tests.hooks.tiny import tiny_gpt
from torch import Tensor, nn

from runwatch_hooks.ranks.replica_judge import ReplicaJudge
from runwatch_hooks.ranks.replicas import EVERY, ROUND, ReplicaSampler
from runwatch_hooks.statistics.layer_names import NamedTensor, name_tensors

Update = Callable[[int, str, int], float]
"""(rank, name of the parameter, step) -> what makes its update another than that of other ranks."""


def judged(*rounds: list[int], is_bound: bool = False) -> tuple[ReplicaJudge, list[str]]:
    """The values of ranks 0, 1, ... at one comparison after another, a round apart."""
    judge = ReplicaJudge()
    told = [
        judge.take(
            rank, fingerprint(at * ROUND, value, ranks=range(len(values)), is_bound=is_bound)
        )
        for at, values in enumerate(rounds)
        for rank, value in enumerate(values)
    ]
    return judge, [one for one in told if one is not None]


def drifted(judge: ReplicaJudge) -> list[int]:
    return [one.rank for one in judge.drifted]


def test_the_rank_that_differs_from_most_has_drifted() -> None:
    judge, _ = judged([5, 5, 5, 5], [6, 9, 6, 6])

    assert drifted(judge) == [1]


def test_rank_0_may_be_the_one() -> None:
    judge, _ = judged([5, 5, 5], [4, 6, 6])

    assert drifted(judge) == [0]


def test_of_two_that_differ_it_is_the_other_than_rank_0() -> None:
    judge, _ = judged([5, 5], [5, 6])

    assert drifted(judge) == [1]


def test_one_that_is_equal_again_has_not_drifted() -> None:
    judge, _ = judged([5, 5], [5, 6], [7, 7])

    assert drifted(judge) == []


def test_a_layout_that_is_gone_leaves_no_rank_behind_that_has_drifted() -> None:
    judge, _ = judged([5, 5], [5, 6])
    found: list[list[int]] = []
    for step in (ROUND + EVERY, 4 * ROUND):
        for rank in (0, 1):
            judge.take(rank, fingerprint(step, 7, first_key=2))
        found.append(drifted(judge))

    assert found == [[1], []]


def test_ranks_that_never_were_equal_are_no_replicas_and_that_is_told_once() -> None:
    judge, told = judged([1, 2, 3], [4, 5, 6], [7, 8, 9])

    assert (drifted(judge), judge.has_compared) == ([], False)
    assert len(told) == 1
    assert "no replicas" in told[0]


def test_copies_in_a_wrapper_drift_from_the_first_comparison_on_and_are_not_reduced() -> None:
    judge, told = judged([1, 2, 3], is_bound=True)

    assert [(one.rank, one.is_unreduced) for one in judge.drifted] == [(1, True), (2, True)]
    assert told == []


def test_copies_in_a_wrapper_that_were_equal_once_are_reduced() -> None:
    judge, _ = judged([1, 1], [2, 3], is_bound=True)

    assert [(one.rank, one.is_unreduced) for one in judge.drifted] == [(1, False)]


def test_parameters_that_were_made_later_are_copies_where_they_are_equal() -> None:
    judge, _ = judged([5, 5], [6, 6])
    for step, values in ((ROUND + EVERY, (7, 7)), (2 * ROUND, (8, 9))):
        for rank, value in enumerate(values):
            judge.take(rank, fingerprint(step, value, first_key=2))

    assert drifted(judge) == [1]


class Block(nn.Module):
    """A layer that is split by columns, and one by rows. Biases begin at zero, as nearly all do."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.up = nn.Linear(8, 16)
        self.down = nn.Linear(16, 8)
        self.idle = nn.Linear(8, 3, bias=False)
        for tensor in (self.up.bias, self.down.bias, self.idle.weight):
            nn.init.zeros_(tensor)


def split_model(seed: int) -> nn.Module:
    """Its blocks are made with a seed of the rank's own, and its head with the same everywhere."""
    torch.manual_seed(seed)
    block = Block()
    torch.manual_seed(0)
    return nn.ModuleDict({"block": block, "head": nn.Linear(8, 4)})


def is_split(name: str) -> bool:
    return any(part in name for part in ("up", "down.weight", "idle"))


def mark(model: nn.Module) -> nn.Module:
    for name, one in model.named_parameters():
        one.tensor_model_parallel = is_split(name)  # type: ignore[attr-defined]
    return model


def trained(models: Sequence[nn.Module], apart: Update, steps: int = 2 * ROUND + 1) -> "Trained":
    """The models of all ranks, as long as it takes to compare all parameters twice."""
    found = Trained(models)
    for step in range(steps):
        for rank, named in enumerate(found.named):
            noise = torch.Generator().manual_seed(step)
            for one in named:
                amount = 1e-3 * (1.0 + apart(rank, one.name, step))
                _change(one.tensor, amount, noise)
        found.compare(step)
    return found


def _change(tensor: Tensor, amount: float, noise: torch.Generator) -> None:
    tensor.detach().add_(torch.randn(tensor.shape, generator=noise), alpha=amount)


class Trained:
    def __init__(self, models: Sequence[nn.Module]) -> None:
        self.judge = ReplicaJudge()
        self.notices: list[str] = []
        self.named: list[tuple[NamedTensor, ...]] = [name_tensors({"": one}, []) for one in models]
        self._samplers = [ReplicaSampler(rank, len(models)) for rank in range(len(models))]
        for sampler, named in zip(self._samplers, self.named, strict=True):
            sampler.begin(named)

    def compare(self, step: int) -> None:
        for rank, (sampler, named) in enumerate(zip(self._samplers, self.named, strict=True)):
            for one in sampler.sample(step, named):
                notice = self.judge.take(rank, one)
                if notice is not None:
                    self.notices.append(f"{step}: {notice}")

    @property
    def drifted(self) -> dict[int, set[str | None]]:
        return {
            one.rank: {self._samplers[one.rank].name_of(key) for key in one.keys}
            for one in self.judge.drifted
        }


def test_parts_of_tensor_parallelism_by_hand_are_no_copies_and_all_else_is() -> None:
    found = trained(
        [split_model(1), split_model(2)], lambda rank, name, step: rank if is_split(name) else 0.0
    )

    assert (found.drifted, found.notices) == ({}, [])
    assert found.judge.has_compared


def test_whole_layers_that_drift_apart_beside_parts_are_named() -> None:
    found = trained([split_model(1), split_model(2)], lambda rank, name, step: rank)

    assert found.drifted == {
        1: {"block.norm.weight", "block.norm.bias", "head.weight", "head.bias"}
    }
    assert found.notices == []


def test_parts_that_began_alike_are_no_copies_if_they_are_marked() -> None:
    models = [mark(split_model(1)), mark(split_model(1))]
    found = trained(models, lambda rank, name, step: rank if is_split(name) else 0.0)

    assert (found.drifted, found.notices) == ({}, [])


def test_unmarked_layers_beside_marked_ones_are_copies() -> None:
    models = [mark(split_model(1)), mark(split_model(1))]
    found = trained(models, lambda rank, name, step: rank)

    whole = {name for name, _ in models[0].named_parameters() if not is_split(name)}
    assert found.drifted == {1: whole}


def test_marked_layers_that_are_equal_while_they_move_are_copies() -> None:
    """As on ranks that train the same part with other data."""
    models = [mark(split_model(1)), mark(split_model(1))]
    found = trained(models, lambda rank, name, step: rank * (step > 3 * ROUND), 5 * ROUND)

    assert found.drifted == {1: {name for name, _ in models[0].named_parameters()}}


def test_with_two_parts_on_two_ranks_each_the_copies_of_each_part_are_compared() -> None:
    models = [split_model(1), split_model(2), split_model(1), split_model(2)]

    def apart(rank: int, name: str, step: int) -> float:
        part = rank % 2 if is_split(name) else 0
        return part + (rank == 3 and step > ROUND and name == "block.up.weight")

    assert trained(models, apart).drifted == {3: {"block.up.weight"}}


def test_members_of_an_ensemble_that_began_with_one_seed_are_no_replicas() -> None:
    found = trained([tiny_gpt(), tiny_gpt()], lambda rank, name, step: rank)

    assert found.drifted == {}
    assert len(found.notices) == 1
    assert "no replicas" in found.notices[0]


def test_stages_that_began_with_one_seed_and_are_replicated_are_compared_with_their_likes() -> None:
    """Ranks 0 and 2 train one stage, 1 and 3 the next; the layers' names are alike."""
    models = [tiny_gpt() for _ in range(4)]
    found = trained(models, lambda rank, name, step: rank % 2)

    assert (found.drifted, found.notices) == ({}, [])
    assert found.judge.has_compared


def test_a_parameter_that_is_left_out_of_the_reduction_by_hand_is_named() -> None:
    models = [tiny_gpt(), tiny_gpt()]
    left_out = list(dict(models[0].named_parameters()))[3]
    found = trained(models, lambda rank, name, step: rank if name == left_out else 0.0)

    assert found.drifted == {1: {left_out}}


def test_replicas_that_are_made_equal_after_the_first_step_are_compared() -> None:
    torch.manual_seed(1)
    models = [nn.Linear(4, 4), nn.Linear(4, 4)]
    found = Trained(models)
    for step in range(4 * ROUND):
        if step == 3:
            models[1].load_state_dict(models[0].state_dict())
        for rank, model in enumerate(models):
            noise = torch.Generator().manual_seed(step)
            for one in model.parameters():
                is_apart = rank == 1 and step == 3 * ROUND - 1
                _change(one, 2e-3 if is_apart else 1e-3, noise)
        found.compare(step)

    assert found.drifted == {1: {"weight", "bias"}}


@pytest.mark.parametrize("lead", [0, 2 * ROUND])
def test_ranks_without_a_parameter_in_common_are_told_once_all_was_sampled(lead: int) -> None:
    stages = [nn.ModuleDict({name: tiny_gpt()}) for name in ("first", "last")]
    named = [name_tensors({"": one}, []) for one in stages]
    samplers = [ReplicaSampler(rank, 2) for rank in range(2)]
    judge = ReplicaJudge()
    told: list[tuple[int, str]] = []
    for step in range(2 * ROUND + 1 + lead):
        for rank in range(2):
            now = step - lead * rank  # the other one may be far behind, and is no stage for that
            for one in samplers[rank].sample(now, named[rank]) if now >= 0 else ():
                if (said := judge.take(rank, one)) is not None:
                    told.append((now, said))

    assert [step for step, _ in told] == [ROUND]
    assert "layers that rank 0 does not hold are not measured" in told[0][1]
