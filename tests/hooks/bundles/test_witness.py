"""What a bundle holds, when one is written, and what becomes of it when something fails."""

import json
import stat
import subprocess
import sys
import weakref
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from tests.hooks.recorder import RecordingLine
from tests.hooks.tiny import TEAM, TinyGpt, batch, tiny_gpt
from torch import Tensor

from runwatch.commands import Command, Rollback
from runwatch.vocabulary import CommandId
from runwatch_hooks.attaching.wiring import Objects, build_watch
from runwatch_hooks.bundles import Bundle, BundleError, open_bundle
from runwatch_hooks.bundles.memory import BatchMemory
from runwatch_hooks.run import LiveWatch
from runwatch_hooks.settings.options import Options

Batch = tuple[Tensor, Tensor]


class Training:
    """A run whose gradients are broken at the steps that a test says."""

    def __init__(self, folder: Path, *, max_bundles: int = 3, bundle_mib: int = 64) -> None:
        self.line = RecordingLine()
        self.model: TinyGpt = tiny_gpt()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-2)
        options = Options(
            allow=("rollback",),
            snapshot_every=1,
            good_after=2,
            snapshots=8,
            bundles=folder,
            max_bundles=max_bundles,
            bundle_mib=bundle_mib,
        )
        objects = Objects(modules={"": self.model}, optimizers=(self.optimizer,))
        self.watch: LiveWatch = build_watch(objects, options, self.line.open, TEAM)
        self.folder = folder

    def run(self, num_steps: int, *, broken: Iterable[int] = ()) -> None:
        for step in range(num_steps):
            self.train(batch(), is_broken=step in broken)

    def train(self, given: Batch, *, is_broken: bool = False) -> None:
        self.optimizer.zero_grad()
        loss = self.model(*given)
        torch.autograd.backward(loss)
        if is_broken:
            assert self.model.blocks[0].get_parameter("out.weight").grad is not None
            for name, parameter in self.model.named_parameters():
                if name.startswith(("blocks.0", "tokens")) and parameter.grad is not None:
                    parameter.grad.view(-1)[0] = torch.nan
        self.optimizer.step()
        self.watch.step(loss)

    def bundles(self) -> list[Bundle]:
        return [open_bundle(path) for path in sorted(self.folder.glob("*/step-*"))]

    def told(self) -> list[dict[str, object]]:
        return [dict(e.detail) for e in self.line.events if e.kind == "diagnostic_bundle"]


