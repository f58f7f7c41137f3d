"""Acting on a run from the page: a real trainer carries out what is clicked."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import Trainer, watched_by
from tests.page.conftest import OpenWindow
from tests.page.visitor import PHONE
from tests.waiting import LONGEST_S, until

pytestmark = pytest.mark.heavy

NUMBER = 71
ENDLESS = 1_000_000


@pytest.fixture
def job(tmp_path: Path, service: RealService) -> Iterator[tuple[Trainer, str]]:
    """A trainer that goes on until it is told to stop, and its run's id."""
    environment = watched_by(service, number=NUMBER)
    checkpoints = ("--checkpoints", str(tmp_path / "checkpoints"))
    folder = tmp_path / "job"
    with Trainer(folder, *checkpoints, environment=environment, steps=ENDLESS) as trainer:
        yield trainer, environment["RUNWATCH_RUN_ID"]


def test_what_is_ordered_on_the_page_is_carried_out(
    window: OpenWindow, service: RealService, job: tuple[Trainer, str]
) -> None:
    trainer, run_id = job
    visitor = window()
    trainer.wait_for_steps(80)
    page = visitor.open(f"/runs/{run_id}/act")

    page.get_by_role("button", name="Checkpoint").click()
    page.get_by_role("button", name="Write a checkpoint").click()
    trip = page.locator(".trip", has_text="Write a checkpoint").first
    expect(trip.locator(".station-done", has_text="Applied")).to_be_visible()

    page.get_by_role("button", name="Lower the learning rate").click()
    page.get_by_label("Factor").fill("0.25")
    page.get_by_role("button", name="Lower it").click()
    trip = page.locator(".trip", has_text="0.25 ×").first
    expect(trip.locator(".station-done", has_text="Applied")).to_be_visible()

    # Its receipt came at once; that there is a checkpoint comes with the next frame.
    until(lambda: visitor.ask(f"/runs/{run_id}/checkpoints")["checkpoints"])
    page.get_by_role("button", name="Roll back").click()
    dialog = page.get_by_role("dialog", name="Roll back")
    go = dialog.get_by_role("button", name="Roll back")
    dialog.get_by_label("It went wrong at step").fill("60")
    expect(dialog.locator("#undone-steps")).to_contain_text("At least steps 60 to")
    expect(dialog.locator("#left-out")).to_have_text("The batches of step 60.")
    checkpoint = dialog.get_by_label("Checkpoint after step")
    checkpoint.check()
    first_undone = int(checkpoint.input_value()) + 1
    expect(dialog.locator("#undone-steps")).to_contain_text(f"Steps {first_undone} to")
    expect(dialog.locator("#left-out")).to_contain_text("lies before that state")
    dialog.get_by_label("The newest good one").check()
    dialog.get_by_label("It went wrong at step").fill("")
    expect(dialog.locator("#left-out")).to_contain_text("Nothing")
    expect(go).to_be_disabled()
    dialog.get_by_label("Type the run's name").fill("another run")
    expect(go).to_be_disabled()
    visitor.shoot("act-rollback")
    dialog.get_by_label("Type the run's name").fill(f"run {NUMBER}")
    go.click()
    trip = page.locator(".trip", has_text="Roll back to the newest good state").first
    expect(trip.locator(".station-done", has_text="Applied")).to_be_visible()
    visitor.shoot("act-rolled-back")
    until(lambda: has_trained_a_step_again(trainer))

    page.get_by_role("button", name="Stop").click()
    dialog = page.get_by_role("dialog", name="Stop the run")
    dialog.get_by_label("Type the run's name").fill(f"run {NUMBER}")
    dialog.get_by_role("button", name="Stop the run").click()
    assert trainer.process.wait(LONGEST_S) == 0, trainer.output.read_text()
    expect(page.get_by_text("no trainer would obey")).to_be_visible()
    expect(page.get_by_role("button", name="Checkpoint")).to_have_count(0)
    kinds = [one["action"]["kind"] for one in visitor.ask(f"/runs/{run_id}/commands")["commands"]]
    assert kinds == ["stop", "rollback", "lower_lr", "checkpoint"]


def test_nothing_is_asked_of_a_service_that_does_not_answer(
    window: OpenWindow, job: tuple[Trainer, str]
) -> None:
    trainer, run_id = job
    visitor = window()
    visitor.foreseen = ("Failed to load resource",)
    trainer.wait_for_steps(20)
    page = visitor.open(f"/runs/{run_id}/act")
    opener = page.get_by_role("button", name="Checkpoint")
    expect(opener).to_be_enabled()

    visitor.context.set_offline(True)
    unanswered = page.locator("#unanswered")
    expect(unanswered).to_be_visible()
    expect(page.locator("#actions")).to_have_js_property("inert", True)
    visitor.shoot("act-away")

    visitor.context.set_offline(False)
    expect(unanswered).to_be_hidden()
    opener.click()
    expect(page.get_by_role("dialog", name="Write a checkpoint")).to_be_visible()


def has_trained_a_step_again(trainer: Trainer) -> bool:
    steps = [step for step, _ in trainer.trained()]
    return len(set(steps)) < len(steps)


def test_an_incident_from_the_first_alert_to_the_recovery(
    window: OpenWindow, service: RealService, tmp_path: Path
) -> None:
    environment = watched_by(service, number=NUMBER + 1, policy="ask")
    fault = ("--fault-at", "150")
    with Trainer(tmp_path / "job", *fault, environment=environment, steps=ENDLESS):
        visitor = window()
        page = visitor.open("/alerts")
        page.get_by_role("link", name="NonFinite", exact=True).click()
        page.wait_for_url("**/alerts/*")
        page.wait_for_load_state()  # from here on its buttons are listened to
        expect(page.get_by_role("heading", name="NonFinite", exact=True)).to_be_visible()
        expect(page.get_by_text("waits for a person")).to_be_visible()
        visitor.shoot("alert-firing")

        page.get_by_role("button", name="Approve").click()
        expect(page.locator(".station-done", has_text="Applied")).to_be_visible()
        expect(page.locator(".station-done", has_text="Recovered")).to_be_visible()

        page.get_by_role("button", name="Acknowledge").click()
        page.get_by_label("Note").fill("one bad batch")
        page.get_by_role("dialog").get_by_role("button", name="Acknowledge").click()
        expect(page.get_by_text("one bad batch").first).to_be_visible()
        visitor.shoot("alert-recovered")
        dark = window(theme="dark", viewport=PHONE)
        dark.open(page.url.removeprefix(service.url))
        dark.shoot("alert-recovered-dark-phone")
