"""The card of a run that stands still: where each rank stands, the one to look at first."""

import time
from collections.abc import Iterator
from typing import Final

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, Stream
from tests.page.visitor import PHONE
from tests.waiting import until

from runwatch.frames import Event
from runwatch.stalls import STALL, Stage, Stall

pytestmark = pytest.mark.heavy

_RULE: Final = {
    "alert": "NoStepForSeconds",
    "absence": {"timeout_s": 2.0},
    "annotations": {"summary": "no step since {step}{where}"},
}
"""The built-in StepOverdue, but for seconds where that waits for a minute."""
_LAST_STEP: Final = 63
_BACKWARD: Final = Stall(
    45.0,
    Stage.BACKWARD,
    waits=True,
    place="train.py:40 in main",
    stack=("torch/autograd/graph.py:979 in _engine_run_backward", "train.py:40 in main"),
)
_LOADING: Final = Stall(
    46.0,
    Stage.DATA,
    waits=False,
    place="data.py:17 in read",
    stack=("data.py:17 in read", "torch/utils/data/dataloader.py:725 in __next__"),
)


@pytest.fixture(scope="module")
def sender(service: RealService) -> Iterator[Sender]:
    made = Sender(service.url, service.admin_key)
    made.ask("POST", "/rules", {"version": 1, "groups": [{"name": "ours", "rules": [_RULE]}]})
    yield made
    made.http.clear()


def test_the_rank_that_the_others_wait_for_comes_first_with_its_stack(
    window: OpenWindow, sender: Sender
) -> None:
    run_id = sender.open("one rank loads", world_size=3)
    for rank, stall in enumerate((_BACKWARD, _BACKWARD, _LOADING)):
        host = Event(0, "host", time.time(), {"hostname": f"node-{rank}"})
        told = Event(_LAST_STEP, STALL, time.time(), stall.to_detail())
        losses = {"loss": np.full(_LAST_STEP + 1, 2.0)}
        Stream(sender, run_id, rank=rank).send(0, losses, events=[host, told])
    path = f"/alerts?run_id={run_id}&rule=NoStepForSeconds"
    alert, *_ = until(lambda: sender.ask("GET", path)["alerts"])

    visitor = window()
    page = visitor.open(f"/alerts/{alert['id']}")

    words = "rank 2 on node-2 stands in the data loader (data.py:17 in read)"
    expect(page.get_by_text(f"no step since 63: {words}, the others")).to_be_visible()
    ranks = page.locator(".stacks > li")
    expect(ranks).to_contain_text(["rank 2", "rank 0", "rank 1"])
    expect(ranks.first).to_contain_text("node-2, 46 s")
    first, second = ranks.locator(".stack").nth(0), ranks.locator(".stack").nth(1)
    expect(first).to_have_text("data.py:17 in readtorch/utils/data/dataloader.py:725 in __next__")
    expect(second).to_be_hidden()
    ranks.nth(1).locator("summary").click()
    expect(second).to_contain_text("_engine_run_backward")
    expect(page.locator("#where")).not_to_contain_text("Host")  # rank 0's, who only waits
    visitor.shoot("stacks")


def test_on_a_telephone_no_stack_is_wider_than_the_page(window: OpenWindow, sender: Sender) -> None:
    run_id = sender.open("a long way down")
    place = "a/very/long/way/" * 6 + "data.py:17 in read"
    stall = Stall(45.0, Stage.DATA, waits=False, place=place, stack=(place, "train.py:1 in main"))
    told = Event(_LAST_STEP, STALL, time.time(), stall.to_detail())
    Stream(sender, run_id).send(0, {"loss": np.full(_LAST_STEP + 1, 2.0)}, events=[told])
    path = f"/alerts?run_id={run_id}&rule=NoStepForSeconds"
    alert, *_ = until(lambda: sender.ask("GET", path)["alerts"])

    page = window(viewport=PHONE).open(f"/alerts/{alert['id']}")

    expect(page.get_by_role("heading", name="Where it stands")).to_be_visible()
    width = page.evaluate("document.documentElement.scrollWidth")
    assert width <= PHONE["width"]
