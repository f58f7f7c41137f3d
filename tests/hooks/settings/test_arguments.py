"""Arguments that cannot be used: each is named, and nothing is touched."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.hooks.step.test_patches import facts
from tests.hooks.tiny import TinyGpt, tiny_gpt
from torch import nn

from runwatch.errors import InvalidInputError
from runwatch_hooks import AttachError, attach
from runwatch_hooks.reading import connect
from runwatch_hooks.settings.environment import Environment
from runwatch_hooks.uplink import UplinkSettings


@pytest.fixture
def model() -> TinyGpt:
    return tiny_gpt()


@pytest.fixture
def optimizer(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"url": "ftp://example"}, "url: found ftp://example, wanted http://"),
        ({"run_id": "short"}, "run_id: found 'short'"),
        ({"allow": ("explode",)}, "allow: found 'explode'"),
        ({"snapshots": 1}, "snapshots: found 1"),
        ({"snapshot_every": 0}, "snapshot_every: found 0"),
        ({"checkpoint_every": 5}, "checkpoint_every: found no folder"),
        ({"scheduler": object()}, "scheduler: found object"),
        ({"next_step": -1}, "next_step: found -1, wanted a step from 0 to"),
        ({"next_step": 1.5}, "next_step: found float, wanted a step from 0 to"),
    ],
)
def test_an_argument_that_cannot_be_used_is_named(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    arguments: dict[str, object],
    message: str,
) -> None:
    before = facts()
    with pytest.raises(AttachError, match=message):
        attach(model, optimizer, run="bad", **arguments)  # type: ignore[arg-type]

    assert facts() == before


class BytesPath:
    """A path in bytes, as `os.PathLike` allows."""

    def __fspath__(self) -> bytes:
        return b"spool"


class Lookahead:
    """A wrapper of one's own that is no optimizer of torch's."""

    def step(self) -> None: ...


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": None}, "model: found none, wanted a Module"),
        ({"model": {}}, "model: found an empty mapping, wanted at least one Module"),
        ({"model": {1: nn.Linear(1, 1)}}, "model: found the name 1, wanted a text"),
        ({"optimizer": []}, "optimizer: found none, wanted at least one torch optimizer"),
        ({"optimizer": None}, "optimizer: found none, wanted at least one torch optimizer"),
        ({"optimizer": [None]}, "optimizer: found none, wanted a torch optimizer"),
        ({"optimizer": np.ones(3)}, "optimizer: found ndarray, wanted a torch optimizer"),
        (
            {"optimizer": Lookahead()},
            "found Lookahead, wanted a torch optimizer; of a wrapper, give the one that it wraps",
        ),
        ({"run": ""}, "run: found 0 characters, wanted a text of 1 to 256"),
        ({"run": " "}, "run: found ' ', wanted a text of 1 to 256 characters, not blank"),
        ({"run": "a\udce8"}, r"run: found 'a\\udce8', wanted a text that UTF-8 can carry"),
        ({"run": 7}, "run: found int, wanted a text"),
        ({"run": "x" * 257}, "run: found 257 characters"),
        ({"project": "a\udcff"}, r"project: found 'a\\udcff', wanted a text that UTF-8 can carry"),
        ({"project": ""}, "project: found 0 characters"),
        (
            {"url": "http://h:1/login#key=secret"},
            "url: found more behind http://h, wanted the address alone, as `url` or in RUNWATCH_",
        ),
        ({"token": "a\nb"}, r"token: found '\\n' at place 2 of 3, wanted a key"),
        ({"token": "schlüssel"}, "token: found 'ü' at place 5 of 9, wanted a key"),
        ({"project": 7}, "project: found int, wanted a text"),
        ({"url": 7}, "url: found int, wanted a text"),
        ({"token": str}, "token: found type, wanted a text"),
        ({"run_id": 7}, "run_id: found int, wanted a text"),
        ({"spool": 7}, "spool: found int, wanted the path of a folder"),
        ({"spool": "a\0b"}, "spool: found a zero byte, wanted the path of a folder"),
        ({"spool": BytesPath()}, "spool: found bytes, wanted the path of a folder"),
        ({"group": 0}, "group: found int, wanted a text"),
        ({"group": np.ones(2)}, "group: found ndarray, wanted a text"),
        ({"checkpoints": 7}, "checkpoints: found int, wanted the path of a folder"),
        ({"bundles": 7}, "bundles: found int, wanted the path of a folder"),
        ({"keep": "3"}, "keep: found the text '3', wanted a whole number, at least 1"),
        ({"good_after": None}, "good_after: found NoneType, wanted a whole number, at least 1"),
        ({"snapshots": "3"}, "snapshots: found the text '3', wanted a whole number, at least 3"),
        ({"histograms": "500"}, "histograms: found the text '500', wanted a whole number"),
        ({"snapshot_every": float("nan")}, "snapshot_every: found nan, wanted a whole number"),
        ({"keep": 2.5}, "keep: found 2.5, wanted a whole number, at least 1"),
        ({"keep": float("inf")}, "keep: found inf, wanted a whole number"),
        ({"keep": torch.ones(3)}, "keep: found Tensor, wanted a whole number"),
        ({"max_overhead": "0.005"}, "max_overhead: found '0.005', wanted a share such as"),
        (
            {"max_overhead": np.ones(2)},
            r"max_overhead: found array\(\[1\., 1\.\]\), wanted a share",
        ),
        ({"guard": "yes"}, "guard: found 'yes', wanted True, False or \"outliers\""),
        ({"guard": np.ones(2)}, r"guard: found array\(\[1\., 1\.\]\), wanted True, False or"),
        ({"guard": torch.ones(2)}, r"guard: found tensor\(\[1\., 1\.\]\), wanted True, False or"),
        ({"state": 7}, r"state: found int, wanted what `watch.state_dict\(\)` returned"),
        ({"config": ["lr", 1]}, "config: found list, wanted a mapping"),
        ({"extra": [1]}, "extra: found list, wanted a mapping"),
        ({"extra": {"ema": None}}, "extra 'ema': found none, wanted an object with `state_dict`"),
        ({"extra": {"ema": np.ones(2)}}, "extra 'ema': found ndarray, wanted an object with"),
        ({"allow": "rollback"}, "allow: found 'rollback', wanted a tuple of some of"),
        ({"allow": 3}, "allow: found 3, wanted a tuple"),
        ({"allow": (3,)}, "allow: found 3, wanted some of"),
        ({"allow": (np.ones(2),)}, r"allow: found array\(\[1\., 1\.\]\), wanted some of"),
    ],
)
def test_whatever_stands_in_for_an_argument_is_told_from_one(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    arguments: dict[str, object],
    message: str,
) -> None:
    before = facts()
    given: dict[str, Any] = {"model": model, "optimizer": optimizer, "run": "bad", **arguments}
    with pytest.raises(AttachError, match=message):
        attach(**given)

    assert facts() == before


GIVEN = "as `url` or in RUNWATCH_URL"
NO_PORT = "with a host or a port that cannot be, wanted HOST:PORT"
WANTED = f"wanted http://... or https://..., {GIVEN}"
GIVEN_KEY = "as `token` or in RUNWATCH_TOKEN"
WANTED_KEY = "wanted a key: letters, digits, '-' and '_'"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"url": "runwatch_hunter2", "token": "https://watch.example"},
            f"url: found a text of 16 characters without '://', {WANTED}",
        ),
        (
            {"token": "https://me:hunter2@watch.example/path"},
            f"token: found the address https://watch.example, {WANTED_KEY}, {GIVEN_KEY}",
        ),
        (
            {"url": "ftp://me:hun@/ter2@watch.example:hunter2"},
            f"url: found ftp://watch.example, {WANTED}",
        ),
        (
            {"url": "https://me:hunter2@watch.example/hunter2?key=hunter2"},
            f"url: found more behind https://watch.example, wanted the address alone, {GIVEN}",
        ),
        (
            {"url": "https://me:hunter2@watch.example:hunter2"},
            f"url: found https://watch.example {NO_PORT}, {GIVEN}",
        ),
        (
            {"url": "https://me:hunter2@watch.example:99999"},
            f"url: found https://watch.example {NO_PORT}, {GIVEN}",
        ),
        (
            {"url": "https://me:hunter2/@watch.example"},
            f"url: found https://watch.example {NO_PORT}, {GIVEN}",
        ),
    ],
)
def test_what_may_be_a_secret_is_not_repeated(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    arguments: dict[str, str],
    message: str,
) -> None:
    with pytest.raises(AttachError) as caught:
        attach(model, optimizer, run="bad", **arguments)  # type: ignore[arg-type]

    assert str(caught.value) == message


def test_settings_that_are_printed_tell_no_secret(tmp_path: Path) -> None:
    settings = UplinkSettings(url="http://me:hunter2@a", token="hunter2", spool_dir=tmp_path)
    environment = Environment(url="http://me:hunter2@a", token="hunter2")

    assert "hunter2" not in f"{settings} {environment}"


def test_who_reads_may_take_the_key_from_a_file_and_reads_what_is_wrong_with_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("RUNWATCH_TOKEN", "hunter2\n")
    connect("http://127.0.0.1:9")

    with pytest.raises(InvalidInputError, match="token: found 'ü' at place 1 of 8, wanted a key"):
        connect("http://127.0.0.1:9", "ühunter2")