def test_a_bundle_holds_the_state_of_before_the_step_that_broke(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.run(5)
    before = {name: one.detach().clone() for name, one in training.model.named_parameters()}
    training.run(3, broken=[0])
    training.watch.finish()
    (bundle,) = training.bundles()
    facts = bundle.facts
    state = cast("dict[str, dict[str, Any]]", bundle.load("state.pt")["state"])
    kept: dict[str, Tensor] = state["modules"][""]["parameters"]

    assert (facts.step, facts.noticed_step, facts.segment) == (5, 5, 0)
    assert all(torch.equal(kept[name], tensor) for name, tensor in before.items())
    assert facts.state is not None
    assert (facts.state.step, facts.state.is_finite, facts.state.has_optimizers) == (4, True, True)
    assert facts.good is not None
    assert facts.good.step == 2  # the newest with two healthy steps after it
    assert facts.order[0].layer.startswith("blocks.0")
    assert facts.order[-1].layer == "tokens.weight"
    assert (facts.num_batches, facts.rng_at) == (0, "boundary")
    assert "watch.batches" in facts.batch_note
    assert training.watch.num_faults == 0


def test_bundle_is_readable_by_its_owner_alone(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.run(4, broken=[2])
    training.watch.finish()
    (bundle,) = training.bundles()

    assert {stat.S_IMODE(path.stat().st_mode) for path in bundle.path.iterdir()} == {0o600}
    folders = (bundle.path, bundle.path.parent)
    assert [stat.S_IMODE(path.stat().st_mode) for path in folders] == [0o700, 0o700]


def test_it_is_told_where_a_bundle_lies_and_what_it_holds(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.run(4, broken=[2])
    training.watch.finish()
    (told,) = training.told()
    (event,) = [e for e in training.line.events if e.kind == "diagnostic_bundle"]

    assert event.step == told["of_step"] == 2
    assert Path(str(told["path"])).is_dir()
    assert str(told["first_layer"]).startswith("blocks.0")
    assert told["state"] == "after step 1"


def test_the_batches_of_the_step_and_the_generators_before_them_are_kept(tmp_path: Path) -> None:
    training = Training(tmp_path)
    given = [batch() for _ in range(4)]
    drawn: list[Tensor] = []
    for step, one in enumerate(training.watch.batches(given)):
        drawn.append(torch.get_rng_state())
        training.train(one, is_broken=step == 2)
    training.watch.finish()
    (bundle,) = training.bundles()
    kept = cast(Batch, bundle.batches[0])

    assert all(torch.equal(a, b) for a, b in zip(kept, given[2], strict=True))
    assert torch.equal(cast(Tensor, bundle.rngs[0]["torch"]), drawn[2])
    assert (bundle.facts.rng_at, bundle.facts.batch_note) == ("batch", "")


def test_a_batch_that_the_loop_changed_in_place_is_told_from_one_that_it_did_not(
    tmp_path: Path,
) -> None:
    training = Training(tmp_path)
    for step, one in enumerate(training.watch.batches([batch() for _ in range(2)])):
        one[0].add_(0)
        training.train(one, is_broken=step == 1)
    training.watch.finish()
    (bundle,) = training.bundles()

    assert "changed the batch in place" in bundle.facts.batch_note


def test_after_the_end_no_batch_is_held(tmp_path: Path) -> None:
    training = Training(tmp_path)
    given = batch()
    alive = weakref.ref(given[0])
    for one in training.watch.batches([given]):
        training.train(one)
        del one
    del given
    assert alive() is not None

    training.watch.finish()
    assert alive() is None


def test_a_segment_has_one_bundle_and_a_rollback_opens_the_next(tmp_path: Path) -> None:
    training = Training(tmp_path, max_bundles=2)
    training.run(8, broken=[5, 6, 7])
    for name in ("first", "second"):
        rollback = Rollback(before_step=5)
        training.line.commands = [
            Command(id=CommandId(name), action=rollback, attempt=1, expires_at=float("inf"))
        ]
        training.run(1, broken=[0])  # rolled back after it
        training.run(3, broken=[2])
    training.watch.finish()

    assert [one.facts.segment for one in training.bundles()] == [0, 1]  # the third had no room
    assert [detail.get("error") for detail in training.told()] == [None, None]


def test_a_model_that_is_too_large_is_left_out_and_that_is_said(tmp_path: Path) -> None:
    training = Training(tmp_path, bundle_mib=1)
    large = torch.nn.Parameter(torch.zeros(2**19))  # 2 MiB
    training.model.register_parameter("large", large)
    training.run(3, broken=[2])
    training.watch.finish()
    (bundle,) = training.bundles()

    assert bundle.facts.state is None
    assert any("more than 1 MiB" in note for note in bundle.facts.notes)


def test_a_folder_that_cannot_be_written_harms_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    training = Training(tmp_path / "file" / "bundles")
    training.run(4, broken=[2])
    training.watch.finish()
    (told,) = training.told()

    assert "not written" in str(told["error"])
    assert len(training.line.metric("loss")) == 4


def test_a_damaged_bundle_is_refused_by_name(tmp_path: Path) -> None:
    training = Training(tmp_path)
    training.run(3, broken=[2])
    training.watch.finish()
    (bundle,) = training.bundles()
    damaged = bundle.path / "state.pt"
    damaged.write_bytes(damaged.read_bytes()[:100])
    facts = json.loads((bundle.path / "bundle.json").read_bytes())
    (bundle.path / "bundle.json").write_text(json.dumps(facts | {"format": 9}))

    with pytest.raises(BundleError, match=r"state\.pt: cannot be read"):
        bundle.load("state.pt")
    with pytest.raises(BundleError, match="found format 9, wanted 1"):
        open_bundle(bundle.path)


@pytest.mark.slow
def test_a_training_does_not_import_what_replays() -> None:
    code = (
        "import sys; from runwatch_hooks import attach; "
        "print([name for name in sys.modules if 'replay' in name])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert told.stdout.strip() == "[]"


def test_a_witness_that_a_fault_has_switched_off_stays_so_after_a_rollback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(memory: BatchMemory, batch: object) -> None:
        raise RuntimeError("no memory")

    training = Training(tmp_path)
    training.run(4)
    monkeypatch.setattr(BatchMemory, "add", fail)
    training.watch.note_batch(batch())
    training.line.commands = [Command(CommandId("c1"), Rollback(to_step=1), 1, 1e12)]
    training.run(3, broken=[2])
    training.watch.finish()

    assert (training.watch.next_step, training.watch.num_faults) == (4, 1)
    assert training.bundles() == []
