"""Which losses have no level of their own: where optimizers take turns, or a reward is recorded."""

from threading import Thread
from typing import Any, cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD, Optimizer


def test_a_generator_and_its_judge_take_turns(line: RecordingLine) -> None:
    generator, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [SGD(judge.parameters(), 0.1), SGD(generator.parameters(), 0.1)]
    watch = watched(nn.ModuleDict({"judge": judge, "generator": generator}), *optimizers, line=line)
    for _ in range(3):
        for optimizer, parts in zip(optimizers, ((judge,), (judge, generator)), strict=True):
            for part in parts:
                part.zero_grad()
            judge(generator(torch.ones(1, 2))).sum().backward()
            optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("alternating") == [1.0, 1.0, 1.0]


def test_players_whose_passes_begin_in_compiled_code_take_turns(line: RecordingLine) -> None:
    generator, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [SGD(judge.parameters(), 0.1), SGD(generator.parameters(), 0.1)]
    watch = watched(nn.ModuleDict({"judge": judge, "generator": generator}), *optimizers, line=line)

    def play(x: Tensor, *, is_judge: bool) -> None:
        made = generator(x)
        judge(made.detach() if is_judge else made).sum().backward()

    compiled = torch.compile(play, backend="eager")
    for _ in range(3):
        for optimizer in optimizers:
            compiled(torch.ones(1, 2), is_judge=optimizer is optimizers[0])
            optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("alternating") == [1.0, 1.0, 1.0]


