"""A resume that misses some of the weights names them; one that has them all is silent."""

import json
from typing import cast

import pytest
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TinyGpt, tiny_gpt, train_one, watched
from torch.optim import AdamW

from runwatch_hooks.run import LiveWatch

STEPS = 120


def train(model: TinyGpt, watch: LiveWatch, optimizer: AdamW, steps: int) -> None:
    for _ in range(steps):
        watch.step(train_one(model, optimizer))


def lived(steps: int) -> tuple[TinyGpt, dict[str, object]]:
    """A model that was trained so long, and its watch's state."""
    model = tiny_gpt()
    optimizer = AdamW(model.parameters(), 1e-2)
    line = RecordingLine()
    watch = watched(model, optimizer, line=line)
    train(model, watch, optimizer, steps)
    state = watch.state_dict()
    watch.finish()
    return model, state


def resumed(model: TinyGpt, state: dict[str, object], line: RecordingLine, steps: int) -> None:
    optimizer = AdamW(model.parameters(), 1e-4)
    watch = watched(model, optimizer, line=line)
    watch.load_state_dict(state)
    train(model, watch, optimizer, steps)
    watch.finish()


def told(line: RecordingLine) -> list[object]:
    return [event.detail["what"] for event in line.events if event.kind == "untrained"]


def test_layers_that_the_checkpoint_did_not_bring_are_named(line: RecordingLine) -> None:
    model, state = lived(STEPS)
    fresh = tiny_gpt(seed=1)
    model.blocks[1].load_state_dict(fresh.blocks[1].state_dict())
    resumed(model, state, line, 80)

    (what,) = told(line)
    assert "differ from the checkpoint that the run continues from: blocks.1." in str(what)
    assert "blocks.0" not in str(what)
    numbers = line.metric("unrestored_layers")
    assert numbers[0] >= 2.0
    assert numbers[-1] == 0.0
    assert len(numbers) == 65


def test_weights_that_are_those_of_the_checkpoint_are_healthy(line: RecordingLine) -> None:
    resumed(*lived(STEPS), line, 20)

    assert len(line.rows) == 20
    assert told(line) == []
    assert line.metric("unrestored_layers") == []


def test_norms_that_were_written_over_are_compared_with_nothing(line: RecordingLine) -> None:
    model, state = lived(STEPS)
    norms = dict.fromkeys(cast("dict[str, object]", state["norms"]))
    resumed(model, {**state, "norms": norms}, line, 8)

    assert "hook_fault" not in line.kinds()
    assert told(line) == []


def test_a_checkpoint_of_the_first_steps_says_nothing_yet(line: RecordingLine) -> None:
    _, state = lived(20)
    resumed(tiny_gpt(seed=1), state, line, 20)

    assert len(line.rows) == 20
    assert told(line) == []


@pytest.mark.parametrize(
    "norms",
    [None, {}, "none", {"tokens.weight": "large"}, {"tokens.weight": [1.0]}, {"gone": [1.0, 0.0]}],
)
def test_what_cannot_be_compared_is_left_alone(line: RecordingLine, norms: object) -> None:
    model, state = lived(STEPS)
    resumed(model, state | {"norms": norms}, line, 20)

    assert len(line.rows) == 20
    assert told(line) == []


def test_a_state_of_a_version_before_has_no_norms(line: RecordingLine) -> None:
    model, state = lived(STEPS)
    del state["norms"]
    resumed(model, state, line, 20)

    assert told(line) == []


def test_norms_travel_as_plain_numbers() -> None:
    _, state = lived(20)

    assert json.loads(json.dumps(state["norms"])) == state["norms"]
    assert "blocks.0.out.weight" in str(state["norms"])
