"""Layers that are to be trained and are not, each kind beside its healthy twin."""

import gc
from collections.abc import Callable

import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.optim import SGD

from runwatch.omissions import OMISSION, Omission, Why
from runwatch_hooks.observers.mistakes.untrained import (
    IDLE_AFTER,
    IN_VAIN_AFTER,
    LOOKED_EVERY,
    UNREACHED_AFTER,
)
from runwatch_hooks.watch import Watch

UNHELD_AFTER = LOOKED_EVERY
"""Rows until layers that are left out from the start are told: three checks come early."""


def parts() -> nn.ModuleDict:
    torch.manual_seed(0)
    return nn.ModuleDict({"body": nn.Linear(2, 2), "head": nn.Linear(2, 1)})


def train(
    loss_of: Callable[[], Tensor], watch: Watch, steps: int, model: nn.Module, *optimizers: SGD
) -> None:
    for _ in range(steps):
        model.zero_grad()
        torch.autograd.backward(loss_of())
        for optimizer in optimizers:
            optimizer.step()
        watch.step(loss=1.0)


def loss_of_both(model: nn.ModuleDict) -> Callable[[], Tensor]:
    def loss() -> Tensor:
        found: Tensor = model["head"](model["body"](torch.ones(1, 2))).sum()
        return found

    return loss


def told(line: RecordingLine) -> list[object]:
    return [event.detail["what"] for event in line.events if event.kind == "untrained"]


def test_an_optimizer_whose_layers_no_gradient_reaches_is_told(line: RecordingLine) -> None:
    model = parts()
    optimizers = [SGD(model["body"].parameters(), 1e-3), SGD(model["head"].parameters(), 1e-3)]
    watch = watched(model, *optimizers, line=line)

    train(
        lambda: model["head"](model["body"](torch.ones(1, 2)).detach()).sum(),
        watch,
        IN_VAIN_AFTER + 1,
        model,
        *optimizers,
    )

    assert line.metric("untrained_layers") == [2.0, 2.0]
    assert told(line) == [
        (
            "no gradient has reached any layer of an optimizer, although they should be trained: "
            "body.weight, body.bias"
        )
    ]
    assert "unwatched" not in line.kinds()


def test_what_is_reached_at_last_is_untrained_no_longer(line: RecordingLine) -> None:
    model = parts()
    optimizers = [SGD(model["body"].parameters(), 1e-3), SGD(model["head"].parameters(), 1e-3)]
    watch = watched(model, *optimizers, line=line)

    def whole() -> Tensor:
        loss: Tensor = model["head"](model["body"](torch.ones(1, 2))).sum()
        return loss

    def cut() -> Tensor:
        loss: Tensor = model["head"](model["body"](torch.ones(1, 2)).detach()).sum()
        return loss

    train(cut, watch, IN_VAIN_AFTER, model, *optimizers)
    train(whole, watch, 2, model, *optimizers)

    assert line.metric("untrained_layers") == [2.0, 0.0, 0.0]


def test_frozen_layers_are_not_to_be_trained(line: RecordingLine) -> None:
    model = parts()
    model["body"].requires_grad_(False)
    optimizers = [SGD(model["body"].parameters(), 1e-3), SGD(model["head"].parameters(), 1e-3)]
    watch = watched(model, *optimizers, line=line)
    train(
        lambda: model["head"](model["body"](torch.ones(1, 2))).sum(),
        watch,
        IN_VAIN_AFTER + 1,
        model,
        *optimizers,
    )

    assert len(line.rows) == IN_VAIN_AFTER + 1
    assert line.metric("untrained_layers") == []


def test_optimizers_that_step_by_turns_are_both_trained(line: RecordingLine) -> None:
    model = parts()
    optimizers = [SGD(model["body"].parameters(), 1e-3), SGD(model["head"].parameters(), 1e-3)]
    watch = watched(model, *optimizers, line=line)
    for number in range(3 * IN_VAIN_AFTER):
        model.zero_grad()
        turn = number % 2
        torch.autograd.backward(model["head" if turn else "body"](torch.ones(1, 2)).sum())
        optimizers[turn].step()
        watch.step(loss=1.0)

    assert line.metric("untrained_layers") == []
    assert told(line) == []


def test_a_layer_that_never_had_a_gradient_among_others_is_told_later(line: RecordingLine) -> None:
    model = parts()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    train(
        lambda: model["head"](model["body"](torch.ones(1, 2)).detach()).sum(),
        watch,
        UNREACHED_AFTER + 1,
        model,
        optimizer,
    )

    assert line.metric("unreached_layers") == [2.0, 2.0]
    assert line.metric("untrained_layers") == []
    assert told(line) == [
        (
            "no gradient has ever reached these layers, although they should be trained: "
            "body.weight, body.bias"
        )
    ]


