"""Names and places of what is trained."""

from collections.abc import Iterator

import pytest
import torch
from tests.hooks.tiny import tiny_gpt
from torch import nn
from torch.nn.parallel import DataParallel

from runwatch_hooks.statistics.layer_names import clean_name, name_tensors
from runwatch_hooks.step.layers import KnownOptimizer, LayerTable

STATS = ("grad_norm",)


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def test_wrappers_leave_no_trace_in_a_name() -> None:
    assert clean_name("module._orig_mod.blocks.3.attn.qkv.weight") == "blocks.3.attn.qkv.weight"
    assert clean_name("a._fsdp_wrapped_module.b._checkpoint_wrapped_module.w") == "a.b.w"
    assert clean_name("module") == "module"


def test_a_wrapped_module_bears_its_own_names() -> None:
    model = nn.Linear(2, 2)
    named = name_tensors({"": DataParallel(model)}, [])

    assert [one.name for one in named] == ["weight", "bias"]


def test_tied_weights_are_one_layer_with_two_names() -> None:
    table = LayerTable({"": tiny_gpt()}, [], STATS)
    tied = [layer for layer in table.layout.layers if layer.aliases]

    assert [(layer.name, layer.aliases) for layer in tied] == [("tokens.weight", ("head.weight",))]


def test_several_modules_keep_their_names_apart() -> None:
    modules = {"generator": nn.Linear(1, 1), "critic": nn.Linear(1, 1)}

    assert LayerTable(modules, [], STATS).layout.layer_names == (
        "generator.weight",
        "generator.bias",
        "critic.weight",
        "critic.bias",
    )


def test_a_parameter_that_only_an_optimizer_knows_is_named_by_its_place() -> None:
    optimizer = torch.optim.SGD([{"params": [nn.Parameter(torch.ones(2))]}], lr=0.1)

    assert LayerTable({}, [KnownOptimizer(optimizer)], STATS).layout.layer_names == ("opt0.g0.p0",)


def test_a_parameter_without_numbers_is_no_layer_until_it_has_some() -> None:
    model = nn.Sequential(nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False, device="meta"))
    table = LayerTable({"": model}, [], STATS)
    assert table.layout.layer_names == ("0.weight",)

    model[1].to_empty(device="cpu")

    assert table.rebuilt().layout.layer_names == ("0.weight", "1.weight")


def test_a_frozen_parameter_is_no_layer_until_it_is_trained() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    table = LayerTable({"": model}, [KnownOptimizer(sgd(model))], STATS)
    assert table.layout.layer_names == ("weight",)
    assert table.is_current()

    model.bias.requires_grad_(True)

    assert not table.is_current()
    assert table.rebuilt().layout.layer_names == ("weight", "bias")


def test_a_layer_that_is_frozen_for_a_while_stays_one() -> None:
    model = nn.Linear(2, 2)
    table = LayerTable({"": model}, [KnownOptimizer(sgd(model))], STATS)
    model.bias.requires_grad_(False)
    assert table.is_current()
    model.to(torch.bfloat16)

    later = table.rebuilt()
    assert later.layout.layer_names == ("weight", "bias")
    model.bias.requires_grad_(True)
    assert later.is_current()


def test_a_parameter_group_that_is_added_makes_another_layout() -> None:
    model = nn.Linear(2, 2)
    optimizer = sgd(model)
    table = LayerTable({"": model}, [KnownOptimizer(optimizer)], STATS)
    optimizer.add_param_group({"params": [nn.Parameter(torch.ones(3))]})

    assert not table.is_current()
    assert table.rebuilt().layout.hash != table.layout.hash


def test_another_tensor_in_a_group_is_seen_at_once() -> None:
    points = nn.Parameter(torch.ones(3))
    optimizer = torch.optim.SGD([points], lr=0.1)
    table = LayerTable({"": nn.Identity()}, [KnownOptimizer(optimizer)], STATS)
    optimizer.param_groups[0]["params"] = [nn.Parameter(torch.ones(4))]

    assert not table.is_current()
    assert table.rebuilt().layout.layers[0].shape == (4,)


def test_a_layer_that_is_cut_makes_another_layout() -> None:
    model = nn.Linear(2, 6)
    table = LayerTable({"": model}, [KnownOptimizer(sgd(model))], STATS)
    model.weight.data = model.weight.data[:4]

    assert not table.is_current()
    assert [layer.shape for layer in table.rebuilt().layout.layers] == [(4, 2), (6,)]


class OldFashioned(nn.Linear):
    """Overrides what names parameters, as of before torch could leave tied ones in."""

    def named_parameters(  # type: ignore[override]
        self, prefix: str = "", recurse: bool = True
    ) -> Iterator[tuple[str, nn.Parameter]]:
        return super().named_parameters(prefix, recurse)


def test_a_module_that_names_its_parameters_in_an_older_way_is_watched() -> None:
    model = OldFashioned(2, 2)
    table = LayerTable({"a": model}, [KnownOptimizer(sgd(model))], STATS)

    assert table.layout.layer_names == ("a.weight", "a.bias")
    assert table.missed() == []


def test_layers_beyond_the_most_of_a_layout_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("runwatch_hooks.step.layers.MAX_LAYERS", 3)
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), nn.Linear(2, 2))
    table = LayerTable({"": model}, [KnownOptimizer(sgd(model))], STATS)

    assert len(table.named) == 3
    assert table.num_left_out == 3


def test_another_dtype_makes_another_layout() -> None:
    model = nn.Linear(2, 2)
    table = LayerTable({"": model}, [KnownOptimizer(sgd(model))], STATS)
    model.to(torch.bfloat16)

    assert not table.is_current()
    assert table.rebuilt().layout.layers[0].dtype == "bfloat16"


class Travelling(nn.Parameter):
    """Its memory may be elsewhere, as far as it says. No other device is needed for that."""

    place: torch.device | None = None

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.place or super().device


def test_weights_that_are_elsewhere_for_a_while_make_no_other_layout() -> None:
    model = nn.Linear(2, 2)
    model.weight = weight = Travelling(torch.ones(2, 2))
    table = LayerTable({"": model}, [], STATS)
    weight.place = torch.device("meta")
    moved_without_gradient = table.is_current()
    weight.place = None
    torch.autograd.backward(model(torch.ones(1, 2)).sum())
    weight.place = torch.device("meta")

    assert not moved_without_gradient
    assert table.is_current()  # its gradient has stayed
