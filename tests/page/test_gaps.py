"""Steps that are stored and cannot be read: marked on the charts, told on the timeline."""

from typing import Final

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.looking import let_it_stand
from tests.page.seeding import Sender, Stream, layer_stats, layout_of
from tests.waiting import until

from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def run_id(service: RealService) -> RunId:
    """Of 100 steps of six layers; a bit of those from 40 to 59 turned while the service was
    stopped, and those from 80 to 89 were never sent."""
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("a disk went bad")
    layout = layout_of(6)
    sender.layout(run_id, layout)
    stream = Stream(sender, run_id, layout)
    for first_step, num_steps in ((0, 20), (20, 20), (40, 20), (60, 20), (90, 10)):
        stats = layer_stats(layout, num_steps)
        stream.send(first_step, {"loss": np.linspace(2.0, 1.9, num_steps)}, stats=stats)
    sender.http.clear()
    service.stop()
    service.rot_frame(run_id, 3)
    service.start()
    service.ask("GET", f"/runs/{run_id}/series?metric=loss")
    told = f"/runs/{run_id}/timeline?kind=unreadable"
    until(lambda: service.ask("GET", told)["events"])
    return run_id


def test_a_chart_breaks_where_steps_cannot_be_read_and_says_why(
    window: OpenWindow, run_id: RunId
) -> None:
    page = window().open(f"/runs/{run_id}")

    expect(page.locator("#timeline .num-events")).not_to_have_text("…")  # it moves what is below
    loss = page.locator("#charts .chart[data-metrics*='\"loss\"']")
    loss.scroll_into_view_if_needed()
    expect(loss).to_have_attribute("data-drawn", "0-99")
    drawn = loss.locator(".canvas")
    shapes = drawn.evaluate("plot => plot.layout.shapes.map(shape => [shape.x0, shape.x1])")
    assert [39.5, 59.5] in shapes
    assert None in drawn.evaluate("plot => plot.data.find(trace => trace.yaxis !== 'y2').y")
    loss.locator(".plot").hover()
    expect(loss.locator(".readout")).to_contain_text("steps 40 to 59 cannot be read")


def test_where_nothing_can_be_read_the_chart_does_not_say_that_nothing_was_recorded(
    window: OpenWindow, run_id: RunId
) -> None:
    page = window().open(f"/runs/{run_id}?from=42&to=55")

    loss = page.locator("#charts .chart[data-metrics*='\"loss\"']")
    loss.scroll_into_view_if_needed()
    expect(loss.locator(".says")).to_contain_text("cannot be read: they are damaged")


_INK: Final = """(canvas, [from, to]) => {
  const x = (step) => Math.round(84 + (step / 99) * (canvas.clientWidth - 104));
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext('2d', { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(x(from), 0, x(to) - x(from), canvas.height);
  const alphas = data.filter((_, index) => index % 4 === 3);
  return alphas.filter((alpha) => alpha > 0).length / alphas.length;
}"""
"""The share of the heat map's pixels that are painted over some steps; 84 and 20 pixels are the
margins of the step axis."""


def test_the_heat_map_hatches_steps_without_values_and_says_why(
    window: OpenWindow, run_id: RunId
) -> None:
    visitor = window()
    page = visitor.open(f"/runs/{run_id}")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    page.locator("#layers[data-drawn='grad_norm 0-99']").wait_for()
    let_it_stand(page)
    canvas = layers.locator("canvas")

    assert canvas.evaluate(_INK, [1, 39]) == 1
    assert 0.1 < canvas.evaluate(_INK, [41, 58]) < 0.7
    assert 0.1 < canvas.evaluate(_INK, [81, 88]) < 0.7
    expect(layers.get_by_text("no values", exact=True)).to_be_visible()
    box = canvas.bounding_box()
    assert box is not None
    for step, words in (
        (50, "at step 50: steps 40 to 59 cannot be read: they are damaged"),
        (85, "at step 85: steps 80 to 89 have no values"),
    ):
        canvas.hover(position={"x": 84 + step / 99 * (box["width"] - 104), "y": 10})
        expect(layers.locator(".reading")).to_contain_text(words)
    visitor.shoot("run-gaps")


def test_the_timeline_tells_what_cannot_be_read(window: OpenWindow, run_id: RunId) -> None:
    page = window().open(f"/runs/{run_id}")

    expect(page.locator("#timeline .lanes").get_by_text("Gaps", exact=True)).to_be_visible()
    page.locator("#timeline summary").click()
    told = page.locator(".events tbody")
    expect(told).to_contain_text("stored and not readable (corrupt): steps 40 to 59")
