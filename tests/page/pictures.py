"""Makes the pictures of README and documents: a real service, runs sent to it, a real browser.

python -m tests.page.pictures        # writes docs/images/page-*.png
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser, Page, sync_playwright
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.page.seeding import Sender, Stream, curve, send_healthy, send_nan
from tests.page.visitor import Theme, Visitor, make_context
from tests.waiting import until

from runwatch.vocabulary import RunId

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
WIDTH: Final = 1280
RULE: Final = """\
version: 1
groups:
- name: ours
  rules:
  - alert: LossFarAboveItsMedian
    when: loss > 1.2 * median(loss, 64)
    for: {steps: 3}
    severity: warning
    annotations:
      summary: "loss {value:.3g} at step {step}"
  - alert: LossOutOfSight
    when: loss > 1.6 * median(loss, 64)
    severity: critical
"""


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    with (
        tempfile.TemporaryDirectory(prefix="runwatch-pictures-") as name,
        RealService(Path(name), environment=NOBODY_IS_MISSED) as service,
    ):
        take_all(service)


def take_all(service: RealService) -> None:
    sender = Sender(service.url, service.admin_key)
    send_sweep(sender)
    healthy = send_healthy(sender, "llama-1b · warm restart")
    broken = send_nan(sender, "moe-7b · top-2 of 16", onset=320, owner="lee")
    until(lambda: service.ask("GET", f"/alerts?run_id={broken}&rule=NonFinite")["alerts"])
    path = shutil.which("chromium")
    assert path is not None, "Chromium is not installed"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=Path(path), args=["--no-sandbox"])
        take(browser, service, "page-runs", "/", show_runs, height=800)
        take(browser, service, "page-run", f"/runs/{healthy}?from=1400&to=2000", show_run)
        take(
            browser,
            service,
            "page-layers",
            f"/runs/{broken}?from=240&to=399",
            show_layers,
            theme="dark",
        )
        take(browser, service, "page-backtest", "/rules/new", lambda page: try_rule(page, healthy))
        browser.close()
    sender.http.clear()


def take(
    browser: Browser,
    service: RealService,
    name: str,
    path: str,
    show: Callable[[Page], None],
    *,
    height: int = 1000,
    theme: Theme = "light",
) -> None:
    viewport = {"width": WIDTH, "height": height}
    visitor = Visitor(
        make_context(browser, service.url, viewport=viewport, theme=theme), service.admin_key
    )
    show(visitor.open(path))
    visitor.page.screenshot(path=FOLDER / f"{name}.png")
    assert visitor.complaints == []
    visitor.context.close()


def show_runs(page: Page) -> None:
    page.wait_for_function(
        "() => ![...document.querySelectorAll('.loss-now')].some((one) => one.innerText === '…')"
    )


def show_run(page: Page) -> None:
    page.locator("#charts .chart[data-drawn='1400-2000']").nth(2).wait_for()
    to_top(page, "#timeline")
    page.wait_for_function(_HAS_LEVELS)
    page.locator("#charts .chart").nth(1).locator(".plot").hover(position={"x": 430, "y": 40})
    page.wait_for_timeout(500)


_HAS_LEVELS: Final = """() => [...document.querySelectorAll('#charts .canvas')]
  .some((plot) => plot.data?.some((one) => one.line?.dash === 'dash'))"""


def show_layers(page: Page) -> None:
    layers = page.locator("#layers")
    layers.scroll_into_view_if_needed()
    page.locator("#layers[data-drawn='grad_norm 240-399']").wait_for()
    layers.locator("canvas").click(position={"x": 600, "y": 200})
    page.locator("#layers .layer[data-drawn]").wait_for()
    to_top(page, "#layers")
    layers.locator("canvas").hover(position={"x": 640, "y": 200})
    page.wait_for_timeout(500)


def try_rule(page: Page, run_id: RunId) -> None:
    page.get_by_label("Rule file").fill(RULE)
    page.get_by_label("Run").select_option(run_id)
    page.get_by_role("button", name="Try it").click()
    card = page.locator(".would-be")
    card.locator(".chart").first.scroll_into_view_if_needed()
    card.get_by_role("button", name="1\u202f600").first.click()
    page.locator(".would-be .chart[data-drawn='1500-1700']").wait_for()
    page.mouse.move(0, 0)
    page.evaluate("scrollTo(0, 330)")
    page.wait_for_timeout(500)


def to_top(page: Page, place: str) -> None:
    """Below the toolbar, which stays in sight."""
    page.evaluate(
        "place => scrollBy(0, document.querySelector(place).getBoundingClientRect().top - 60)",
        place,
    )


def send_sweep(sender: Sender) -> None:
    """Eight of a group: some train, some ended one way or the other; and one of another kind."""
    endings = ("finished", "stopped", None, "finished", None, "failed", "stopped", None)
    for index, (ending, owner) in enumerate(
        zip(endings, ("ada", "noor", "kim", "ada") * 2, strict=True)
    ):
        name = f"sweep-{index + 1:02} · lr {1.2e-4 * (index + 1):.1e}"
        run_id = sender.open(name, project="speech", group="lr-sweep", owner=owner)
        Stream(sender, run_id).send(0, curve(0, 500 + 311 * index, seed=index))
        if ending is not None:
            body = {"status": ending, "reason": "" if ending != "failed" else "out of memory"}
            sender.ask("POST", f"/runs/{run_id}/attempts/1/close", body)
    vision = sender.open("vit-l/16 · from scratch", project="vision", owner="ada")
    Stream(sender, vision).send(0, curve(0, 900))


if __name__ == "__main__":
    main()
