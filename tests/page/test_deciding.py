"""What a person decides on the page: what rules may do, a proposal, whom a silence is about, and
whether a receiver works."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect
from tests.end_to_end.real_service import NOBODY_IS_MISSED, RealService
from tests.page.conftest import OpenWindow
from tests.page.seeding import Sender, send_healthy
from tests.page.sent_run import SentRun
from tests.server.notify.sink import Sink, running_sink

pytestmark = pytest.mark.heavy

RECEIVERS = """\
url: http://127.0.0.1:1
allow_networks: [127.0.0.0/8]
receivers:
  - name: on-call
    url: json://127.0.0.1:{port}/hook
  - name: out-of-order
    url: json://127.0.0.1:{port}/refused
"""


@pytest.fixture(scope="module")
def sink() -> Iterator[Sink]:
    with running_sink() as running:
        running.refused = frozenset({"/refused"})
        yield running


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, sink: Sink) -> Iterator[RealService]:
    """A service with receivers."""
    folder = tmp_path_factory.mktemp("service")
    written: Path = folder / "data" / "receivers.yaml"
    written.parent.mkdir()
    written.write_text(RECEIVERS.format(port=sink.port))
    with RealService(folder, environment=NOBODY_IS_MISSED) as running:
        yield running


def test_what_rules_may_do_is_chosen_and_a_proposal_rejected(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "to be decided", layers=("embed", "head"), allow=("rollback",))
    run.send([2.0] * 30, [0.1, 0.2])
    visitor = window()
    page = visitor.open(f"/runs/{run.id}/act")
    expect(page.locator(".policy strong")).to_have_text("observe")

    page.locator(".policy").get_by_role("button", name="Change").click()
    dialog = page.get_by_role("dialog", name="Policy")
    expect(dialog.get_by_label("Observe.")).to_be_checked()
    dialog.get_by_label("Ask.").check()
    visitor.shoot("act-policy")
    dialog.get_by_role("button", name="Change").click()
    expect(page.locator(".policy strong")).to_have_text("ask")
    assert service.ask("GET", f"/runs/{run.id}")["policy"] == "ask"

    run.send(["NaN"] * 5, [0.1, "NaN"])
    run.wait_for_alert("NonFinite")
    proposal = page.locator(".trip[data-state='proposed']")
    expect(proposal.get_by_role("button", name="Approve")).to_be_visible()
    proposal.get_by_role("button", name="Reject").click()

    expect(page.get_by_role("button", name="Reject")).to_have_count(0)
    (command,) = service.ask("GET", f"/runs/{run.id}/commands")["commands"]
    assert (command["action"]["kind"], command["state"]) == ("rollback", "cancelled")
    expect(page.locator(".station-broken .station-name")).to_have_text("Rejected")


def test_what_the_trainer_does_not_allow_cannot_be_asked_for_and_the_missing_word_is_named(
    window: OpenWindow, service: RealService
) -> None:
    run = SentRun(service, "allows little", layers=("embed", "head"), allow=("checkpoint",))
    run.send([2.0] * 10, [0.1, 0.2])
    run.send(["NaN"] * 5, [0.1, "NaN"])
    alert_id = run.wait_for_alert("NonFinite")
    visitor = window()
    page = visitor.open(f"/runs/{run.id}/act")

    expect(page.get_by_role("button", name="Checkpoint")).to_be_enabled()
    expect(page.get_by_role("button", name="Stop")).to_be_disabled()
    expect(page.locator("#refused")).to_contain_text(
        'allow=(..., "detail", "lower_lr", "rollback", "stop")'
    )
    for place in (f"/runs/{run.id}/act", f"/alerts/{alert_id}"):
        page = visitor.open(place)
        proposal = page.locator(".trip[data-state='proposed']")
        expect(proposal.get_by_role("button", name="Approve")).to_be_disabled()
        expect(proposal).to_contain_text('allow=(..., "rollback")')
        expect(proposal).to_contain_text("Nothing waits for it")  # the policy is observe
        expect(page.get_by_role("heading", name="Proposed", exact=True)).to_be_visible()
    visitor.shoot("act-not-allowed")


def test_what_became_of_an_action_is_its_heading(window: OpenWindow, service: RealService) -> None:
    run = SentRun(service, "refuses", allow=("checkpoint", "rollback"))
    run.send([2.0] * 10)
    page = window().open(f"/runs/{run.id}/act")
    outcomes = {"rejected": "Refused", "failed": "Failed", "applied": "Rolled back"}
    for state, outcome in outcomes.items():
        ordered = {"action": {"kind": "rollback"}}
        command = service.ask("POST", f"/runs/{run.id}/commands", ordered)["id"]
        receipt = {"command_id": command, "attempt": 1, "rank": 0, "state": state, "step": 9}
        service.ask("POST", f"/commands/{command}/receipt", receipt)

        expect(page.locator("#actions h3")).to_have_text([outcome])
    expect(page.locator("#earlier .tag")).to_have_text(["Failed", "Refused"])


def test_a_checkpoint_can_be_chosen_and_the_bad_batches_left_out(
    window: OpenWindow, service: RealService
) -> None:
    run_id = send_healthy(Sender(service.url, service.admin_key), "to be rolled back")
    visitor = window()
    page = visitor.open(f"/runs/{run_id}/act?step=2000")

    page.get_by_role("button", name="Roll back").click()
    dialog = page.get_by_role("dialog", name="Roll back")
    expect(dialog.get_by_label("It went wrong at step")).to_have_value("2000")
    checkpoints = dialog.get_by_label("Checkpoint after step")
    expect(checkpoints).to_have_count(5)  # the sixth was undone by the run's rollback
    expect(checkpoints.first).to_have_value("1300")
    dialog.get_by_label("It went wrong at step").fill("")
    expect(dialog.locator("#undone-steps")).to_contain_text("at most steps 1\u202f301 to")
    expect(dialog.locator("#left-out")).to_contain_text("Nothing")
    dialog.get_by_label("It went wrong at step").fill("2000")
    checkpoints.first.check()
    expect(dialog.locator("#undone-steps")).to_contain_text(
        "Steps 1\u202f301 to 2\u202f999 (1\u202f699 steps)"
    )
    expect(dialog.locator("#left-out")).to_have_text("The batches of step 2\u202f000.")
    visitor.shoot("act-rollback-to-checkpoint")
    dialog.get_by_label("Type the run's name").fill("to be rolled back")
    dialog.get_by_role("button", name="Roll back").click()

    expect(
        page.get_by_text("state after step 1\u202f300, without the batches of 2\u202f000")
    ).to_be_visible()
    (command,) = [
        one
        for one in service.ask("GET", f"/runs/{run_id}/commands")["commands"]
        if one["alert_id"] is None
    ]
    assert (command["action"]["to_step"], command["action"]["before_step"]) == (1300, 2000)


def test_who_opens_the_dialog_of_a_rollback_again_finds_what_he_chose(
    window: OpenWindow, service: RealService
) -> None:
    run_id = send_healthy(Sender(service.url, service.admin_key), "thought over")
    page = window().open(f"/runs/{run_id}/act?step=2000")
    page.get_by_role("button", name="Roll back").click()
    dialog = page.get_by_role("dialog", name="Roll back")
    chosen = dialog.get_by_label("Checkpoint after step 1\u202f000")
    chosen.check()
    before = chosen.element_handle()

    dialog.get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Roll back").click()
    page.wait_for_function("before => !before.isConnected", arg=before)

    expect(chosen).to_be_checked()
    expect(dialog.locator("#undone-steps")).to_contain_text("Steps 1\u202f001 to")


@pytest.mark.parametrize(
    ("scope", "matchers"),
    [
        ("NonFinite in this run", ["alertname", "run_id"]),
        ("everything in this run", ["run_id"]),
        ("NonFinite in default", ["alertname", "project"]),
    ],
)
def test_a_silence_is_about_what_was_chosen(
    window: OpenWindow, service: RealService, scope: str, matchers: list[str]
) -> None:
    run = SentRun(service, f"silenced: {scope}")
    run.send([2.0] * 10)
    run.send(["NaN"] * 3)
    page = window().open(f"/alerts/{run.wait_for_alert('NonFinite')}")

    page.get_by_role("button", name="Silence").click()
    expect(page.get_by_role("dialog")).to_contain_text("still send commands to the trainer")
    page.get_by_label(scope).check()
    page.get_by_label("Why").fill(scope)
    page.get_by_role("dialog").get_by_role("button", name="Silence").click()
    expect(page.locator(".note", has_text=scope)).to_be_visible()

    made = [one for one in service.ask("GET", "/silences")["silences"] if one["comment"] == scope]
    assert [sorted(m["name"] for m in one["matchers"]) for one in made] == [matchers]
    service.ask("DELETE", f"/silences/{made[0]['id']}")


def test_a_receiver_is_tried_from_the_page(window: OpenWindow, sink: Sink) -> None:
    visitor = window()
    page = visitor.open("/settings")

    working = page.get_by_role("row", name="on-call").get_by_role("button")
    working.click()
    expect(working).to_have_text("Delivered")
    assert "/hook" in [path for path, _ in sink.posts]
    broken = page.get_by_role("row", name="out-of-order").get_by_role("button")
    broken.click()
    expect(broken).to_contain_text("Not delivered: it ")
    visitor.shoot("settings-receivers")


def test_an_alert_shows_what_is_tried_next_and_that_a_person_was_called(
    window: OpenWindow, service: RealService
) -> None:
    ladder: list[object] = [{"rollback": {}}, {"lower_lr": {"scale": 0.5}}, {"page": {}}]
    rule: dict[str, object] = {"alert": "TooHigh", "scope": "run", "when": "loss > 3"}
    rule["ladder"] = ladder
    service.ask("POST", "/rules", {"version": 1, "groups": [{"name": "ladders", "rules": [rule]}]})
    run = SentRun(service, "on a ladder", allow=("lower_lr",))
    service.ask("PATCH", f"/runs/{run.id}", {"policy": "ask"})
    run.send([2.0, 2.0, 4.0])
    visitor = window()
    page = visitor.open(f"/alerts/{run.wait_for_alert('TooHigh')}")

    rungs = page.locator(".ladder li")
    expect(rungs.nth(0)).to_contain_text("passed over")
    expect(rungs.nth(1)).to_contain_text("Lower the learning rate to 0.5 of the schedule's")
    expect(rungs.nth(1)).to_contain_text("proposed")
    expect(rungs.nth(2)).to_contain_text("next")
    visitor.shoot("alert-ladder")

    (command,) = service.ask("GET", f"/runs/{run.id}/commands")["commands"]
    service.ask("POST", f"/commands/{command['id']}/approve")
    receipt = {"command_id": command["id"], "attempt": 1, "rank": 0, "state": "failed", "step": 3}
    service.ask("POST", f"/commands/{command['id']}/receipt", receipt)
    run.send([4.0])
    expect(rungs.nth(1)).to_contain_text("failed")
    expect(rungs.nth(2)).to_contain_text("paged")
    expect(page.locator("#alert-head")).to_contain_text("critical")
