"""A run that has ended holds no model, no optimizer and no snapshot, whoever holds its watch."""

import copy
import gc
import pickle
import threading
from pathlib import Path
from typing import Any
from weakref import ReferenceType, ref

import pytest
import torch
from tests.hooks.step.test_patches import facts
from tests.hooks.uplink.stub_service import TOKEN, StubService
from torch import nn
from torch.optim import AdamW

from runwatch_hooks import Watch, attach
from runwatch_hooks.uplink import Uplink
from runwatch_hooks.watch import InertWatch


class Training:
    """A program's objects, let go one by one."""

    def __init__(self, folder: Path, service: StubService) -> None:
        self.model: nn.Module | None = nn.Linear(3, 1)
        self.optimizer: AdamW | None = AdamW(self.model.parameters(), lr=0.1)
        self.watch: Watch | None = attach(
            self.model,
            self.optimizer,
            run="small",
            url=service.url,
            token=TOKEN,
            spool=folder,
            allow=("rollback", "lower_lr"),
            snapshot_every=2,
            guard="outliers",
            activations=2,
            bundles=folder / "bundles",
        )

    def train(self) -> None:
        assert self.model is not None
        assert self.optimizer is not None
        assert self.watch is not None
        for _ in range(5):
            self.optimizer.zero_grad()
            torch.autograd.backward(self.model(torch.ones(3)))
            self.optimizer.step()
            self.watch.step(1.0)

    def let_go(self) -> list[ReferenceType[object]]:
        assert self.model is not None
        weights = list(self.model.parameters())
        refs = [ref[object](one) for one in (self.model, self.optimizer, *weights)]
        self.model = self.optimizer = None
        return refs


def alive(refs: list[ReferenceType[object]]) -> list[object]:
    gc.collect()
    return [one() for one in refs if one() is not None]


def num_tensors() -> int:
    gc.collect()
    return sum(issubclass(type(one), torch.Tensor) for one in gc.get_objects())


@pytest.mark.parametrize("holds_watch", [True, False])
def test_after_its_end_a_run_holds_nothing_of_the_program(
    holds_watch: bool, tmp_path: Path, service: StubService
) -> None:
    before = num_tensors()
    training = Training(tmp_path, service)
    training.train()
    assert training.watch is not None
    training.watch.finish()
    if not holds_watch:
        training.watch = None
    refs = training.let_go()

    assert alive(refs) == []
    assert num_tensors() <= before  # snapshots and all that was measured


def test_an_end_whose_waiting_is_interrupted_lets_the_program_go(
    tmp_path: Path, service: StubService, monkeypatch: pytest.MonkeyPatch
) -> None:
    close = Uplink.close

    def interrupt(*arguments: Any, **keywords: Any) -> None:
        close(*arguments, **keywords)
        raise KeyboardInterrupt

    monkeypatch.setattr(Uplink, "close", interrupt)
    training = Training(tmp_path, service)
    training.train()
    assert training.watch is not None
    with pytest.raises(KeyboardInterrupt):
        training.watch.finish()

    assert alive(training.let_go()) == []


def test_a_watch_that_is_bound_anew_lets_its_run_go_as_the_next_one_trains(
    tmp_path: Path, service: StubService
) -> None:
    training = Training(tmp_path, service)
    training.train()
    refs = training.let_go()
    second = Training(tmp_path, service)
    training.watch = second.watch
    second.train()
    for thread in threading.enumerate():
        if thread.name == "runwatch-last-words":
            thread.join()

    assert alive(refs) == []
    assert second.watch is not None
    second.watch.finish()


def test_a_watch_that_is_dropped_before_its_run_began_lets_the_program_go(tmp_path: Path) -> None:
    (tmp_path / "of-others.txt").touch()  # a run that may resume does not begin at once
    before = facts()
    model = nn.Linear(3, 1)
    optimizer = AdamW(model.parameters(), lr=0.1)
    attach(model, optimizer, run="small", spool=tmp_path / "spool", checkpoints=tmp_path)
    refs = [ref[object](model), ref[object](optimizer)]
    del model, optimizer

    assert alive(refs) == []
    assert facts() == before


def test_after_its_end_a_watch_still_counts_and_knows_its_state(
    tmp_path: Path, service: StubService
) -> None:
    training = Training(tmp_path, service)
    training.train()
    watch = training.watch
    assert watch is not None
    state = watch.state_dict()
    watch.finish()
    watch.finish()
    report = watch.step(1.0, tokens=3)
    watch.log(val_loss=1.0)
    with watch.phase("eval"):
        assert list(watch.batches([1, 2])) == [1, 2]

    assert (report.step, watch.next_step, watch.is_stopping) == (5, 6, False)
    assert watch.state_dict() == {**state, "next_step": 6}
    assert list(watch.steps(8)) == [6, 7]


def test_a_copy_is_the_same_run_and_a_pickle_watches_nothing(
    tmp_path: Path, service: StubService
) -> None:
    watch = Training(tmp_path, service).watch
    assert watch is not None

    elsewhere = pickle.loads(pickle.dumps(watch))

    assert copy.deepcopy(watch) is watch
    assert isinstance(elsewhere, InertWatch)
    assert elsewhere.run_id == watch.run_id
    watch.finish()
