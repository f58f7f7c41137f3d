"""Every page by day and by night, on a desk and on a telephone: nothing is cut off, too faint to
read or without a name. With SCREENSHOTS=folder they are kept, to be looked at.
"""

from collections.abc import Generator
from dataclasses import dataclass
from itertools import product
from typing import Final

import pytest
from playwright.sync_api import Browser, expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.line import Line
from tests.page.looking import let_it_fade, out_of_sight, settle, size_of
from tests.page.seeding import Sender, Stream, curve, send_healthy, send_nan, send_ranks
from tests.page.sent_run import SentRun
from tests.page.visitor import DESKTOP, PHONE, Theme, Visitor, make_context
from tests.waiting import until

pytestmark = pytest.mark.heavy

PAGES: Final = {
    "runs": "/",
    "runs-empty": "/?search=nothing+like+this",
    "run-healthy": "/runs/{healthy}",
    "run-broken": "/runs/{nan}?step=430",
    "run-of-ranks": "/runs/{ranks}",
    "run-empty": "/runs/{empty}",
    "act": "/runs/{healthy}/act",
    "alerts": "/alerts?show=all",
    "alert": "/alerts/{alert}",
    "rules": "/rules",
    "rule": "/rules/new",
    "compare": "/compare?a={healthy}&b={nan}",
    "settings": "/settings",
    "silences": "/silences",
    "runbooks": "/runbooks",
    "runbook": "/runbooks/non-finite",
    "audit": "/settings/audit",
    "interface": "/docs",
    "welcome": "/welcome",
    "login": "/login",
}
SIZES: Final = {"desktop": DESKTOP, "phone": PHONE}
Look = tuple[Theme, str]
THEMES: Final[tuple[Theme, Theme]] = ("light", "dark")
MOST_SHIFTED: Final = 0.1
"""Cumulative layout shift up to which a page counts as good (web.dev/articles/cls)."""
LOOKS: Final[list[Look]] = list(product(THEMES, SIZES))


@dataclass(frozen=True)
class Seen:
    """Ids of what the pages show."""

    ids: dict[str, str]


@pytest.fixture(scope="module")
def seen(service: RealService) -> Generator[Seen]:
    sender = Sender(service.url, service.admin_key)
    nan = send_nan(sender, f"<b>bold</b> pretraining_{'x' * 120}", num_layers=60)
    empty = sender.open("not yet")
    ids: dict[str, str] = {"healthy": send_healthy(sender), "nan": nan, "empty": empty}
    ids["ranks"] = send_ranks(sender, 64)
    Stream(sender, sender.open("vision-eu", project="vision", owner="ada")).send(0, curve(0, 200))
    path = f"/alerts?run_id={nan}&rule=NonFinite"
    alert, *_ = until(lambda: service.ask("GET", path)["alerts"])
    yield Seen(ids | {"alert": alert["id"]})
    sender.http.clear()


@pytest.fixture(scope="module")
def visitors(browser: Browser, service: RealService) -> Generator[dict[Look, Visitor]]:
    """One for each look, whom all pages share: to log in takes as long as to look."""
    opened: dict[Look, Visitor] = {
        (theme, size): Visitor(
            make_context(browser, service.url, viewport=SIZES[size], theme=theme), service.admin_key
        )
        for theme, size in LOOKS
    }
    yield opened
    for visitor in opened.values():
        visitor.context.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_whole_and_readable_in_every_look(
    name: str, visitors: dict[Look, Visitor], seen: Seen
) -> None:
    for (theme, size), visitor in visitors.items():
        page = visitor.open(PAGES[name].format(**seen.ids))
        settle(page)
        visitor.shoot(f"look-{name}-{theme}-{size}")

        assert out_of_sight(page) == [], (theme, size)
        assert page.evaluate(_TOO_FAINT) == [], (theme, size)
        assert page.evaluate(_NAMELESS) == [], (theme, size)
        assert page.evaluate(_TOLD_BY_COLOUR) == [], (theme, size)
        assert visitor.complaints == []


