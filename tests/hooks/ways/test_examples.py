"""`examples/ways.py` as a person runs it, and what a service then knows of each way."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.hooks.uplink.stub_service import TOKEN, StubService, serving

from runwatch.frames import Frame
from runwatch.nonfinite import is_absent

PROGRAM: Final = Path(__file__).parents[3] / "examples" / "ways.py"
STEPS: Final = 24
WAYS: Final = (
    "accumulation", "amp", "amp-fused", "bf16", "several-optimizers", "lbfgs", "sparse-embedding",
    "optimizer-in-backward", "frozen-at-first", "tied", "activation-checkpointing", "ema", "gan",
)  # fmt: skip


class Told:
    """What came in of one way, which is one attempt."""

    def __init__(self, service: StubService, attempt: int) -> None:
        self.frames = [service.frames[key] for key in sorted(service.frames) if key[0] == attempt]
        hashes = dict.fromkeys(one.layout_hash for one in self.frames if one.layout_hash)
        self.layouts = [service.layouts[layout_hash] for layout_hash in hashes]
        self.kinds = [event.kind for frame in self.frames for event in frame.events]

    def metric(self, name: str) -> NDArray[np.float64]:
        """The values of the rows that have it."""
        column = np.concatenate([_column(frame, name) for frame in self.frames])
        return column[~is_absent(column)]

    def layer_names(self) -> list[set[str]]:
        return [set(layout.layer_names) for layout in self.layouts]

    def stages(self) -> set[str]:
        events = (event for frame in self.frames for event in frame.events)
        return {str(event.detail["stage"]) for event in events if event.kind == "grad_stage"}


def _column(frame: Frame, name: str) -> NDArray[np.float64]:
    if name not in frame.metric_names:
        return np.empty(0)
    return np.asarray(frame.metrics[:, frame.metric_names.index(name)])


def run(folder: Path, *ways: str) -> dict[str, Told]:
    """One process for all: most of its time goes into torch's import."""
    with serving(StubService()) as service:
        done = subprocess.run(
            [sys.executable, str(PROGRAM), *ways, f"--steps={STEPS}"],
            env=os.environ
            | {"RUNWATCH_URL": service.url, "RUNWATCH_TOKEN": TOKEN, "RUNWATCH_SPOOL": "spool"},
            cwd=folder,
            capture_output=True,
            check=False,
            timeout=400,
        )
        assert done.returncode == 0, done.stderr.decode()
        assert [closing.status for closing in service.closings] == ["finished"] * len(ways)
        return {way: Told(service, attempt) for attempt, way in enumerate(ways, 1)}


@pytest.fixture(scope="module")
def told_of(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Told]:
    return run(tmp_path_factory.mktemp("ways"), *WAYS)


@pytest.mark.heavy
@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_told_whole(told_of: dict[str, Told], way: str) -> None:
    told = told_of[way]

    assert len(told.metric("loss")) == STEPS
    assert np.isfinite(told.metric("loss")).all()
    assert len(told.metric("grad_norm")) == len(told.metric("lr")) == STEPS
    assert "hook_fault" not in told.kinds
    assert "unwatched" not in told.kinds
    CHECKS.get(way, _nothing_more)(told)


def _nothing_more(told: Told) -> None:
    assert told.metric("skipped").size == 0


def _scaled(told: Told) -> None:
    skipped, norms = told.metric("skipped"), told.metric("grad_norm")
    assert 0 < skipped.sum() < STEPS  # the first scale is too large, by design
    assert np.isfinite(norms[skipped == 0]).all()
    assert (norms[skipped == 0] < 100).all()  # unscaled
    assert not np.isfinite(norms[skipped == 1]).any()


def _several(told: Told) -> None:
    assert len(told.metric("lr.1")) == STEPS


def _lbfgs(told: Told) -> None:
    assert told.stages() == {"closure_post"}


def _unfrozen(told: Told) -> None:
    assert told.layer_names()[0] == {"last.weight", "last.bias"}
    assert len(told.layer_names()[1]) > 10


def _tied(told: Told) -> None:
    (layout,) = told.layouts
    assert [(one.name, one.aliases) for one in layout.layers if one.aliases] == [
        ("0.weight", ("2.weight",))
    ]


def _ema(told: Told) -> None:
    assert len(told.metric("val_loss")) == 1
    assert not any("average" in name for names in told.layer_names() for name in names)


def _gan(told: Told) -> None:
    (names,) = told.layer_names()
    assert {name.partition(".")[0] for name in names} == {"maker", "critic"}
    assert len(told.metric("critic_loss")) == STEPS


CHECKS: Final = {
    "amp": _scaled,
    "amp-fused": _scaled,
    "several-optimizers": _several,
    "lbfgs": _lbfgs,
    "frozen-at-first": _unfrozen,
    "tied": _tied,
    "ema": _ema,
    "gan": _gan,
}


@pytest.mark.heavy
@pytest.mark.skipif(shutil.which("g++") is None, reason="torch.compile needs a C++ compiler")
def test_a_compiled_model_and_a_compiled_step_are_told_whole(tmp_path: Path) -> None:
    told = run(tmp_path, "compiled")["compiled"]

    assert len(told.metric("grad_norm")) == len(told.metric("loss")) == STEPS
    assert {"first.weight", "blocks.0.1.weight"} <= told.layer_names()[0]
    assert "hook_fault" not in told.kinds
