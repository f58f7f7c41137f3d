"""The page's script writes numbers as the service does: one table for both."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from runwatch_server import page as page_package

pytestmark = pytest.mark.slow

CASES = json.loads((Path(__file__).parents[1] / "number_cases.json").read_text())
SCRIPT = (Path(page_package.__path__[0]) / "static/numbers.js").read_text()

WRITE = """
async ([script, cases]) => {
  const { count, short } = await import(`data:text/javascript,${encodeURIComponent(script)}`);
  return { number: cases.number.map(([value]) => short(value)),
    count: cases.count.map(([value]) => count(value)),
    others: [NaN, Infinity, -Infinity, null].map(short) };
}
"""


def test_the_script_writes_numbers_as_the_service_does(browser: Browser) -> None:
    page = browser.new_page()
    written = page.evaluate(WRITE, [SCRIPT, CASES])
    page.close()

    assert written["number"] == [text for _, text in CASES["number"]]
    assert written["count"] == [text for _, text in CASES["count"]]
    assert written["others"] == ["NaN", "+∞", "−∞", "–"]
