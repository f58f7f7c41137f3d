"""How long runs are kept: a run pinned and given ages of its own, a project's ages, what goes."""

import re

import numpy as np
import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, Stream, histograms_of, layout_of
from tests.page.visitor import PHONE

from runwatch.vocabulary import RunId

pytestmark = pytest.mark.heavy


def send_ended(service: RealService, name: str, *, project: str = "default") -> RunId:
    """A finished run of 20 steps, with histograms of one of them."""
    sender = Sender(service.url, service.admin_key)
    run_id = sender.open(name, project=project)
    layout = layout_of(4)
    sender.layout(run_id, layout)
    stream = Stream(sender, run_id, layout)
    stream.send(0, {"loss": np.linspace(2, 1, 20)}, histograms=histograms_of(layout, 10))
    sender.ask("POST", f"/runs/{run_id}/attempts/1/close", {"status": "finished"})
    sender.http.clear()
    return run_id


def test_a_pinned_run_is_kept_until_it_is_let_go(window: OpenWindow, service: RealService) -> None:
    run_id = send_ended(service, "the one of the paper")
    visitor = window(key=service.create_key("read", "control"))
    page = visitor.open(f"/runs/{run_id}")

    kept = page.locator("#kept")
    expect(kept).to_contain_text(re.compile(r"30 days after its end\s+\(in 29 d 23 h\)"))
    kept.get_by_role("button", name="Pin").click()
    expect(kept).to_contain_text("nothing of it is removed by age")
    assert visitor.ask(f"/runs/{run_id}/retention")["pinned"]
    visitor.shoot("run-pinned")

    kept.get_by_role("button", name="Unpin").click()
    expect(kept.get_by_role("button", name="Pin", exact=True)).to_be_visible()
    assert not visitor.ask(f"/runs/{run_id}/retention")["pinned"]


def test_a_run_is_given_ages_of_its_own_and_loses_them(
    window: OpenWindow, service: RealService
) -> None:
    run_id = send_ended(service, "a long ablation")
    visitor = window(theme="dark", viewport=PHONE)
    page = visitor.open(f"/runs/{run_id}")
    kept, dialog = page.locator("#kept"), page.get_by_role("dialog")

    kept.get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Frames as received")).to_have_attribute("placeholder", "30")
    dialog.get_by_label("Frames as received").fill("90")
    dialog.get_by_label("Layers' rollups").fill("0")
    visitor.shoot("run-ages-dark-phone")
    dialog.get_by_role("button", name="Change").click()
    expect(kept).to_contain_text("90 days after its end")
    expect(kept).to_contain_text("By the run's own settings")
    own = {"raw_days": 90, "evidence_days": None, "rollup_days": 0}
    assert visitor.ask(f"/runs/{run_id}/retention")["own"] == own

    kept.get_by_role("button", name="Change").click()
    expect(dialog.get_by_label("Layers' rollups")).to_have_value("0")
    dialog.get_by_label("Frames as received").fill("")
    dialog.get_by_label("Layers' rollups").fill("")
    dialog.get_by_role("button", name="Change").click()
    expect(kept).to_contain_text("By the settings of its project, or else of the service")


def test_a_project_is_given_ages_and_what_goes_next_is_told(
    window: OpenWindow, service: RealService
) -> None:
    run_id = send_ended(service, "tried and forgotten", project="scratch")
    visitor = window()
    page = visitor.open("/settings")
    page.get_by_text("What is removed next").click()
    expect(page.locator("#due-runs")).to_have_text("Nothing is due for removal.")

    page.get_by_role("button", name="Ages of a project").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Project").fill("scratch")
    dialog.get_by_label("Frames as received").fill("0.000001")
    dialog.get_by_role("button", name="Change").click()

    row = page.locator("#retention").get_by_role("row", name="scratch")
    expect(row).to_contain_text("1e-6 days")
    expect(row).to_contain_text("as every project")
    due = page.locator("#due-runs").get_by_role("row", name="tried and forgotten")
    expect(due).to_contain_text(re.compile(r"2 \(\S+ (bytes|KiB)\)"))
    visitor.shoot("settings-kept")
    due.get_by_role("link").click()
    expect(page.locator("#kept")).to_contain_text("1e-6 days after its end")
    assert page.url.endswith(run_id)


def test_an_age_that_cannot_be_is_refused_in_the_dialog(
    window: OpenWindow, service: RealService
) -> None:
    visitor = window()
    visitor.foreseen = ("422",)
    page = visitor.open("/settings")

    page.get_by_role("button", name="Ages of a project").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Project").fill("   ")
    dialog.get_by_role("button", name="Change").click()

    expect(dialog.get_by_role("alert")).to_contain_text("found a name that no project can have")


def test_who_only_looks_sees_how_long_and_changes_nothing(
    window: OpenWindow, service: RealService
) -> None:
    run_id = send_ended(service, "somebody else's")
    visitor = window(key=service.create_key("read"))
    page = visitor.open(f"/runs/{run_id}")

    expect(page.locator("#kept")).to_contain_text("30 days after its end")
    expect(page.locator("#keeping").get_by_role("button")).to_have_count(0)
    visitor.open("/settings")
    expect(page.locator("#retention")).to_contain_text("30 days")
    expect(page.get_by_role("button", name="Ages of a project")).to_have_count(0)