@pytest.mark.parametrize("size", SIZES)
def test_what_acts_on_a_run_stays_where_it_is_while_the_page_comes(
    size: str, window: OpenWindow, seen: Seen
) -> None:
    """A button that moves is missed, or another one is pressed in its place."""
    page = window(viewport=SIZES[size]).page
    page.add_init_script(_NOTES_SHIFTS)

    page.goto(f"/runs/{seen.ids['ranks']}")
    expect(page.locator("#timeline .bar-label").first).to_be_visible()
    expect(page.locator("#live")).to_have_text("Live")
    let_it_fade(page)

    assert page.evaluate("window.shifted") < MOST_SHIFTED


def test_the_age_of_the_last_step_is_as_wide_as_what_stood_in_its_place(
    window: OpenWindow, service: RealService
) -> None:
    """On a phone the row of which it is a part would break elsewhere."""
    run = SentRun(service, "seconds ago")
    run.send([2.0] * 20)
    visitor = window(viewport=PHONE)
    line = Line(visitor.page)
    line.hold("**/time.js*")
    visitor.page.goto(f"/runs/{run.id}", wait_until="commit")
    place = ".vitals dd:has(> time)"
    age = visitor.page.locator(place)
    expect(age).to_be_attached()
    visitor.page.wait_for_function(_HAS_STYLES)  # a commit does not wait for them
    visitor.page.evaluate(_HIDES_DATES)
    before, _ = size_of(visitor.page, place)

    line.mend("**/time.js*")
    expect(age).to_contain_text("ago")

    width, _ = size_of(visitor.page, place)
    assert width == before


_HAS_STYLES: Final = """() =>
  [...document.querySelectorAll("link[rel=stylesheet]")].every((one) => one.sheet)"""

_HIDES_DATES: Final = "() => document.getAnimations().forEach((one) => one.cancel())"
"""For a date that no script has replaced is shown itself after five seconds, which may be over."""


def test_every_control_of_a_run_is_reached_by_the_tab_key_and_shows_it(
    window: OpenWindow, service: RealService
) -> None:
    sender = Sender(service.url, service.admin_key)
    run_id = send_healthy(sender, "reached by keys")
    sender.http.clear()
    service.judged_alerts(run_id)  # what comes of it later are news, and news add controls
    page = window().open(f"/runs/{run_id}")
    expect(page.locator("#timeline .lanes").get_by_text("Checkpoints", exact=True)).to_be_visible()
    settle(page)
    page.evaluate("() => { window.reached = new Set(); document.activeElement.blur(); }")

    num_presses = 0
    while unreached := page.evaluate(_UNREACHED):
        # The last news may arrive while one goes through: a second round may be needed, no third.
        assert num_presses <= 2 * page.evaluate(_NUM_STOPS), unreached
        num_presses += 1
        page.keyboard.press("Tab")
        assert page.evaluate(_SHOWS_FOCUS), page.evaluate("document.activeElement.outerHTML")


def test_on_paper_nothing_is_left_that_one_would_click(window: OpenWindow, seen: Seen) -> None:
    visitor = window(theme="dark")
    page = visitor.open(f"/runs/{seen.ids['healthy']}")
    settle(page)

    page.emulate_media(media="print")
    expect(page.locator("header nav")).to_be_hidden()
    expect(page.get_by_role("button", name="Roll back")).to_be_hidden()
    expect(page.locator("#layers .worst tbody td").first).to_contain_text("weight")
    expect(page.locator("#layers .worst tbody button").first).to_be_visible()
    page.wait_for_function(_IS_LIGHT)  # told by an event, after the styles of paper are in force
    page.wait_for_function(_GRIDS_ARE_ALIKE)
    let_it_fade(page)
    assert page.evaluate(_TOO_FAINT) == []
    visitor.shoot("look-print")


_IS_LIGHT: Final = "() => document.documentElement.dataset.theme === 'light'"

_GRIDS_ARE_ALIKE: Final = """() => new Set([...document.querySelectorAll('.canvas')]
  .filter((plot) => plot.layout).map((plot) => plot.layout.xaxis.gridcolor)).size === 1"""