def test_layers_with_gradients_that_no_optimizer_holds_are_told(line: RecordingLine) -> None:
    model = parts()
    optimizer = SGD(model["head"].parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    train(
        lambda: model["head"](model["body"](torch.ones(1, 2))).sum(),
        watch,
        UNHELD_AFTER + 1,
        model,
        optimizer,
    )

    assert line.metric("untrained_layers") == [2.0, 2.0]
    assert told(line) == [
        (
            "these layers have gradients, and no optimizer steps them, "
            "although they should be trained: body.weight, body.bias"
        )
    ]
    (event,) = [event for event in line.events if event.kind == OMISSION]
    assert Omission.of_detail(event.detail) == Omission(
        str(event.detail["what"]),
        "untrained_layers",
        ("body.weight", "body.bias"),
        2,
        Why.NO_OPTIMIZER,
    )


def test_layers_that_are_left_out_later_are_told_after_four_checks(line: RecordingLine) -> None:
    model = parts()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    loss = loss_of_both(model)
    train(loss, watch, LOOKED_EVERY, model, optimizer)
    model["head"] = nn.Linear(2, 1)
    train(loss, watch, 4 * LOOKED_EVERY, model, optimizer)

    assert line.metric("untrained_layers") == [2.0]


def test_a_layer_that_replaced_one_of_the_optimizer_is_told(line: RecordingLine) -> None:
    model = parts()
    optimizer = SGD(model.parameters(), 1e-3)
    model["head"] = nn.Linear(2, 1)
    watch = watched(model, optimizer, line=line)
    train(
        lambda: model["head"](model["body"](torch.ones(1, 2))).sum(),
        watch,
        UNHELD_AFTER,
        model,
        optimizer,
    )

    assert line.metric("untrained_layers") == [2.0]


def test_layers_that_another_optimizer_did_not_take_over_are_told(line: RecordingLine) -> None:
    model = parts()
    optimizer = SGD(model.parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    loss = loss_of_both(model)
    train(loss, watch, LOOKED_EVERY, model, optimizer)
    model["head"] = nn.Linear(2, 1)
    optimizer = SGD(model["head"].parameters(), 1e-3)
    gc.collect()
    train(loss, watch, 4 * LOOKED_EVERY, model, optimizer)

    assert line.metric("untrained_layers") == [2.0]
    assert "body.weight" in str(told(line)[-1])


def test_layers_of_an_optimizer_that_never_steps_are_told_late(line: RecordingLine) -> None:
    model = parts()
    forgotten = SGD(model["head"].parameters(), 1e-3)
    optimizer = SGD(model["body"].parameters(), 1e-3)
    watch = watched(model, forgotten, optimizer, line=line)
    loss = loss_of_both(model)
    train(loss, watch, IDLE_AFTER + 3 * LOOKED_EVERY - 1, model, optimizer)
    assert line.metric("untrained_layers") == []

    train(loss, watch, 1, model, optimizer)
    assert line.metric("untrained_layers") == [2.0]
    assert "head.weight" in str(told(line)[-1])


def test_an_optimizer_that_steps_rarely_holds_its_layers(line: RecordingLine) -> None:
    model = parts()
    rare = SGD(model["head"].parameters(), 1e-3)
    optimizer = SGD(model["body"].parameters(), 1e-3)
    watch = watched(model, rare, optimizer, line=line)
    loss = loss_of_both(model)
    train(loss, watch, 200, model, optimizer)
    train(loss, watch, 1, model, optimizer, rare)
    train(loss, watch, 400, model, optimizer)

    assert line.metric("untrained_layers") == []


def test_a_layer_that_the_program_moves_by_hand_is_trained(line: RecordingLine) -> None:
    model = parts()
    optimizer = SGD(model["head"].parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    for _ in range(UNHELD_AFTER):
        model.zero_grad()
        model["head"](model["body"](torch.ones(1, 2))).sum().backward()
        optimizer.step()
        for parameter in model["body"].parameters():
            assert parameter.grad is not None
            parameter.data -= 1e-3 * parameter.grad
        watch.step(loss=1.0)

    assert line.metric("untrained_layers") == []


def test_parameters_in_half_precision_whose_copies_are_stepped_are_trained(
    line: RecordingLine,
) -> None:
    model = parts().to(torch.bfloat16)
    copies = [one.detach().float() for one in model.parameters()]
    optimizer = SGD(copies, 1e-9)  # so small that the halves, which follow, never move
    watch = watched(model, optimizer, line=line)
    for _ in range(UNHELD_AFTER):
        model.zero_grad()
        model["head"](model["body"](torch.ones(1, 2).bfloat16())).sum().backward()
        for copy, parameter in zip(copies, model.parameters(), strict=True):
            assert parameter.grad is not None
            copy.grad = parameter.grad.float()
        optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("untrained_layers") == []


def test_parameters_that_have_left_the_model_are_not_to_be_trained(line: RecordingLine) -> None:
    model = parts()
    before = SGD(model.parameters(), 1e-3)
    watch = watched(model, before, line=line)
    loss = loss_of_both(model)
    train(loss, watch, 2, model, before)
    model["body"] = nn.Linear(2, 2)  # as where a parametrization is removed
    train(loss, watch, UNHELD_AFTER + 1, model, SGD(model.parameters(), 1e-3))

    assert before.param_groups[0]["params"][0].grad is not None
    assert told(line) == []


def test_gradients_that_an_earlier_training_left_are_none_of_this_one(line: RecordingLine) -> None:
    model = parts()
    torch.autograd.backward(model["body"](torch.ones(1, 2)).sum())
    optimizer = SGD(model["head"].parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    for _ in range(UNHELD_AFTER + 1):
        optimizer.zero_grad()
        with torch.no_grad():
            features = model["body"](torch.ones(1, 2))
        torch.autograd.backward(model["head"](features).sum())
        optimizer.step()
        watch.step(loss=1.0)

    assert told(line) == []


def test_gradients_that_nobody_clears_and_no_optimizer_holds_are_told(line: RecordingLine) -> None:
    model = parts()
    optimizer = SGD(model["head"].parameters(), 1e-3)
    watch = watched(model, optimizer, line=line)
    for _ in range(UNHELD_AFTER):
        optimizer.zero_grad()
        torch.autograd.backward(model["head"](model["body"](torch.ones(1, 2))).sum())
        optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("untrained_layers") == [2.0]
