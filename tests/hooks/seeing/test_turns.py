"""Which losses have no level of their own: where optimizers take turns, or a reward is recorded."""

from typing import Any, cast

import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import watched
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD


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


def test_optimizers_that_step_within_a_backward_pass_do_not(line: RecordingLine) -> None:
    model = nn.Linear(2, 2)
    optimizers = {one: SGD([one], 0.1) for one in model.parameters()}
    watch = watched(model, *optimizers.values(), line=line)

    def step(parameter: nn.Parameter) -> None:
        optimizers[parameter].step()
        parameter.grad = None

    for parameter in optimizers:
        cast(Any, parameter).register_post_accumulate_grad_hook(step)
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
