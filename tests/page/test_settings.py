"""Keys, receivers and the audit; and a newcomer's way to a first run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import RealService
from tests.end_to_end.trainer import bring_in
from tests.house.documents import ROOT, blocks
from tests.page.conftest import OpenWindow
from tests.page.visitor import PHONE, Visitor
from tests.waiting import until

pytestmark = pytest.mark.heavy

MODEL = """\
import torch
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scheduler = torch.optim.lr_scheduler.ConstantLR(optimizer)
scaler = torch.amp.GradScaler("cpu", enabled=False)
loader = [torch.ones(1, 2)]
def step_of_mine(batch):
    loss = model(batch).sum()
    loss.backward()
    optimizer.step()
    scheduler.step()
    return loss
"""


def test_a_newcomer_comes_from_the_login_to_a_run_that_is_brought_back(
    window: OpenWindow, service: RealService
) -> None:
    visitor = window()
    page = visitor.open("/")
    page.get_by_role("link", name="Watch the first run").click()
    page.wait_for_url("**/welcome")  # and until its buttons are listened to
    expect(page.get_by_text(f"export RUNWATCH_URL={service.url}")).to_be_visible()

    page.get_by_label("Your API key").fill(service.admin_key)
    page.get_by_role("button", name="Create a key").click()
    token = page.locator("#token")
    expect(token).to_have_text(re.compile(r"runwatch_[a-z2-7]{8}_\S{49}"))
    visitor.shoot("welcome")
    answer = visitor.context.request.get(
        "/api/v1/runs", headers={"Authorization": f"Bearer {token.inner_text()}"}
    )
    assert answer.status == 403  # a trainer's key: it sends, and does not look

    page.get_by_role("button", name="Start the demo run").click()
    page.wait_for_url("**/runs/*")
    expect(page.get_by_role("heading", name="demo-protected")).to_be_visible()
    run_id = page.url.rsplit("/", 1)[1]
    expect(page.locator(".station-done", has_text="Applied").first).to_be_visible()
    visitor.shoot("run-demo")
    until(lambda: "rollback" in kinds_ordered(visitor, run_id))  # what is applied first may be else


def kinds_ordered(visitor: Visitor, run_id: str) -> list[str]:
    commands = visitor.ask(f"/runs/{run_id}/commands")["commands"]
    return [command["action"]["kind"] for command in commands]


def test_the_lines_to_paste_make_a_first_run(
    window: OpenWindow, service: RealService, tmp_path: Path
) -> None:
    page = window().open("/welcome")
    readme = next(block for block in blocks("python") if block.page == ROOT / "README.md")
    assert page.locator("#in-the-script").inner_text().strip() == readme.text.strip()
    page.get_by_label("Your API key").fill(service.admin_key)
    page.get_by_role("button", name="Create a key").click()
    expect(page.locator("#token")).to_have_text(re.compile("runwatch_[a-z2-7]{8}_"))
    pasted = [line.split(None, 1) for line in page.locator("#environment").inner_text().split("\n")]
    exported = dict(words[1].split("=", 1) for words in pasted if words[0] == "export")
    environment = os.environ | exported
    script = tmp_path / "train.py"
    script.write_text(MODEL + page.locator("#in-the-script").inner_text())

    subprocess.run([sys.executable, str(script)], env=environment, cwd=tmp_path, check=True)
    # What did not arrive in the ten seconds that a run's end waits.
    bring_in(tmp_path / "runwatch-spool", environment)

    page.goto("/")
    row = page.get_by_role("row", name="llama-8b")
    expect(row).to_contain_text("finished")
    expect(row.locator(".step")).to_have_text("0")


def test_a_key_is_made_shown_once_and_revoked(window: OpenWindow, service: RealService) -> None:
    visitor = window()
    page = visitor.open("/settings")

    page.get_by_role("button", name="New key").click()
    page.get_by_label("Name").fill("night shift")
    page.get_by_role("dialog").get_by_label("look").check()
    visitor.foreseen = ("401",)
    own_key = page.get_by_role("dialog").get_by_label("Your API key")
    own_key.fill(service.admin_key[:-1])
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("alert")).to_contain_text("mistyped")  # and nobody is logged out
    visitor.shoot("settings-new-key")
    own_key.fill(service.admin_key)
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#key-text")).to_have_text(re.compile("runwatch_"))
    key = page.locator("#key-text").inner_text()
    page.get_by_role("button", name="Done").click()
    row = page.get_by_role("row", name="night shift")
    expect(row).to_contain_text("every project")
    expect(page.locator("#key-text")).to_be_empty()  # a dialog tells that it is closed afterwards
    assert key not in page.content()
    visitor.shoot("settings")

    row.get_by_role("button", name="Revoke").click()
    dialog = page.get_by_role("dialog")
    expect(dialog.get_by_role("heading", name="Revoke night shift")).to_be_visible()
    dialog.get_by_label("Your API key").fill(service.admin_key)
    visitor.shoot("settings-revoke-key")
    dialog.get_by_role("button", name="Revoke").click()
    expect(row).to_contain_text("revoked")
    reader = window(key="")
    reader.foreseen = ("401",)
    reader.open("/login")
    reader.page.get_by_label("API key").fill(key)
    reader.page.get_by_role("button", name="Log in").click()
    expect(reader.page.get_by_role("alert")).to_contain_text("was revoked")


def test_a_question_waits_for_its_answer_until_one_turns_to_something_else(
    window: OpenWindow, service: RealService
) -> None:
    rule = {"version": 1, "groups": [{"name": "g", "rules": [{"alert": "B", "when": "loss > 1"}]}]}
    (made,) = service.ask("POST", "/rules", rule)["rules"]
    visitor = window()
    visitor.page.clock.install()
    page = visitor.open(f"/rules/{made['id']}")
    button = page.get_by_role("button", name=re.compile("Delete|Really delete"))

    button.click()
    page.clock.run_for(60_000)
    expect(button).to_have_text("Really delete")
    page.get_by_role("heading", name="B", exact=True).click()

    expect(button).to_have_text("Delete")


def test_the_audit_tells_who_did_what(window: OpenWindow, service: RealService) -> None:
    rule = {"version": 1, "groups": [{"name": "g", "rules": [{"alert": "A", "when": "loss > 1"}]}]}
    service.ask("POST", "/rules", rule)

    visitor = window()
    page = visitor.open("/settings/audit")
    expect(page.get_by_role("row", name="rule created").first).to_contain_text("first admin")
    visitor.shoot("audit")


def test_a_reader_sees_no_keys(window: OpenWindow, service: RealService) -> None:
    visitor = window(key=service.create_key("read"), theme="dark", viewport=PHONE)
    page = visitor.open("/settings")

    expect(page.get_by_role("heading", name="Your key")).to_be_visible()
    expect(page.get_by_role("heading", name="Keys")).to_have_count(0)
    visitor.shoot("settings-dark-phone")
    visitor.open("/welcome")
    expect(page.get_by_text("runwatch demo --keep")).to_be_visible()
    visitor.shoot("welcome-dark-phone")
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