def test_optimizers_that_share_a_backward_pass_do_not(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    optimizers = [SGD([model.weight], 0.1), SGD([model.bias], 0.1)]
    watch = watched(model, *optimizers, line=line)
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizers[0].step()
        clip_grad_norm_([model.bias], 0.1)
        optimizers[1].step()
        watch.step(loss=1.0)

    assert line.metric("loss") == [1.0, 1.0, 1.0]
    assert line.metric("alternating") == []


class SecondOrder(SGD):
    """Runs a pass of its own within its step, as AdaHessian does."""

    def step(self, closure: object = None) -> None:  # type: ignore[override]  # pyright: ignore
        parameters: list[Tensor] = self.param_groups[0]["params"]
        gradients = [cast(Tensor, one.grad).sum() for one in parameters]
        torch.autograd.grad(gradients, parameters, retain_graph=True)
        super().step()


@pytest.mark.filterwarnings("ignore:Using backward.. with create_graph=True:UserWarning")
def test_a_pass_within_a_step_is_none_of_the_next_optimizer(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    optimizers = [SGD([model.weight], 0.1), SecondOrder([model.bias], 0.1)]
    watch = watched(model, *optimizers, line=line)
    for _ in range(3):
        model.zero_grad()
        loss = model(torch.ones(1, 2)).square().sum()
        torch.autograd.backward(loss, create_graph=True)
        for optimizer in optimizers:
            optimizer.step()
        watch.step(loss=1.0)
    model.zero_grad()

    assert line.metric("loss") == [1.0, 1.0, 1.0]
    assert line.metric("alternating") == []


def test_a_pass_that_only_looks_at_gradients_is_none_of_the_next_optimizer(
    line: RecordingLine,
) -> None:
    """As for a diagnosis, after the first of two optimizers that share a pass has stepped."""
    model = nn.Linear(2, 2)
    optimizers = [SGD([one], 0.1) for one in model.parameters()]
    watch = watched(model, *optimizers, line=line)
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizers[0].step()
        torch.autograd.grad(model(torch.ones(1, 2)).sum(), list(model.parameters()))
        optimizers[1].step()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [2.0, 2.0, 2.0]
    assert line.metric("alternating") == []


def test_players_whose_gradients_are_computed_apart_and_put_there_take_turns(
    line: RecordingLine,
) -> None:
    generator, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    watch = watched(
        nn.ModuleDict({"judge": judge, "generator": generator}),
        *(optimizers := [SGD(judge.parameters(), 0.1), SGD(generator.parameters(), 0.1)]),
        line=line,
    )
    for _ in range(3):
        for player, optimizer in zip((judge, generator), optimizers, strict=True):
            parameters = list(player.parameters())
            gradients = torch.autograd.grad(judge(generator(torch.ones(1, 2))).sum(), parameters)
            for one, gradient in zip(parameters, gradients, strict=True):
                one.grad = gradient
            optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("alternating") == [1.0, 1.0, 1.0]


def train_in_rows(line: RecordingLine, turns: str) -> list[int]:
    """Rows that each step one of two layers, `a` or `b`, or both (`c`), each by an optimizer of its
    own. Returns the rows that are recorded as alternating."""
    layers = nn.ModuleDict({name: nn.Linear(2, 2) for name in "ab"})
    optimizers = {name: SGD(one.parameters(), 0.1) for name, one in layers.items()}
    watch = watched(layers, *optimizers.values(), line=line)
    for turn in turns:
        layers.zero_grad()
        layers["a"](layers["b"](torch.ones(1, 2))).sum().backward()
        for name in "ab" if turn == "c" else turn:
            optimizers[name].step()
        watch.step(loss=1.0)
    assert line.metric("loss") == [1.0] * len(turns)
    return [row.step for row in line.rows if "alternating" in row.metrics]


def test_optimizers_of_one_model_that_share_the_passes_of_two_losses_do_not(
    line: RecordingLine,
) -> None:
    """Each loss has a head of its own, and one reaches the body as well."""
    body, heads = nn.Linear(2, 2), nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    model = nn.ModuleDict({"body": body, "heads": heads})
    matrices = [one for one in model.parameters() if one.dim() == 2]
    biases = [one for one in model.parameters() if one.dim() == 1]
    watch = watched(model, *(optimizers := [SGD(matrices, 0.1), SGD(biases, 0.1)]), line=line)
    for _ in range(3):
        model.zero_grad()
        heads[0](body(torch.ones(1, 2))).sum().backward()
        heads[1](body(torch.ones(1, 2)).detach()).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [2.0, 2.0, 2.0]
    assert line.metric("alternating") == []


def test_a_probe_on_detached_features_with_an_optimizer_of_its_own_does_not(
    line: RecordingLine,
) -> None:
    body, probe = nn.Linear(2, 2), nn.Linear(2, 1)
    optimizers = [SGD(body.parameters(), 0.1), SGD(probe.parameters(), 0.1)]
    watch = watched(nn.ModuleDict({"body": body, "probe": probe}), *optimizers, line=line)
    for _ in range(3):
        for optimizer in optimizers:
            optimizer.zero_grad()
        features = body(torch.ones(1, 2))
        features.square().sum().backward()
        probe(features.detach()).sum().backward()
        for optimizer in optimizers:
            optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [2.0, 2.0, 2.0]
    assert line.metric("alternating") == []


def test_stages_of_one_model_with_an_optimizer_each_do_not(line: RecordingLine) -> None:
    """As torch's pipelining runs them: the pass of the first stage continues that of the second."""
    stages = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 1)])
    optimizers = [SGD(one.parameters(), 0.1) for one in stages]
    watch = watched(stages, *optimizers, line=line)
    for _ in range(3):
        stages.zero_grad()
        sent = stages[0](torch.ones(1, 2))
        received = sent.detach().requires_grad_()
        stages[1](received).sum().backward()
        sent.backward(received.grad)
        for optimizer in optimizers:
            optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [2.0, 2.0, 2.0]
    assert line.metric("alternating") == []


def test_players_that_have_rows_of_their_own_take_turns(line: RecordingLine) -> None:
    assert train_in_rows(line, "ababab") == [2, 3, 4, 5]


def test_a_critic_with_five_rows_to_one_of_the_generator_takes_turns(line: RecordingLine) -> None:
    assert train_in_rows(line, "aaaaabaaaaab") == [6, 7, 8, 9, 10, 11]


def test_a_head_that_is_trained_before_the_rest_does_not(line: RecordingLine) -> None:
    assert train_in_rows(line, "aaabbbcccbbb") == []


def test_layers_that_are_trained_in_turn_for_many_rows_do_not(line: RecordingLine) -> None:
    assert train_in_rows(line, 2 * (20 * "a" + 20 * "b")) == []


@pytest.mark.parametrize("turns", ["aaacaaacaaac", "cabacabacaba"])
def test_an_optimizer_that_steps_in_some_rows_only_does_not(
    line: RecordingLine, turns: str
) -> None:
    assert train_in_rows(line, turns) == []


def test_optimizers_whose_gradients_are_put_there_by_hand_do_not(line: RecordingLine) -> None:
    """As by who centres or projects them, right before each optimizer's step."""
    model = nn.Linear(2, 2)
    optimizers = [SGD([one], 0.1) for one in model.parameters()]
    watch = watched(model, *optimizers, line=line)
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        for one, optimizer in zip(model.parameters(), optimizers, strict=True):
            assert one.grad is not None
            one.grad = one.grad - 0.5
            optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [2.0, 2.0, 2.0]
    assert line.metric("alternating") == []


