"""The names beside the heat map are read from left to right, and cut at their beginning."""

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.sent_run import SentRun

pytestmark = pytest.mark.heavy

LONG = f"{'blocks.' * 12}bias"
BOXES = """(name) => [0, name.textContent.length - 1].map((place) => {
  const letter = document.createRange();
  letter.setStart(name.firstChild, place);
  letter.setEnd(name.firstChild, place + 1);
  return letter.getBoundingClientRect().x;
})"""


def test_the_names_of_layers_read_from_left_to_right(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "a sequential", layers=("0.bias", LONG))
    run.send([2.0] * 20, [0.1, 0.2])
    page = window().open(f"/runs/{run.id}")
    page.locator("#layers").scroll_into_view_if_needed()
    names = page.locator("#layers .names span")
    expect(names).to_have_text(["0.bias", LONG])

    first, last = names.first.evaluate(BOXES)
    assert first < last

    edge = page.locator("#layers .names").evaluate("(one) => one.getBoundingClientRect().x")
    first, last = names.last.evaluate(BOXES)
    assert first < edge < last
