"""Steps that are stored and cannot be read: marked on the charts, told on the timeline."""

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, Stream
from tests.waiting import until

from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def run_id(service: RealService) -> RunId:
    """Of 100 steps; a bit of those from 40 to 59 turned while the service was stopped."""
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("a disk went bad")
    stream = Stream(sender, run_id)
    for first_step in range(0, 100, 20):
        stream.send(first_step, {"loss": np.linspace(2.0, 1.9, 20)})
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
    box = loss.locator(".plot").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(loss.locator(".readout")).to_contain_text("steps 40 to 59 cannot be read")


def test_where_nothing_can_be_read_the_chart_does_not_say_that_nothing_was_recorded(
    window: OpenWindow, run_id: RunId
) -> None:
    page = window().open(f"/runs/{run_id}?from=42&to=55")

    loss = page.locator("#charts .chart[data-metrics*='\"loss\"']")
    loss.scroll_into_view_if_needed()
    expect(loss.locator(".says")).to_contain_text("cannot be read: they are damaged")


def test_the_timeline_tells_what_cannot_be_read(window: OpenWindow, run_id: RunId) -> None:
    page = window().open(f"/runs/{run_id}")

    expect(page.locator("#timeline .lanes").get_by_text("Gaps", exact=True)).to_be_visible()
    page.locator("#timeline summary").click()
    told = page.locator(".events tbody")
    expect(told).to_contain_text("stored and not readable (corrupt): steps 40 to 59")
