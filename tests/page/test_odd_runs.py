"""Runs that nobody had in mind: too short, too wide, without this or that, broken all over. On
their pages nothing complains, nothing is cut off, and what is not there is said.
"""

from collections.abc import Callable, Iterator
from typing import Final

import numpy as np
import pytest
from playwright.sync_api import Browser, expect
from tests.end_to_end.real_service import RealService
from tests.page.looking import out_of_sight, settle
from tests.page.seeding import Sender, Stream, curve, layer_stats, layout_of, send_ranks
from tests.page.visitor import DESKTOP, PHONE, Visitor, make_context

from runwatch.layouts import Layer, Layout
from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy

TINY: Final = {"width": 320, "height": 480}
"""WCAG 2.2, 1.4.10: nothing scrolls in two directions at the width of 320 pixels."""
SIZES: Final = {"desktop": DESKTOP, "phone": PHONE, "tiny": TINY}
LONG: Final = "a-sweep-of-learning-rates-" * 8
WORDLESS: Final = "x" * 200


def send_without_layers(sender: Sender) -> RunId:
    run_id = sender.open("no layers")
    Stream(sender, run_id).send(0, curve(0, 50))
    return run_id


def send_without_loss(sender: Sender) -> RunId:
    run_id = sender.open("no loss")
    Stream(sender, run_id).send(0, {"reward": np.linspace(-5, 90, 50)})
    return run_id


def send_one_step(sender: Sender) -> RunId:
    run_id = sender.open("one step")
    layout = layout_of(4)
    sender.layout(run_id, layout)
    Stream(sender, run_id, layout).send(0, curve(0, 1), stats=layer_stats(layout, 1))
    return run_id


def send_many_layers(sender: Sender) -> RunId:
    run_id = sender.open("3000 layers")
    layout = layout_of(3000)
    sender.layout(run_id, layout)
    Stream(sender, run_id, layout).send(0, curve(0, 40), stats=layer_stats(layout, 40))
    return run_id


def send_nothing_but_nan(sender: Sender) -> RunId:
    run_id = sender.open("NaN all over")
    layout = layout_of(6)
    sender.layout(run_id, layout)
    metrics = {name: np.full(30, np.nan) for name in curve(0, 1)}
    stats = np.full((30, 6 * len(layout.stats)), np.nan, np.float32)
    Stream(sender, run_id, layout).send(0, metrics, stats=stats)
    return run_id


def send_long_names(sender: Sender) -> RunId:
    run_id = sender.open(LONG[:200], project=WORDLESS, group=WORDLESS, owner=WORDLESS)
    layout = Layout(
        tuple(Layer(f"{LONG[:190]}.{index}", (8,)) for index in range(5)), ("grad_norm",)
    )
    sender.layout(run_id, layout)
    metrics = curve(0, 60) | {WORDLESS: np.linspace(0, 1, 60)}
    stats = np.ones((60, 5), np.float32)
    stats[40:, 3] = np.nan
    Stream(sender, run_id, layout).send(0, metrics, stats=stats)
    return run_id


def send_overlapping_attempts(sender: Sender) -> RunId:
    """The second goes on from step 60 of the 100 that the first trained."""
    run_id = sender.open("resumed from before its end")
    layout = layout_of(6)
    sender.layout(run_id, layout)
    Stream(sender, run_id, layout).send(0, curve(0, 100), stats=layer_stats(layout, 100))
    second = sender.attempt(run_id, resume_step=60)
    again = Stream(sender, run_id, layout, attempt=second)
    again.send(60, curve(60, 100, seed=1), stats=layer_stats(layout, 100, seed=1))
    return run_id


ODD: Final[dict[str, Callable[[Sender], RunId]]] = {
    "without-layers": send_without_layers,
    "without-loss": send_without_loss,
    "one-step": send_one_step,
    "many-layers": send_many_layers,
    "nothing-but-nan": send_nothing_but_nan,
    "long-names": send_long_names,
    "overlapping-attempts": send_overlapping_attempts,
    "ranks": lambda sender: send_ranks(sender, 64),
}


@pytest.fixture(scope="module")
def sender(service: RealService) -> Iterator[Sender]:
    made = Sender(service.url, service.admin_key)
    yield made
    made.http.clear()


@pytest.fixture(scope="module")
def visitors(browser: Browser, service: RealService) -> Iterator[dict[str, Visitor]]:
    """One for each size of a window."""
    opened = {
        name: Visitor(make_context(browser, service.url, viewport=size), service.admin_key)
        for name, size in SIZES.items()
    }
    yield opened
    for visitor in opened.values():
        visitor.context.close()


@pytest.mark.parametrize("name", ODD)
def test_an_odd_run_s_page_is_whole(
    name: str, visitors: dict[str, Visitor], sender: Sender
) -> None:
    run_id = ODD[name](sender)
    for size, visitor in visitors.items():
        page = visitor.open(f"/runs/{run_id}")
        settle(page)
        visitor.shoot(f"odd-{name}-{size}")
        assert out_of_sight(page) == [], size
        assert visitor.complaints == [], size


def test_an_axis_has_room_for_values_next_to_nothing(
    visitors: dict[str, Visitor], sender: Sender
) -> None:
    run_id = sender.open("next to nothing")
    few = {"loss": 1e-309, "lr": 2.3e-308, "a": -5e-324, "b": 1e-300, "c": 0.0}
    constant = {name: np.full(50, value) for name, value in few.items()}
    Stream(sender, run_id).send(0, constant | {"moving": np.linspace(1e-310, 3e-310, 50)})

    page = visitors["desktop"].open(f"/runs/{run_id}")

    for name in (*few, "moving"):
        chart = page.locator(f"#charts .chart[data-metrics='[\"{name}\"]']")
        chart.scroll_into_view_if_needed()
        expect(chart).to_have_attribute("data-drawn", "0-49")
        expect(chart.locator(".says")).to_be_hidden()
