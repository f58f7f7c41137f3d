"""Two runs or attempts in one picture: along steps, tokens and training time."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Floats, Sender, Stream, curve
from tests.page.visitor import PHONE

from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy

TOKENS_A_STEP = 65_536


@dataclass(frozen=True)
class Pair:
    """400 quick steps, and 200 that took twice as long."""

    quick: RunId
    slow: RunId
    untold: RunId
    """It does not say how long its steps take."""


@pytest.fixture(scope="module")
def pair(service: RealService) -> Iterator[Pair]:
    sender = Sender(service.url, service.admin_key)
    quick = sender.open("quick", lr=3e-4, optimizer={"name": "adamw", "beta2": 0.95})
    slow = sender.open("slow", lr=1e-4, optimizer={"name": "adamw", "beta2": 0.95})
    untold = sender.open("untold")
    Stream(sender, quick).send(0, paced(400, step_s=0.25))
    Stream(sender, slow).send(0, paced(200, step_s=0.5))
    Stream(sender, untold).send(0, {"loss": curve(0, 100)["loss"]})
    yield Pair(quick, slow, untold)
    sender.http.clear()


def paced(num_steps: int, *, step_s: float) -> dict[str, Floats]:
    step_time = np.full(num_steps, step_s)
    return {
        "loss": curve(0, num_steps)["loss"],
        "step_time": step_time,
        "tokens_per_s": TOKENS_A_STEP / step_time,
    }


def ends(page: Page) -> Any:
    """Where the two losses end on the axis."""
    return page.locator(".chart[data-metric=loss] .canvas").evaluate(
        "plot => plot.data.filter((one) => one.mode === 'lines').map((one) => one.x.at(-1))"
    )


def test_along_steps_each_run_ends_at_its_last_step(window: OpenWindow, pair: Pair) -> None:
    visitor = window()
    page = visitor.open(f"/compare?a={pair.quick}&b={pair.slow}")

    loss = page.locator(".chart[data-metric=loss]")
    expect(loss).to_have_attribute("data-drawn", "0-399")
    assert ends(page) == [399, 199]
    expect(loss.locator(".readout > span")).to_have_count(2)
    expect(page.locator(".differs tbody tr")).to_have_count(1)
    expect(page.locator(".differs tbody tr")).to_contain_text("lr")
    visitor.shoot("compare")


def test_along_tokens_each_run_ends_at_what_it_has_seen(window: OpenWindow, pair: Pair) -> None:
    page = window().open(f"/compare?a={pair.quick}&b={pair.slow}")

    page.locator("#along").select_option("tokens")

    loss = page.locator(".chart[data-metric=loss]")
    expect(loss).to_have_attribute("data-drawn", f"0-{400 * TOKENS_A_STEP}")
    assert ends(page) == pytest.approx([399 * TOKENS_A_STEP, 199 * TOKENS_A_STEP])
    loss.locator(".plot").hover()
    expect(page.locator("#at")).to_contain_text("M tokens")


def test_along_time_the_slow_run_takes_as_long_for_half_the_steps(
    window: OpenWindow, pair: Pair
) -> None:
    visitor = window()
    page = visitor.open(f"/compare?a={pair.quick}&b={pair.slow}")

    page.locator("#along").select_option("time")

    loss = page.locator(".chart[data-metric=loss]")
    expect(loss).to_have_attribute("data-drawn", "0-100")
    assert ends(page) == pytest.approx([399 * 0.25, 199 * 0.5])
    assert "1 min 30 s" in loss.locator(".canvas").evaluate("plot => plot.layout.xaxis.ticktext")
    loss.locator(".plot").hover()
    expect(page.locator("#at")).to_contain_text("of training")
    visitor.shoot("compare-time")
    page.locator("#along").select_option("step")
    expect(loss).to_have_attribute("data-drawn", "0-399")
    assert ends(page) == [399, 199]


@pytest.mark.parametrize(("along", "metric"), [("tokens", "step_time"), ("time", "step_time")])
def test_what_cannot_be_compared_says_why_and_stays_with_steps(
    window: OpenWindow, pair: Pair, along: str, metric: str
) -> None:
    page = window().open(f"/compare?a={pair.quick}&b={pair.untold}")
    expect(page.locator(".chart[data-metric=loss]")).to_have_attribute("data-drawn", "0-399")

    page.locator("#along").select_option(along)

    expect(page.locator("#at")).to_contain_text(f"untold did not send {metric}")
    expect(page.locator("#along")).to_have_value("step")


def test_two_attempts_of_a_run_are_compared(window: OpenWindow, service: RealService) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("twice")
    Stream(sender, run_id).send(0, curve(0, 300))
    number = sender.attempt(run_id, resume_step=100)
    Stream(sender, run_id, attempt=number).send(100, curve(100, 100, seed=1))
    sender.http.clear()

    page = window().open(f"/compare?a={run_id}@1&b={run_id}@2")

    expect(page.locator(".chart[data-metric=loss]")).to_have_attribute("data-drawn", "0-299")
    assert ends(page) == [299, 199]
    expect(page.get_by_label("Run B")).to_have_value(f"{run_id}@2")


def test_a_phone_shows_long_settings_whole_and_scrolls_nothing_sideways(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    path = "s3://" + "bucket" * 30
    long, short = (
        sender.open(name, data=f"{path}/{name}", tokenizer=name) for name in ("x" * 90, "short")
    )
    for run_id in (long, short):
        Stream(sender, run_id).send(0, paced(20, step_s=0.25))
    sender.http.clear()
    page = window(viewport=PHONE).open(f"/compare?a={long}&b={short}")
    setting = page.locator(".differs tr", has_text="tokenizer")

    expect(setting.locator("td").last).to_have_text("short")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE["width"]
    assert page.locator(".scroll").evaluate("box => box.scrollWidth <= box.clientWidth")
    tops = setting.locator("td").evaluate_all("cells => cells.map((cell) => cell.offsetTop)")
    assert tops == sorted(set(tops))  # one below the other
