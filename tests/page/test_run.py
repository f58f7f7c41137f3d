"""The page of a run: where it stands, what happened, its curves and its layers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, Route, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.line import Line
from tests.page.looking import let_it_stand, size_of
from tests.page.seeding import (
    Sender,
    Stream,
    curve,
    layer_stats,
    layout_of,
    send_healthy,
    send_long,
    send_nan,
    send_ranks,
)
from tests.page.sent_run import SentRun
from tests.page.visitor import PHONE
from tests.waiting import until

from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy

HOSTILE = "<script>alert('x')</script>"


@dataclass(frozen=True)
class Runs:
    sender: Sender
    healthy: RunId
    nan: RunId
    long: RunId
    ranks: RunId


@pytest.fixture(scope="module")
def runs(service: RealService) -> Iterator[Runs]:
    sender = Sender(service.url, service.admin_key)
    yield Runs(
        sender,
        healthy=send_healthy(sender),
        nan=send_nan(sender, HOSTILE),
        long=send_long(sender, num_steps=100_000, layers_from=99_000),
        ranks=send_ranks(sender),
    )
    sender.http.clear()


def drawn(page: Page, metric: str, steps: str | re.Pattern[str]) -> Locator:
    """The chart of a metric, once it shows these steps."""
    figure = page.locator(f"#charts .chart[data-metrics*='\"{metric}\"']")
    expect(page.locator("#timeline .num-events")).not_to_have_text("…")  # it moves what is below
    figure.scroll_into_view_if_needed()
    expect(figure).to_have_attribute("data-drawn", steps)
    return figure


def test_the_banner_of_a_run_that_failed_says_why(window: OpenWindow, service: RealService) -> None:
    run = SentRun(service, "out of memory")
    run.send([2.0] * 3)
    reason = "OutOfMemoryError: CUDA out of memory. Tried to allocate 20 MiB. " + "More. " * 200
    closed = {"status": "failed", "reason": reason}
    service.ask("POST", f"/runs/{run.id}/attempts/1/close", closed)

    page = window().open(f"/runs/{run.id}")

    place = "#banner .ended-by"
    expect(page.locator(place)).to_contain_text("OutOfMemoryError: CUDA out of memory")
    _, height = size_of(page, place)
    assert height < 80, "three lines"


def test_the_banner_says_how_it_stands(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.nan}")

    banner = page.locator("#banner")
    expect(banner).to_contain_text("499")
    expect(banner.locator(".broken").first).to_have_text("NaN")
    expect(banner.get_by_role("link", name="NonFinite")).to_be_visible()
    expect(page.get_by_role("heading", name=HOSTILE)).to_be_visible()
    expect(page.get_by_text("<i>mallory</i>").first).to_be_visible()


def test_the_timeline_tells_all_that_happened_on_the_charts_axis(
    window: OpenWindow, runs: Runs
) -> None:
    visitor = window()
    page = visitor.open(f"/runs/{runs.healthy}")

    lanes = page.locator("#timeline .lanes")
    for name in ("Attempts", "Actions", "Checkpoints", "Phases", "Gaps"):
        expect(lanes.get_by_text(name, exact=True)).to_be_visible()
    expect(lanes.locator(".bar.undone")).to_have_count(1)
    expect(lanes.locator(".mark.good")).to_have_count(5)
    expect(lanes.locator(".back.warn")).to_have_count(1)
    page.locator("#timeline summary").click()
    expect(page.locator(".events tbody")).to_contain_text("rolled back to step 1\u202f500")
    assert "T" not in page.locator(".events time").first.inner_text()  # "3 s ago", from the first
    drawn(page, "loss", "0-2999")
    visitor.shoot("run-timeline")


def test_what_is_no_number_is_drawn_as_what_it_is(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.nan}?from=400&to=450")

    norm = drawn(page, "grad_norm", "400-450")
    symbols = norm.locator(".canvas").evaluate(
        "plot => plot.data.filter(t => t.yaxis === 'y2').flatMap(t => t.marker.symbol)"
    )
    assert (symbols.count("triangle-up"), symbols.count("x-thin")) == (1, 30)
    expect(norm.locator(".readout")).to_contain_text("NaN")


def test_a_zoom_asks_the_server_for_finer_data(window: OpenWindow, runs: Runs) -> None:
    visitor = window()
    page = visitor.open(f"/runs/{runs.long}")
    loss = drawn(page, "loss", "0-99999")
    width = "plot => Math.max(...plot.data.map(t => t.x.length))"
    assert loss.locator(".canvas").evaluate(width) < 5000
    visitor.shoot("run-long")

    plot = loss.locator(".plot")
    plot.hover(position={"x": 400, "y": 60})
    page.mouse.down()
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 404, box["y"] + 60, steps=4)
    page.mouse.move(box["x"] + 430, box["y"] + 60, steps=4)
    page.mouse.up()

    expect(page.locator("#in-view")).not_to_contain_text("(all)")
    drawn(page, "loss", re.compile(r"^[1-9]\d*-[1-9]\d*$"))
    page.get_by_role("button", name="Newest").click()
    drawn(page, "loss", "99000-99999")
    steps = loss.locator(".canvas").evaluate("plot => plot.data[0].x")
    assert steps[:2] == [99_000, 99_001]
    page.get_by_role("button", name="Back", exact=True).click()
    page.get_by_role("button", name="All", exact=True).click()
    drawn(page, "loss", "0-99999")


def test_undone_steps_stay_visible_and_can_be_hidden(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.healthy}")
    loss = drawn(page, "loss", "0-2999")
    dotted = "plot.data.filter(t => t.line && t.line.dash === 'dot').length"
    plot = loss.locator(".canvas").element_handle()
    page.wait_for_function(f"plot => {dotted} === 1", arg=plot)

    page.get_by_label("Undone steps").uncheck()

    page.wait_for_function(f"plot => {dotted} === 0", arg=plot)


def test_the_levels_of_rules_are_drawn_over_what_they_judge(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.healthy}?from=1700&to=2100")
    loss = drawn(page, "loss", "1700-2100")
    dashed = "plot.data.filter(t => t.line && t.line.dash === 'dash').length"
    plot = loss.locator(".canvas").element_handle()
    page.wait_for_function(f"plot => {dashed} > 0", arg=plot)
    loss.locator(".plot").hover()
    expect(loss.locator(".readout")).to_contain_text("LossSpike")

    page.get_by_label("Rules' limits").uncheck()

    page.wait_for_function(f"plot => {dashed} === 0", arg=plot)


def test_the_levels_of_rules_of_single_layers_are_drawn_over_the_layer(
    window: OpenWindow, runs: Runs
) -> None:
    visitor = window()
    page = visitor.open(f"/runs/{runs.healthy}?from=1000&to=1400")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    expect(layers).to_have_attribute("data-drawn", "grad_norm 1000-1400")

    layers.locator(".worst tbody button").first.click()

    layer = layers.locator(".layer")
    expect(layer).to_have_attribute("data-drawn", "1000-1400")
    layer.locator(".plot").hover()
    expect(layer.locator(".readout")).to_contain_text("LayerGradientExplosion")
    visitor.shoot("run-layer-levels")
    page.get_by_label("Rules' limits").uncheck()
    expect(layer.locator(".readout")).not_to_contain_text("LayerGradientExplosion")


def test_smoothing_leaves_the_raw_curve_and_log_is_a_click(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.healthy}?from=2000&to=2400")
    loss = drawn(page, "loss", "2000-2400")

    page.locator("#smoothing").fill("0.9")
    page.wait_for_function(
        "figure => figure.querySelector('.canvas').data.filter(t => t.opacity === 0.3).length > 0",
        arg=loss.element_handle(),
    )
    loss.get_by_role("button", name="log").click()

    expect(loss.get_by_role("button", name="log")).to_have_attribute("aria-pressed", "true")
    assert loss.locator(".canvas").evaluate("plot => plot.layout.yaxis.type") == "log"


def test_the_heat_map_shows_the_onset_as_a_front(window: OpenWindow, runs: Runs) -> None:
    visitor = window(theme="dark")
    page = visitor.open(f"/runs/{runs.nan}?from=400&to=499")

    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    expect(layers).to_have_attribute("data-drawn", "grad_norm 400-499")
    expect(layers.locator(".legend .words")).to_contain_text("300 of 300 layers hold NaN")
    expect(layers.locator(".legend .words")).to_contain_text("from step 420")
    expect(layers.locator(".worst tbody tr").first).to_contain_text("blocks.33.attn.proj.weight")
    visitor.shoot("run-nan-dark")


def test_a_link_to_a_step_lists_the_layers_by_when_they_broke(
    window: OpenWindow, runs: Runs
) -> None:
    page = window().open(f"/runs/{runs.nan}?step=430")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()

    expect(layers.locator(".worst h3")).to_have_text("Worst layers at step 430")
    rows = layers.locator(".worst tbody tr")
    expect(rows.first).to_contain_text("blocks.33.attn.proj.weight")
    expect(rows.first.locator("td").last).to_have_text("420")
    expect(rows.nth(10).locator("td").last).to_have_text("421")


def test_who_broke_first_is_told_to_the_step_however_wide_the_columns(
    window: OpenWindow, runs: Runs
) -> None:
    page = window(viewport=PHONE).open(f"/runs/{runs.nan}?step=430")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    first = layers.locator(".worst tbody tr").first

    expect(layers.locator(".legend .words")).to_contain_text("the first within steps")
    expect(first).to_contain_text("blocks.33.attn.proj.weight")
    expect(first.locator("td").last).to_have_text("420")
    expect(first.locator("wbr")).to_have_count(5)  # a name breaks after its dots


def test_a_click_on_a_cell_shows_the_layer_its_neighbours_and_the_worst_of_the_step(
    window: OpenWindow, runs: Runs
) -> None:
    visitor = window()
    page = visitor.open(f"/runs/{runs.healthy}")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    expect(layers).to_have_attribute("data-drawn", "grad_norm 0-2999")
    let_it_stand(page)

    layers.locator("canvas").click(position={"x": 700, "y": 200})

    expect(layers.locator(".reading")).to_contain_text("at step 1")
    expect(layers.locator(".layer h3")).to_contain_text("and its neighbours")
    expect(layers.locator(".layer")).to_have_attribute("data-drawn", "0-2999")
    expect(layers.locator(".layer .readout > span")).to_have_count(3)
    expect(layers.locator(".worst h3")).to_contain_text("Layers at step 1")
    expect(page).to_have_url(re.compile(r"step=1\d+"))
    layers.locator(".worst tbody button").nth(3).click()
    expect(layers.locator(".layer .readout > span").first).to_be_visible()
    gradients = layers.locator(".histogram", has_text="Gradients")
    expect(gradients).to_contain_text(re.compile("at step 1\u202f[36]00"))
    expect(gradients).to_contain_text("% zero")
    assert gradients.locator(".bin").count() >= 12
    expect(layers.locator(".histogram", has_text="Weights")).to_be_visible()
    visitor.shoot("run-layer")


def test_the_layer_that_broke_first_is_shown_at_a_click_and_by_a_link(
    window: OpenWindow, service: RealService
) -> None:
    layers = [f"blocks.{index}.weight" for index in range(8)]
    sent = SentRun(service, "one layer broke", layers=layers)
    sent.send([2.0] * 20, [1.0] * 8)
    sent.send([2.0] * 5, [*[1.0] * 5, "NaN", 1.0, 1.0])
    sent.wait_for_alert("NonFinite")
    page = window().open(f"/runs/{sent.id}")

    page.locator("#banner").get_by_role("button", name="blocks.5.weight").click()
    shown = page.locator("#layers .layer")
    expect(shown.locator("h3")).to_contain_text("grad_norm of blocks.5.weight")
    expect(shown).to_be_visible()
    page.wait_for_url("**layer=blocks.5.weight")

    page.reload()
    page.locator("#layers").scroll_into_view_if_needed()
    expect(shown.locator("h3")).to_contain_text("grad_norm of blocks.5.weight")


def test_the_heat_map_takes_another_stat_a_name_and_keys(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.healthy}")
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()

    layers.get_by_label("Stat").select_option("update_ratio")
    expect(layers).to_have_attribute("data-drawn", "update_ratio 0-2999")
    layers.get_by_role("searchbox").fill("mlp")
    expect(layers.locator(".legend .words")).to_contain_text("8 layers")
    layers.locator("canvas").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    expect(layers.locator(".layer h3")).to_contain_text("mlp")


def test_the_cursor_reads_every_chart_at_one_step(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.healthy}")
    loss = drawn(page, "loss", "0-2999")
    drawn(page, "lr", "0-2999")
    page.mouse.move(0, 0)

    loss.locator(".plot").focus()
    page.keyboard.press("ArrowRight")

    expect(page.locator("#at")).to_have_text("step 1\u202f530")
    lr = page.locator(".chart[data-metrics*=lr]")
    expect(lr.locator(".readout")).to_contain_text("3e-4")
    expect(lr.locator(".ytick text").first).to_have_text(re.compile(r"^(0|\d(\.\d)?e-4)$"))
    expect(lr.locator(".ytick text", has_text="0.000")).to_have_count(0)


def test_ranks_are_compared_and_who_is_behind_is_told(window: OpenWindow, runs: Runs) -> None:
    visitor = window()
    page = visitor.open(f"/runs/{runs.ranks}")

    ranks = page.locator("#ranks")
    ranks.scroll_into_view_if_needed()
    expect(ranks.locator("tbody tr").nth(2)).to_contain_text("100 steps")
    expect(ranks.locator("tbody tr td:last-child")).to_have_text(
        ["gpu-node-0", "gpu-node-0", "gpu-node-1", "gpu-node-1"]
    )
    expect(page.locator("#about")).to_contain_text("gpu-node-1 ranks 2 to 3")
    expect(ranks.locator(".chart")).to_have_attribute("data-drawn", "0-399")
    expect(ranks.locator(".readout > span")).to_have_count(4)
    visitor.shoot("run-ranks")


def test_what_all_ranks_say_is_told_once_and_each_is_in_the_list(
    window: OpenWindow, runs: Runs
) -> None:
    run_id = runs.sender.open("broken on each rank", world_size=4)
    for rank in range(4):
        stream = Stream(runs.sender, run_id, rank=rank)
        stream.send(0, curve(0, 60) | {"loss": np.append(np.linspace(3, 2, 50), [np.nan] * 10)})
    asked = f"/alerts?run_id={run_id}&rule=NonFinite"
    until(lambda: len(runs.sender.ask("GET", asked)["alerts"]) == 4)
    page = window().open(f"/runs/{run_id}")

    line = page.locator("#alerts li").filter(has_text="NonFinite")
    expect(line).to_have_count(1)
    expect(line).to_contain_text("on ranks 0 to 3")
    expect(page.locator("#timeline .bar-label.critical")).to_have_text("NonFinite, 4 ranks")

    line.get_by_role("link", name="ranks 0 to 3").click()
    rows = page.locator("#alerts tbody tr")
    expect(rows).to_have_count(4)
    expect(rows.filter(has_text="rank 3")).to_have_count(1)


def test_hundreds_of_ranks_stand_in_one_picture(window: OpenWindow, runs: Runs) -> None:
    run_id = send_ranks(runs.sender, 256, num_steps=100)
    until(lambda: runs.sender.ask("GET", f"/alerts?run_id={run_id}")["judged"])
    visitor = window()
    page = visitor.open(f"/runs/{run_id}")
    let_it_stand(page)  # a row is two pixels high

    ranks = page.locator("#ranks")
    ranks.scroll_into_view_if_needed()
    expect(ranks.locator(".rank-map")).to_have_attribute("data-drawn", "step_time 0-99")
    expect(ranks.locator(".words")).to_contain_text("256 ranks")
    expect(ranks.locator(".level")).to_contain_text("255 of 256 ranks are at step 99")
    expect(ranks.locator("tbody tr")).to_have_count(1)
    canvas = ranks.locator("canvas")
    canvas.click(position={"x": 500, "y": 5})
    expect(ranks.locator(".reading")).to_contain_text("rank 2 on gpu-node-1 at step")
    expect(ranks.locator(".reading")).to_contain_text("1.5")
    expect(ranks.locator(".chart h3")).to_contain_text("rank 0, rank 2")
    visitor.shoot("run-ranks-many")


def test_steps_alerts_and_broken_layers_arrive_live(window: OpenWindow, runs: Runs) -> None:
    run_id = runs.sender.open("live one")
    layout = layout_of(12)
    runs.sender.layout(run_id, layout)
    stream = Stream(runs.sender, run_id, layout)
    stream.send(0, curve(0, 100))
    page = window().open(f"/runs/{run_id}")
    expect(page.locator("#live")).to_have_text("Live")
    drawn(page, "loss", "0-99")

    stream.send(100, curve(100, 50))
    drawn(page, "loss", "0-149")
    stream.send(150, curve(150, 10) | {"loss": np.full(10, np.nan)})

    drawn(page, "loss", "0-159")
    expect(page.locator("#alerts").get_by_role("link", name="NonFinite")).to_be_visible()
    expect(page.locator("#timeline .lanes .bar.critical")).to_have_count(1)


def test_news_leave_the_focus_where_the_reader_has_it(window: OpenWindow, runs: Runs) -> None:
    run_id = runs.sender.open("read by keys")
    layout = layout_of(6)
    runs.sender.layout(run_id, layout)
    stream = Stream(runs.sender, run_id, layout)
    stream.send(0, curve(0, 20), stats=layer_stats(layout, 20))
    page = window().open(f"/runs/{run_id}")
    page.locator("#layers").scroll_into_view_if_needed()
    worst = page.locator("#layers .worst")
    embedding = worst.get_by_role("button", name="embed.weight", exact=True)
    embedding.focus()

    stream.send(20, curve(20, 20), stats=layer_stats(layout, 20))

    expect(worst.locator("h3")).to_have_text("Layers at step 39")
    expect(embedding).to_be_focused()


def test_news_leave_the_focus_where_it_is_in_the_banner(
    window: OpenWindow, service: RealService
) -> None:
    sent = SentRun(service, "read by keys in its banner")
    sent.send([2.0] * 10 + ["NaN"])
    sent.wait_for_alert("NonFinite")
    page = window().open(f"/runs/{sent.id}")
    expect(page.locator("#live")).to_have_text("Live")
    alert = page.locator("#banner").get_by_role("link", name="NonFinite")
    alert.focus()

    sent.send(["NaN"] * 2)

    expect(page.locator(".vitals div", has_text=re.compile("^Step"))).to_contain_text("12")
    expect(alert).to_be_focused()


def test_what_happened_before_the_stream_was_open_is_shown(
    window: OpenWindow, service: RealService
) -> None:
    sent = SentRun(service, "broke while its page was opened")
    sent.send([2.0] * 10)
    visitor = window()
    held: list[Route] = []
    visitor.page.route("**/api/v1/stream*", lambda route: held.append(route))
    with visitor.page.expect_request("**/api/v1/stream*"):
        page = visitor.open(f"/runs/{sent.id}")
    expect(page.get_by_text("No alert fires.")).to_be_visible()
    sent.send(["NaN"])
    sent.wait_for_alert("NonFinite")

    held[0].continue_()

    expect(page.locator("#banner").get_by_role("link", name="NonFinite")).to_be_visible()
    expect(page.locator("#timeline .lanes .bar.critical")).to_have_count(1)


def test_a_run_without_steps_says_what_to_do(window: OpenWindow, runs: Runs) -> None:
    page = window().open(f"/runs/{runs.sender.open('not yet')}")

    expect(page.get_by_role("heading", name="Nothing has been recorded yet")).to_be_visible()


def test_a_chart_that_could_not_be_read_can_be_asked_for_again(
    window: OpenWindow, runs: Runs
) -> None:
    visitor = window()
    visitor.foreseen = ("ERR_FAILED",)
    asked, line = "**/series?*metric=loss*", Line(visitor.page)
    line.cut(asked)
    page = visitor.open(f"/runs/{runs.healthy}")
    loss = page.locator(".chart[data-metrics*='\"loss\"']")
    expect(loss.locator(".says")).to_contain_text("cannot be reached")

    line.hold(asked)  # else the page, which tries again by itself, may be faster
    with page.expect_request(asked):
        loss.get_by_role("button", name="Try again").click()
    line.mend(asked)

    drawn(page, "loss", "0-2999")


def test_a_run_of_another_project_is_not_there(window: OpenWindow, runs: Runs) -> None:
    body = {"name": "t", "scopes": ["read"], "project": "speech"}
    key = runs.sender.ask("POST", "/keys", body)["key"]
    visitor = window(key=key)
    visitor.foreseen = ("404",)

    page = visitor.open(f"/runs/{runs.healthy}")

    expect(page.locator("#charts")).to_have_count(0)
    expect(page.get_by_text("llama-1b")).to_have_count(0)


def test_it_is_whole_on_a_phone(window: OpenWindow, runs: Runs) -> None:
    visitor = window(viewport=PHONE)
    page = visitor.open(f"/runs/{runs.nan}")

    drawn(page, "loss", "0-499")
    page.locator("#layers").scroll_into_view_if_needed()
    expect(page.locator("#layers")).to_have_attribute("data-drawn", "grad_norm 0-499")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    visitor.shoot("run-phone")