"""Whether all charts are drawn in one theme."""

_TOO_FAINT: Final = """() => {
  const context = new OffscreenCanvas(1, 1).getContext('2d', { willReadFrequently: true });
  const rgba = (colour) => {
    context.clearRect(0, 0, 1, 1);
    context.fillStyle = colour;
    context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  };
  const over = (top, below) => {
    const share = top[3] + below[3] * (1 - top[3]);
    const mixed = [0, 1, 2].map((i) =>
      share ? (top[i] * top[3] + below[i] * below[3] * (1 - top[3])) / share : 0);
    return [...mixed, share];
  };
  const behind = (element) => {
    let found = [0, 0, 0, 0];
    for (let one = element; one && found[3] < 1; one = one.parentElement) {
      found = over(found, rgba(getComputedStyle(one).backgroundColor));
    }
    return over(found, [255, 255, 255, 1]);
  };
  const luminance = (colour) => {
    const [r, g, b] = colour.slice(0, 3).map((value) => {
      const share = value / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const opacity = (element) => {
    let share = 1;
    for (let one = element; one; one = one.parentElement) share *= getComputedStyle(one).opacity;
    return share;
  };
  const faint = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.checkVisibility()) continue;
    if (element.closest('svg, script, :disabled, .only-read, .skip, template, option')) continue;
    const style = getComputedStyle(element);
    const back = behind(element);
    const ink = rgba(style.color);
    ink[3] *= opacity(element);
    const [a, b] = [luminance(over(ink, back)), luminance(back)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const isLarge = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (isLarge ? 3 : 4.5) - 0.01) {
      const words = walker.currentNode.textContent.trim().slice(0, 40);
      faint.push(`${ratio.toFixed(2)} ${element.tagName}.${element.className}: ${words}`);
    }
  }
  return [...new Set(faint)];
}"""
"""Texts below the contrast that WCAG 2.2 asks for at level AA (1.4.3)."""

_NAMELESS: Final = """() => [...document.querySelectorAll(
  'a[href], button, input, select, textarea')]
  .filter((one) => one.checkVisibility() && one.type !== 'hidden')
  .filter((one) => !(one.getAttribute('aria-label') || one.getAttribute('aria-labelledby')
    || one.labels?.length || one.textContent.trim() || one.title || one.querySelector('title')))
  .map((one) => one.outerHTML.slice(0, 120))"""
"""Controls that a screen reader could only call a button."""

_TOLD_BY_COLOUR: Final = """() => [...document.querySelectorAll('p > a, .hint > a')]
  .filter((one) => one.checkVisibility() && !one.matches('.button, .crumbs > a, .links > a'))
  .filter((one) => getComputedStyle(one).textDecorationLine !== 'underline')
  .map((one) => one.outerHTML.slice(0, 120))"""
"""Links among words that nothing but their colour tells from them (WCAG 2.2, 1.4.1)."""

_NOTES_SHIFTS: Final = """(() => {
  window.shifted = 0;
  new PerformanceObserver((list) => {
    for (const one of list.getEntries()) if (!one.hadRecentInput) window.shifted += one.value;
  }).observe({ type: 'layout-shift', buffered: true });
})()"""

_STOPS: Final = """[...document.querySelectorAll(
  'a[href], button, input, select, textarea, summary, [tabindex="0"]')]
  .filter((one) => one.checkVisibility() && !one.disabled && one.type !== 'hidden')"""
_NUM_STOPS: Final = f"() => {_STOPS}.length"
_SHOWS_FOCUS: Final = """() => {
  const one = document.activeElement;
  window.reached.add(one);
  const style = getComputedStyle(one);
  return one === document.body || style.outlineStyle !== 'none' || one.matches('svg *');
}"""
_UNREACHED: Final = f"""() => {_STOPS}
  .filter((one) => !window.reached.has(one) && one.type !== 'radio' && !one.closest('svg'))
  .map((one) => one.outerHTML.slice(0, 120))"""
