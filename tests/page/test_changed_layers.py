"""The heat map of a run whose layers changed midway: unfrozen ones come, others go."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.looking import let_it_stand
from tests.page.seeding import STATS, Sender, Stream, curve, layer_stats

from runwatch.layouts import Layer, Layout

pytestmark = pytest.mark.heavy

HEAD_ONLY = Layout(tuple(Layer(name, (8,)) for name in ("embed", "probe", "head")), STATS)
ALL = Layout(tuple(Layer(name, (8,)) for name in ("embed", "blocks.0", "blocks.1", "head")), STATS)

ROWS = {
    "embed": (True, True),
    "probe": (True, False),
    "blocks.0": (False, True),
    "blocks.1": (False, True),
    "head": (True, True),
}
"""Whether each is recorded in the first and in the second half."""


def test_layers_of_before_are_rows_of_their_own_and_hatched_where_they_were_not(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("unfrozen at 50")
    stream = Stream(sender, run_id)
    for first_step, layout in ((0, HEAD_ONLY), (50, ALL)):
        sender.layout(run_id, layout)
        stream.layout = layout
        stream.send(first_step, curve(first_step, 50), stats=layer_stats(layout, 50))
    sender.http.clear()
    visitor = window()
    page = visitor.open(f"/runs/{run_id}")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    page.locator("#layers[data-drawn='grad_norm 0-99']").wait_for()
    let_it_stand(page)

    expect(layers.locator(".names span")).to_have_text(list(ROWS))
    expect(layers.locator(".gap-key")).to_be_visible()
    canvas = layers.locator("canvas")
    box = canvas.bounding_box()
    assert box is not None
    height = box["height"] / len(ROWS)
    reading = layers.locator(".reading")
    for index, (name, halves) in enumerate(ROWS.items()):
        for step, is_recorded in zip((25, 75), halves, strict=True):
            x = 84 + step / 99 * (box["width"] - 104)
            canvas.hover(position={"x": x, "y": (index + 0.5) * height})
            expect(reading).to_contain_text(f"{name} at step {step}")
            if is_recorded:
                expect(reading).to_contain_text("its usual")
            else:
                expect(reading).to_contain_text("not recorded")
    visitor.shoot("run-changed-layers")

    canvas.click(position={"x": 200, "y": 1.5 * height})
    expect(layers.locator(".layer h3")).to_contain_text("grad_norm of probe")
    expect(layers.locator(".layer")).to_have_attribute("data-drawn", "0-99")
