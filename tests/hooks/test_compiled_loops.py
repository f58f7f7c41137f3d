"""Programs that call the watch inside what they compile train as without it, and are seen whole."""

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import tiny_gpt, watched
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import clip_grad_norm_
from torch.optim import Optimizer

from runwatch_hooks.run import AttachedWatch
from runwatch_hooks.step.torch_hooks import untraced_class
from runwatch_hooks.watch import Watch

pytestmark = [
    pytest.mark.slow,
    # Of torch's own parts, as the compiler loads them.
    pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning"),
    # Of what the compiler itself looks at, where a graph breaks between forward and backward.
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),
]

NUM_STEPS = 12  # torch gives up after 8 compilations of one thing


class Script:
    """A script's objects, and what its forms of one step have in common."""

    def __init__(self, line: RecordingLine | None) -> None:
        torch.compiler.reset()
        torch.manual_seed(0)
        self.model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))
        self.optimizer: Optimizer = torch.optim.Adam(self.model.parameters(), lr=1e-2)
        self.watch: Watch | None = None
        if line is not None:
            live = watched(self.model, self.optimizer, line=line)
            self.watch = untraced_class(AttachedWatch, Watch)(live)
        drawn = torch.Generator().manual_seed(1)
        self.data = [
            (torch.randn(16, 8, generator=drawn), torch.randint(4, (16,), generator=drawn))
            for _ in range(NUM_STEPS)
        ]

    def step(self, x: Tensor, y: Tensor) -> Tensor:
        self.optimizer.zero_grad()
        loss = functional.cross_entropy(self.model(x), y)
        loss.backward()  # type: ignore[no-untyped-call]
        self.optimizer.step()
        if self.watch is not None:
            self.watch.step(loss, tokens=16)
        return loss


def whole_step(script: Script) -> None:
    step = torch.compile(script.step, backend="eager")
    for x, y in script.data:
        step(x, y)


def whole_loop(script: Script) -> None:
    def loop() -> None:
        for x, y in script.data:
            script.step(x, y).item()

    torch.compile(loop, backend="eager")()


def clipped_loop(script: Script) -> None:
    def loop() -> None:
        for x, y in script.data:
            script.optimizer.zero_grad()
            loss = functional.cross_entropy(script.model(x), y)
            loss.backward()  # type: ignore[no-untyped-call]
            clip_grad_norm_(script.model.parameters(), 0.5)
            script.optimizer.step()
            if script.watch is not None:
                script.watch.step(loss)

    torch.compile(loop, backend="eager")()


def loop_over_the_watchs_own_steps_and_batches(script: Script) -> None:
    def loop() -> None:
        watch = script.watch
        batches = iter(script.data if watch is None else watch.batches(script.data))
        for _ in range(NUM_STEPS // 2) if watch is None else watch.steps(NUM_STEPS // 2):
            script.step(*next(batches))
        for x, y in batches:
            script.step(x, y)
            if watch is not None and watch.is_stopping:
                return

    torch.compile(loop, backend="eager")()


def closure_that_logs(script: Script) -> None:
    def closure(x: Tensor, y: Tensor) -> Tensor:
        script.optimizer.zero_grad()
        out = script.model(x)
        if script.watch is not None:
            script.watch.log(accuracy=(out.argmax(1) == y).float().mean())
        loss = functional.cross_entropy(out, y)
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    compiled = torch.compile(closure, backend="eager")
    for x, y in script.data:
        step = cast("Callable[[Callable[[], Tensor]], Tensor]", script.optimizer.step)
        loss = step(partial(compiled, x, y))
        if script.watch is not None:
            script.watch.step(loss)


def step_with_a_note_and_an_evaluation(script: Script) -> None:
    def step(x: Tensor, y: Tensor) -> None:
        watch = script.watch
        if watch is not None:
            watch.note_batch((x, y))
        script.step(x, y)
        with nullcontext() if watch is None else watch.phase("eval"), torch.no_grad():
            loss = functional.cross_entropy(script.model(x), y)
        if watch is not None:
            watch.log(val_loss=loss)

    compiled = torch.compile(step, backend="eager")
    for x, y in script.data:
        compiled(x, y)


def bits(script: Script) -> bytes:
    return b"".join(one.detach().numpy().tobytes() for one in script.model.parameters())


@pytest.mark.parametrize(
    "train",
    [
        whole_step,
        whole_loop,
        clipped_loop,
        loop_over_the_watchs_own_steps_and_batches,
        closure_that_logs,
        step_with_a_note_and_an_evaluation,
    ],
    ids=lambda train: train.__name__,
)
def test_a_compiled_loop_trains_to_the_same_bits_and_is_seen_whole(
    train: Callable[[Script], None], line: RecordingLine
) -> None:
    bare = Script(None)
    train(bare)
    seen = Script(line)
    train(seen)
    assert seen.watch is not None
    seen.watch.finish()

    assert bits(seen) == bits(bare)
    steps = [row for row in line.rows if "loss" in row.metrics]
    assert [row.step for row in steps] == list(range(NUM_STEPS))
    assert all(row.layout is not None and len(row.layout.layers) == 4 for row in steps)
    assert all(row.metrics["optimizer_steps"] == 1.0 for row in steps)
    assert not {"hook_fault", "unwatched", "untrained"} & {*line.kinds()}


def test_a_model_that_logs_in_its_forward_pass_may_be_compiled(line: RecordingLine) -> None:
    class Logging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.model = tiny_gpt()

        def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
            loss: Tensor = self.model(tokens, targets)
            watch.log(of_forward=loss)
            return loss * 2.0

    model = Logging()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    watch = untraced_class(AttachedWatch, Watch)(watched(model, optimizer, line=line))
    compiled = torch.compile(model, backend="eager")
    tokens = torch.arange(9).reshape(1, 9)
    for _ in range(NUM_STEPS):
        optimizer.zero_grad()
        loss = compiled(tokens[:, :-1], tokens[:, 1:])
        torch.autograd.backward(loss)
        optimizer.step()
        watch.step(loss)
    watch.finish()

    logged, losses = line.metric("of_forward"), line.metric("loss")
    assert [2.0 * one for one in logged] == losses
    assert "hook_fault" not in line.kinds()
