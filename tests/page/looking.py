"""A page as somebody sees it who looks through all of it."""

from typing import Final

from playwright.sync_api import Page, expect


def settle(page: Page) -> None:
    """Until all that comes into sight on the way down is there, however long the page becomes by
    that, and no colour is on its way to another."""
    top = 0
    while top < page.evaluate("document.documentElement.scrollHeight"):
        page.evaluate("top => scrollTo(0, top)", top)
        page.wait_for_function(_IS_DRAWN)
        top += 600
    page.evaluate("scrollTo(0, 0)")
    page.mouse.move(0, 0)
    let_it_fade(page)


def let_it_stand(page: Page) -> None:
    """Until nothing that comes later moves what is below it on a run's page: what happened, and the
    charts, which gain a pixel when they are drawn."""
    expect(page.locator("#actions")).not_to_contain_text("Loading")
    expect(page.locator("#timeline .num-events")).not_to_have_text("…")
    expect(page.locator("#charts .chart:not([data-drawn])")).to_have_count(0)


def let_it_fade(page: Page) -> None:
    """Until colours that change have changed."""
    page.wait_for_function(_NOTHING_FADES)


_NOTHING_FADES: Final = """() =>
  !document.getAnimations().some((one) => one instanceof CSSTransition)"""


_IS_DRAWN: Final = """() => !['.says', '#actions', '.loss-now'].some((place) =>
  [...document.querySelectorAll(place)].some((one) => {
    const box = one.getBoundingClientRect();
    return one.checkVisibility() && box.bottom > 0 && box.top < innerHeight
      && /^(Loading|…)/.test(one.textContent.trim());
  }))"""


def size_of(page: Page, place: str) -> tuple[int, int]:
    """Width and height in pixels of the first that a CSS selector names. Found and measured in one
    question: what stays fresh may be replaced between two, and what was replaced has no size."""
    width, height = page.evaluate(_SIZE, place)
    return width, height


_SIZE: Final = """(place) => {
  const one = document.querySelector(place);
  return [one.offsetWidth, one.offsetHeight];
}"""


def out_of_sight(page: Page) -> list[str]:
    """What one would have to scroll sideways for: the page itself, and tables."""
    found: list[str] = page.evaluate(_SIDEWAYS)
    return found


_SIDEWAYS: Final = """() => [document.documentElement, ...document.querySelectorAll('.scroll')]
  .filter((one) => one.checkVisibility() && one.scrollWidth > one.clientWidth)
  .map((one) => `${one.scrollWidth} of ${one.clientWidth}: ${one.innerText.trim().slice(0, 60)}`)"""
