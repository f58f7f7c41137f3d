"""A layer whose gradient is nothing but NaN has no norm, however coarsely its curve is drawn."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import STATS, Sender, Stream, curve, layer_stats
from tests.page.visitor import PHONE

from runwatch.layouts import Layer, Layout

pytestmark = pytest.mark.heavy

ONE = Layout((Layer("embed", (8,)),), STATS)
NUM_STEPS = 2000
SENT = 500
BROKEN_FROM = 500


def test_what_is_all_nan_is_not_read_as_a_norm_of_zero(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open("nothing left")
    sender.layout(run_id, ONE)
    stats = layer_stats(ONE, NUM_STEPS)
    stats[BROKEN_FROM:, STATS.index("grad_norm")] = 0.0
    stats[BROKEN_FROM:, STATS.index("nonfinite")] = 8.0
    stream = Stream(sender, run_id, ONE)
    for first_step in range(0, NUM_STEPS, SENT):
        part = stats[first_step : first_step + SENT]
        stream.send(first_step, curve(first_step, SENT), stats=part)
    sender.http.clear()
    page = window(viewport=PHONE).open(f"/runs/{run_id}")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    layers.get_by_role("button", name="embed").or_(layers.get_by_role("link", name="embed")).click()

    readout = layers.locator(".layer .readout")
    expect(readout).to_contain_text("NaN or ∞")
    expect(readout.locator("b")).to_have_count(0)
