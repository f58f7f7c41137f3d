"""What a picture measures by: a few outliers flatten no chart, and a layer is compared with its
healthy past."""

import re

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.sent_run import SentRun

pytestmark = pytest.mark.heavy

LAYERS = ("embed", "head")


def test_one_outlier_flattens_no_chart_and_is_read_at_an_arrow(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "one outlier")
    losses = [2.5 - 0.001 * step + 0.02 * (step % 5) for step in range(400)]
    run.send([*losses[:300], 4000.0, *losses[300:]])
    visitor = window()
    page = visitor.open(f"/runs/{run.id}")
    loss = page.locator("#charts .chart").first

    expect(loss).to_have_attribute("data-beyond", "4000")
    plot = loss.locator(".canvas")
    assert plot.evaluate("plot => plot.layout.yaxis.range[1]") < 3.0
    assert "4\u202f000" in plot.inner_text()
    visitor.shoot("run-outlier")

    loss.get_by_role("button", name="log").click()  # which shows all
    expect(loss).to_have_attribute("data-beyond", "")


@pytest.mark.parametrize(
    ("name", "losses"),
    [
        ("began far away", [900.0 / (1 + step) + 0.01 * (step % 5) for step in range(200)]),
        ("went away", [2.0 + 0.01 * (step % 5) + 900.0 * (step >= 190) for step in range(200)]),
    ],
)
def test_a_loss_that_comes_from_far_or_stays_there_is_drawn_whole(
    window: OpenWindow, service: RealService, name: str, losses: list[float]
) -> None:
    run = SentRun(service, name)
    run.send(losses)
    page = window().open(f"/runs/{run.id}")
    loss = page.locator("#charts .chart").first

    expect(loss).to_have_attribute("data-beyond", "")
    assert loss.locator(".canvas").evaluate("plot => plot.layout.yaxis.range?.[1] ?? 900") >= 900


@pytest.mark.parametrize(("factor", "loss"), [(50.0, 9.0), (2.5, 2.0)])
def test_a_shift_that_lasts_does_not_make_the_healthy_past_look_strange(
    window: OpenWindow, service: RealService, factor: float, loss: float
) -> None:
    run = SentRun(service, f"shifted {factor} times", layers=LAYERS)
    run.send([2.0] * 100, [1.0, 1.0])
    run.send([loss] * 300, [factor, 1.0])
    page = window().open(f"/runs/{run.id}")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    expect(layers).to_have_attribute("data-drawn", "grad_norm 0-399")

    expect(reading_at(page, 0.12)).to_contain_text("(1 × its usual)")
    expect(reading_at(page, 0.3)).to_contain_text(f"({factor:g} × its usual)")


def test_where_no_layer_stands_out_that_is_said(window: OpenWindow, service: RealService) -> None:
    run = SentRun(service, "nothing stands out", layers=LAYERS)
    run.send([2.0] * 60, [1.0, 1.2])
    page = window().open(f"/runs/{run.id}")
    worst = page.locator("#layers .worst")
    worst.scroll_into_view_if_needed()
    expect(worst.locator(".says")).to_have_text("No layer stands out.")
    expect(worst.locator("h3")).to_have_text("Layers at step 59")

    run.send([2.0], [9.0, 1.2])
    expect(worst.locator("h3")).to_have_text("Worst layers at step 60")
    expect(worst.locator(".says")).to_be_hidden()
    expect(worst.locator("tbody tr").first).to_have_text(re.compile(r"embed.*9 ×"))


def reading_at(page: Page, share: float) -> Locator:
    """What is read of the first layer, at a share of the canvas' width."""
    canvas = page.locator("#layers canvas")
    width = canvas.evaluate("canvas => canvas.clientWidth")
    canvas.hover(position={"x": 70 + share * (width - 90), "y": 8})
    return page.locator("#layers .reading")
