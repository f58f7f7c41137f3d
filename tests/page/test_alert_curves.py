"""The curves on an alert's card: what its rule judges, around the onset, and how it goes on."""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.looking import out_of_sight, settle
from tests.page.seeding import Sender, Stream, layer_stats, layout_of
from tests.page.visitor import PHONE
from tests.waiting import until

from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy

RULE: Final = {
    "version": 1,
    "groups": [
        {
            "name": "ours",
            "rules": [
                {
                    "alert": "LossAbove3",
                    "when": "loss > 3",
                    "for": {"steps": 4},
                    "severity": "warning",
                }
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def sender(service: RealService) -> Iterator[Sender]:
    made = Sender(service.url, service.admin_key)
    made.ask("POST", "/rules", RULE)
    yield made
    made.http.clear()


def losses(num_steps: int, level: float = 2.0) -> dict[str, np.ndarray[Any, np.dtype[np.float64]]]:
    return {"loss": np.full(num_steps, level) + 0.1 * np.sin(np.arange(num_steps))}


def alert_of(sender: Sender, run_id: RunId, rule: str) -> str:
    path = f"/alerts?run_id={run_id}&rule={rule}&state=firing&state=resolved&state=recovering"
    alert, *_ = until(lambda: sender.ask("GET", path)["alerts"])
    alert_id: str = alert["id"]
    return alert_id


def lines_of(chart: Locator) -> Any:
    """Upright lines: their steps, and how they are drawn."""
    return chart.locator(".canvas").evaluate(
        "plot => plot.layout.shapes.filter((one) => one.type === 'line')"
        ".map((one) => [one.x0, one.line.dash])"
    )


def spans_of(chart: Locator) -> Any:
    """Shaded steps."""
    return chart.locator(".canvas").evaluate(
        "plot => plot.layout.shapes.filter((one) => one.type === 'rect')"
        ".map((one) => [one.x0, one.x1])"
    )


def dashes_of(chart: Locator) -> Any:
    """How each line is drawn, with its first and last step and its last value."""
    return chart.locator(".canvas").evaluate(
        "plot => plot.data.filter((one) => one.mode.startsWith('lines'))"
        ".map((one) => [one.line.dash, one.x[0], one.x.at(-1), one.y.at(-1)])"
    )


def wait_for_level(page: Page) -> None:
    page.wait_for_function(
        "() => [...document.querySelectorAll('#curves .canvas')]"
        ".some((plot) => plot.data?.some((one) => one.line?.dash === 'dash'))"
    )


def test_the_judged_metric_is_drawn_around_the_onset_with_the_rule_s_level(
    window: OpenWindow, sender: Sender
) -> None:
    run_id = sender.open("one bad stretch")
    stream = Stream(sender, run_id)
    stream.send(0, losses(600))
    stream.send(600, losses(60, 5.0))
    stream.send(660, losses(340))
    alert_id = alert_of(sender, run_id, "LossAbove3")
    visitor = window()
    page = visitor.open(f"/alerts/{alert_id}")

    chart = page.locator("#curves .chart")
    expect(chart.locator("h3")).to_have_text("loss")
    expect(chart).to_have_attribute("data-drawn", "400-804")
    wait_for_level(page)
    assert lines_of(chart) == [[600, "dot"], [604, "solid"]]
    assert dashes_of(chart)[-1] == ["dash", 400, 804, 3]
    visitor.shoot("alert-curve")


def test_its_buttons_are_heard_before_what_draws_has_come(
    window: OpenWindow, sender: Sender
) -> None:
    run_id = sender.open("pressed at once")
    Stream(sender, run_id).send(0, losses(60, 5.0))
    alert_id = alert_of(sender, run_id, "LossAbove3")
    page, held = window().page, list[Route]()
    page.route("**/alert_curves.js*", lambda route: held.append(route))

    with page.expect_request("**/alert_curves.js*"):
        page.goto(f"/alerts/{alert_id}")
    page.get_by_role("button", name="Acknowledge").click()

    expect(page.locator("dialog#ack")).to_be_visible()
    held[0].continue_()
    expect(page.locator("#curves .chart")).to_have_attribute("data-drawn", "0-59")


def test_a_broken_layer_s_gradient_stands_before_the_loss(
    window: OpenWindow, sender: Sender
) -> None:
    run_id = sender.open("broken layer")
    layout = layout_of(6)
    sender.layout(run_id, layout)
    metrics, stats = losses(100), layer_stats(layout, 100)
    metrics["loss"][71:] = np.nan
    stats[70:, 2], stats[70:, 8] = np.nan, 64
    Stream(sender, run_id, layout).send(0, metrics, stats=stats)
    alert_id = alert_of(sender, run_id, "NonFinite")
    for theme in ("light", "dark"):
        visitor = window(viewport=PHONE, theme=theme)
        page = visitor.open(f"/alerts/{alert_id}")
        charts = page.locator("#curves .chart")
        expect(charts.locator(".says")).to_have_count(3)  # from here on they say that they load
        settle(page)
        name = layout.layer_names[2]
        expect(charts.locator("h3")).to_have_text(
            [f"grad_norm of {name}", f"nonfinite of {name}", "loss"]
        )
        expect(charts.first).to_have_attribute("data-drawn", "0-99")
        marks = charts.last.locator(".canvas").evaluate(
            "plot => plot.data.find((one) => one.yaxis === 'y2').x[0]"
        )
        assert marks == 71
        assert out_of_sight(page) == []
        visitor.shoot(f"alert-curves-phone-{theme}")


def test_what_follows_comes_in_while_one_looks_until_it_is_over(
    window: OpenWindow, sender: Sender
) -> None:
    run_id = sender.open("still going on")
    stream = Stream(sender, run_id)
    stream.send(0, losses(300))
    stream.send(300, losses(20, 5.0))
    page = window().open(f"/alerts/{alert_of(sender, run_id, 'LossAbove3')}")
    chart = page.locator("#curves .chart")
    expect(chart).to_have_attribute("data-drawn", "100-319")
    assert spans_of(chart) == [[304, 319]]

    stream.send(320, losses(40))

    expect(chart).to_have_attribute("data-drawn", "100-359")
    expect(page.locator("#alert-head")).to_contain_text("resolved")
    until(lambda: spans_of(chart) == [[304, 320]])


def test_after_a_rollback_the_judged_steps_stay_beside_those_in_their_place(
    window: OpenWindow, sender: Sender
) -> None:
    run_id = sender.open("rolled back")
    stream = Stream(sender, run_id)
    stream.send(0, losses(300))
    stream.send(300, losses(50, 5.0))
    alert_id = alert_of(sender, run_id, "LossAbove3")
    stream.send(280, losses(100), segment=1)
    visitor = window()
    page = visitor.open(f"/alerts/{alert_id}")

    chart = page.locator("#curves .chart")
    expect(chart).to_have_attribute("data-drawn", "100-379")
    expect(page.locator("#curves")).to_contain_text("trained before it, or in its place")
    wait_for_level(page)
    judged, other, level = dashes_of(chart)
    assert judged[:3] == ["solid", 100, 349]
    assert other[:3] == ["dot", 280, 379]
    assert level == ["dash", 100, 279, 3]
    assert spans_of(chart) == [[304, 349]]
    visitor.shoot("alert-rolled-back")


def test_steps_that_count_samples_make_a_curve_too(window: OpenWindow, sender: Sender) -> None:
    run_id = sender.open("a step is 4096 samples")
    stream = Stream(sender, run_id)
    for index in range(60):
        stream.send(4096 * index, losses(1, 5.0 if 40 <= index < 50 else 2.0))
    page = window().open(f"/alerts/{alert_of(sender, run_id, 'LossAbove3')}")

    chart = page.locator("#curves .chart")
    expect(chart).to_have_attribute("data-drawn", f"0-{4096 * 59}")
    expect(chart.locator(".says")).to_be_hidden()
