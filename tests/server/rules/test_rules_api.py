"""People's rules over HTTP: checked, versioned, shared, taken back."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from tests.server.harness import Api, frame

pytestmark = pytest.mark.anyio

YAML = {"Content-Type": "application/yaml"}
LOW = """\
version: 1
groups:
- name: mine
  rules:
  - alert: Low
    scope: run
    when: loss < 1
"""


async def create(api: Api, text: str = LOW, **params: str) -> Any:
    reply = await api.json("POST", "/rules", content=text, headers=YAML, params=params)
    return reply["rules"][0]


async def names(api: Api) -> set[str]:
    return {rule["name"] for rule in (await api.json("GET", "/rules"))["rules"]}


async def test_a_rule_is_there_once_it_was_added_and_gone_once_it_was_deleted(api: Api) -> None:
    rule = await create(api)
    assert "Low" in await names(api)

    await api.call("DELETE", f"/rules/{rule['id']}", headers={"If-Match": '"1"'})
    assert "Low" not in await names(api)


async def test_the_built_in_pack_is_listed_with_the_rule_that_stays(api: Api) -> None:
    assert {"NonFinite", "LossSpike", "NoStep"} <= await names(api)


async def test_every_rule_that_is_listed_is_found_under_its_id(api: Api) -> None:
    await create(api)
    listed = (await api.json("GET", "/rules"))["rules"]

    found = [await api.json("GET", f"/rules/{rule['id']}") for rule in listed]

    assert found == listed


async def test_a_built_in_rule_that_is_none_is_not_found(api: Api) -> None:
    missing = await api.call("GET", "/rules/builtin:Nothing")

    assert (missing.status_code, missing.json()["code"]) == (404, "rule_not_found")


async def test_who_would_change_a_built_in_rule_is_told_how_to_replace_it(api: Api) -> None:
    path, headers = "/rules/builtin:LossSpike", {"If-Match": '"1"'}

    removed = await api.call("DELETE", path, headers=headers)
    changed = await api.call("PUT", path, content=LOW, headers=YAML | headers)

    assert removed.status_code == changed.status_code == 409
    assert removed.json()["code"] == changed.json()["code"] == "builtin_rule"
    assert "POST a rule with its name" in removed.json()["detail"]


async def test_the_rule_that_nobody_can_remove_says_so(api: Api) -> None:
    refused = await api.call("DELETE", "/rules/builtin:NonFinite", headers={"If-Match": '"1"'})

    assert (refused.status_code, refused.json()["code"]) == (409, "protected_rule")


async def test_nobody_takes_the_place_of_the_rule_that_stays(api: Api) -> None:
    text = LOW.replace("Low", "NonFinite")
    refused = await api.call("POST", "/rules", content=text, headers=YAML)

    assert refused.status_code in (409, 422)


@pytest.mark.parametrize("name", ["RunLost", "RankLost", "RunFailed", "GroupOutlier"])
async def test_nobody_takes_the_name_of_a_rule_that_the_service_judges(api: Api, name: str) -> None:
    text = LOW.replace("Low", name)
    refused = await api.call("POST", "/rules", content=text, headers=YAML)

    assert (refused.status_code, refused.json()["code"]) == (409, "protected_rule")


async def test_a_built_in_rule_is_taken_away_by_one_of_its_name(api: Api) -> None:
    await create(api, LOW.replace("Low", "LossSpike"), project="quiet", enabled="false")

    quiet = await api.services.rules.in_force("quiet")
    other = await api.services.rules.in_force("default")
    assert "LossSpike" not in {rule.name for rule in quiet.rules}
    assert "LossSpike" in {rule.name for rule in other.rules}


async def in_force(api: Api, name: str, **params: str) -> dict[tuple[str, str | None], bool]:
    """By source and project."""
    listed = (await api.json("GET", "/rules", params=params))["rules"]
    named = [rule for rule in listed if rule["name"] == name]
    return {(rule["source"], rule["project"]): rule["in_force"] for rule in named}


async def test_the_list_says_which_of_the_rules_of_one_name_judges(api: Api) -> None:
    text = LOW.replace("Low", "LossSpike")
    alone = await in_force(api, "LossSpike")
    everywhere = await create(api, text, enabled="false")
    await create(api, text, project="vision")

    builtin, of_all, of_project = ("builtin", None), ("user", None), ("user", "vision")
    assert alone == {builtin: True}
    assert await in_force(api, "LossSpike", project="nlp") == {builtin: False, of_all: False}
    seen = await in_force(api, "LossSpike", project="vision")
    assert seen == {builtin: False, of_all: False, of_project: True}
    assert not (await api.json("GET", "/rules/builtin:LossSpike"))["in_force"]
    headers = {**YAML, "If-Match": '"1"'}
    await api.json("PUT", f"/rules/{everywhere['id']}", content=text, headers=headers)
    seen = await in_force(api, "LossSpike", project="vision")
    assert seen == {builtin: False, of_all: False, of_project: True}
    seen = await in_force(api, "LossSpike")
    assert seen == {builtin: False, of_all: True, of_project: True}
    assert await in_force(api, "NonFinite") == {builtin: True}


async def test_a_version_that_is_not_the_newest_is_not_replaced(api: Api) -> None:
    rule = await create(api)
    path = f"/rules/{rule['id']}"
    text = LOW.replace("< 1", "< 2")
    changed = await api.call("PUT", path, content=text, headers=YAML | {"If-Match": '"1"'})
    stale = await api.call("PUT", path, content=text, headers=YAML | {"If-Match": '"1"'})

    assert (changed.status_code, changed.headers["ETag"]) == (200, '"2"')
    assert (stale.status_code, stale.json()["code"]) == (412, "changed_meanwhile")


async def test_replacing_without_a_version_is_refused(api: Api) -> None:
    rule = await create(api)
    refused = await api.call("PUT", f"/rules/{rule['id']}", content=LOW, headers=YAML)

    assert refused.status_code == 428


async def test_every_fault_of_a_file_is_told_with_line_and_column(api: Api) -> None:
    text = LOW.replace("loss < 1", "losss < median(loss, 1000000000)").replace("Low", "1 Low")
    reply = await api.json("POST", "/rules/check", content=text, headers=YAML)

    found = [(fault["line"], fault["place"]) for fault in reply["faults"]]
    assert not reply["valid"]
    assert (5, "groups[0].rules[0].alert") in found
    assert (7, "groups[0].rules[0].when") in found
    assert any(fault["column"] for fault in reply["faults"])


async def test_a_file_that_unfolds_without_end_is_refused(api: Api) -> None:
    text = "a: &a [x, x]\nb: &b [*a, *a]\nc: [*b, *b]\n"
    reply = await api.json("POST", "/rules/check", content=text, headers=YAML)

    assert [fault["line"] for fault in reply["faults"]] == [2]


async def test_bytes_that_are_no_text_are_refused(api: Api) -> None:
    reply = await api.json("POST", "/rules/check", content=b"a: \xff", headers=YAML)

    assert [fault["message"] for fault in reply["faults"]] == [
        "found invalid UTF-8 at byte 3, wanted text"
    ]


async def test_yaml_that_came_as_another_type_is_told_which_it_wants(api: Api) -> None:
    refused = await api.call("POST", "/rules", content=LOW)  # as `curl --data-binary` sends it

    assert (refused.status_code, refused.json()["code"]) == (422, "invalid_rule")
    assert "wanted JSON, or YAML with the Content-Type application/yaml" in refused.json()["detail"]


async def test_json_says_the_same_as_yaml(api: Api) -> None:
    document = (await create(api))["document"]
    reply = await api.json("POST", "/rules/check", json=document)

    assert reply == {"valid": True, "rules": ["Low"], "faults": []}


async def test_only_an_admin_changes_rules(api: Api) -> None:
    key = await api.new_key("read", "control", "ingest")
    refused = await api.call("POST", "/rules", key=key, content=LOW, headers=YAML)

    assert refused.status_code == 403


async def test_a_backtest_says_what_a_rule_would_have_said(api: Api) -> None:
    run_id = await api.new_run()
    await api.post(run_id, frame(1, [3.0, 2.0, 0.5, 0.4, math.nan, 2.0]))
    body = {"run_id": run_id, "rules": LOW}
    (run,) = (await api.json("POST", "/rules/backtest", json=body))["runs"]

    found = {(alert["alert"], alert["firing_step"], alert["value"]) for alert in run["alerts"]}
    assert run["rows"] == 6
    assert found == {("Low", 2, 0.5), ("NonFinite", 4, "NaN")}
    assert {alert["firing_at"] for alert in run["alerts"]} == {
        "2023-11-14T22:13:22Z",
        "2023-11-14T22:13:24Z",
    }


async def test_a_backtest_of_steps_that_end_before_they_begin_is_refused(api: Api) -> None:
    body = {"run_id": await api.new_run(), "first_step": 9, "last_step": 2}

    refused = await api.call("POST", "/rules/backtest", json=body)

    told = "body: found first_step, last_step as 9, 2, wanted the earlier step first"
    assert (refused.status_code, refused.json()["detail"]) == (422, told)


async def test_a_project_holds_two_hundred_rules(api: Api) -> None:
    rule = "  - {alert: Low%d, scope: run, when: loss < 1}\n"
    head = "version: 1\ngroups:\n- name: mine\n  rules:\n"
    many = head + "".join(rule % number for number in range(200))
    await api.json("POST", "/rules", content=many, headers=YAML)
    refused = await api.call("POST", "/rules", content=LOW, headers=YAML)

    assert (refused.status_code, refused.json()["code"]) == (422, "too_many_rules")


async def test_a_rule_that_comes_while_the_others_are_read_is_in_force(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = api.services.database
    read = database.read

    @asynccontextmanager
    async def read_and_create() -> AsyncGenerator[AsyncConnection]:
        async with read() as connection:
            monkeypatch.setattr(database, "read", read)
            yield connection
            await create(api)

    monkeypatch.setattr(database, "read", read_and_create)
    await api.services.rules.in_force("default")

    found = await api.services.rules.in_force("default")
    assert "Low" in {rule.name for rule in found.rules}


async def test_rules_that_everybody_asks_for_at_once_are_read_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    rules, database = api.services.rules, api.services.database
    before, num_reads = await rules.in_force("default"), 0
    read = database.read

    @asynccontextmanager
    async def counted() -> AsyncGenerator[AsyncConnection]:
        nonlocal num_reads
        num_reads += 1
        async with read() as connection:
            yield connection

    monkeypatch.setattr(database, "read", counted)
    rules.invalidate()
    found = await asyncio.gather(*(rules.in_force("default") for _ in range(50)))

    assert num_reads == 1
    assert all(one is before for one in found)  # unchanged, so not put together again