def test_optimizers_that_share_each_of_several_passes_of_a_row_do_not(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    optimizers = [SGD([one], 0.1) for one in model.parameters()]
    watch = watched(model, *optimizers, line=line)
    for _ in range(3):
        for _ in range(4):
            model.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            for optimizer in optimizers:
                optimizer.step()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [8.0, 8.0, 8.0]
    assert line.metric("alternating") == []


def test_an_optimizer_that_steps_less_often_than_the_other_does_not(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    often, seldom = SGD([model.weight], 0.1), SGD([model.bias], 0.1)
    watch = watched(model, often, seldom, line=line)
    for _ in range(3):
        for micro_batch in range(4):
            often.zero_grad()
            model(torch.ones(1, 2)).sum().backward()
            often.step()
            if micro_batch == 3:
                seldom.step()
                seldom.zero_grad()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [5.0, 5.0, 5.0]
    assert line.metric("alternating") == []


def test_a_pass_of_another_thread_is_none_of_the_runs(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    optimizers = [SGD([one], 0.1) for one in model.parameters()]
    watch = watched(model, *optimizers, line=line)
    for _ in range(3):
        model.zero_grad()
        model(torch.ones(1, 2)).sum().backward()
        optimizers[0].step()
        other = Thread(target=lambda: nn.Linear(2, 2)(torch.ones(1, 2)).sum().backward())
        other.start()
        other.join()
        optimizers[1].step()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [2.0, 2.0, 2.0]
    assert line.metric("alternating") == []


def step_in_backward(*parameters: nn.Parameter) -> list[Optimizer]:
    """An optimizer for each, which steps as soon as its gradient is there."""
    optimizers: dict[nn.Parameter, Optimizer] = {one: SGD([one], 0.1) for one in parameters}

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        parameter.grad = None

    for parameter in optimizers:
        cast(Any, parameter).register_post_accumulate_grad_hook(step)
    return list(optimizers.values())


def test_a_generator_and_its_judge_that_step_within_their_passes_take_turns(
    line: RecordingLine,
) -> None:
    generator, judge = nn.Linear(2, 2), nn.Linear(2, 1)
    model = nn.ModuleDict({"judge": judge, "generator": generator})
    watch = watched(model, *step_in_backward(*model.parameters()), line=line)
    for _ in range(3):
        judge(generator(torch.ones(1, 2)).detach()).sum().backward()
        judge.requires_grad_(False)
        judge(generator(torch.ones(1, 2))).sum().backward()
        judge.requires_grad_(True)
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [4.0, 4.0, 4.0]
    assert line.metric("alternating") == [1.0, 1.0, 1.0]


def test_heads_of_one_body_that_step_within_their_passes_do_not(line: RecordingLine) -> None:
    """Of two tasks, each with a loss and a pass of its own."""
    body, heads = nn.Linear(2, 2), nn.ModuleList([nn.Linear(2, 1), nn.Linear(2, 1)])
    model = nn.ModuleDict({"body": body, "heads": heads})
    watch = watched(model, *step_in_backward(*model.parameters()), line=line)
    for _ in range(3):
        for head in heads:
            head(body(torch.ones(1, 2))).sum().backward()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [8.0, 8.0, 8.0]
    assert line.metric("alternating") == []


def test_optimizers_that_step_within_a_backward_pass_do_not(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    watch = watched(model, *step_in_backward(*model.parameters()), line=line)
    for _ in range(3):
        model(torch.ones(1, 2)).sum().backward()
        watch.step(loss=1.0)

    assert line.metric("optimizer_steps") == [2.0, 2.0, 2.0]
    assert line.metric("alternating") == []


def test_a_policy_is_known_by_the_reward_that_its_program_records(line: RecordingLine) -> None:
    policy = nn.Linear(2, 2)
    watch = watched(policy, SGD(policy.parameters(), 0.1), line=line)
    watch.step(loss=1.0)
    watch.log(episode_return=3.0)
    watch.step(loss=1.0)
    watch.step(loss=1.0)

    assert line.metric("loss") == [1.0, 1.0, 1.0]
    assert [row.step for row in line.rows if "alternating" in row.metrics] == [1, 2]
