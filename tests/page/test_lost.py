"""A run whose trainer was killed: what they see who have its page open, and who come later."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import Trainer, watched_by
from tests.page.conftest import OpenWindow

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealService]:
    """One that does not wait as long as usual before it calls a run lost."""
    folder = tmp_path_factory.mktemp("service")
    with RealService(folder, environment={"RUNWATCH_LOST_S": "20"}) as running:
        yield running


def test_a_run_whose_trainer_was_killed_is_lost_and_says_since_when(
    window: OpenWindow, service: RealService, tmp_path: Path
) -> None:
    environment = watched_by(service, number=90)
    run_id = environment["RUNWATCH_RUN_ID"]
    with Trainer(tmp_path / "job", environment=environment, steps=1_000_000) as trainer:
        trainer.wait_for_steps(30)
        visitor = window()
        page = visitor.open(f"/runs/{run_id}")
        expect(page.locator("#banner .state")).to_have_text("training")
        expect(page.locator(".vitals", has_text="per second")).to_be_visible()

    expect(page.locator("#banner .state-bad")).to_have_text("lost")
    last_step = service.ask("GET", f"/runs/{run_id}")["last_step"]
    told = page.locator("#alerts li", has_text="RunLost")
    expect(told).to_contain_text(f"since step {last_step}")
    expect(told.locator(".severity-critical")).to_be_visible()
    expect(page.locator(".vitals", has_text="Last step")).to_contain_text("ago")
    expect(page.locator(".vitals", has_text="per second")).to_be_hidden()
    visitor.shoot("run-lost")

    told.get_by_role("link", name="RunLost").click()
    expect(page.get_by_role("heading", name="RunLost", exact=True)).to_be_visible()
    expect(page.locator(".state-bad", has_text="firing")).to_be_visible()
    expect(page.get_by_role("link", name="Open the runbook")).to_be_visible()
    visitor.shoot("alert-lost")
    row = visitor.open("/").locator("tr[data-run]").first
    expect(row.locator(".state-bad")).to_have_text("lost")
    expect(row.locator(".severity-critical")).to_be_visible()
    expect(row.locator("svg.spark")).to_be_visible()
    expect(row.locator(".speed")).to_have_text("–")
