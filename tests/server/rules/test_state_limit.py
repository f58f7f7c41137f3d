"""What the rules of one project may remember, together: everybody's runs wait while they judge."""

from typing import Any

import pytest
from tests.server.harness import Api

pytestmark = pytest.mark.anyio


def a_file(name: str, *, window: int, num_windows: int = 12) -> dict[str, Any]:
    """One rule; with twelve windows of some 200 rows over each layer it takes 38 MiB."""
    terms = [f"quantile(grad_norm, 0.5, {window + count}) > 1" for count in range(num_windows)]
    rule = {"alert": name, "scope": "layer", "when": " or ".join(terms)}
    return {"version": 1, "groups": [{"name": "tests", "rules": [rule]}]}


async def test_several_files_hold_no_more_together_than_one_may(api: Api) -> None:
    (first,) = (await api.json("POST", "/rules", json=a_file("First", window=200)))["rules"]
    refused = await api.call("POST", "/rules", json=a_file("Second", window=220))

    assert (refused.status_code, refused.json()["code"]) == (422, "too_much_state")
    detail = refused.json()["detail"]
    assert "found that the windows of all rules in force take 88." in detail
    assert "wanted at most 64 MiB (without this change they take 47." in detail

    await api.call("DELETE", f"/rules/{first['id']}", headers={"If-Match": '"1"'})
    await api.json("POST", "/rules", json=a_file("Second", window=220))


async def test_a_project_s_own_rules_are_counted_with_those_of_all(api: Api) -> None:
    await api.json("POST", "/rules?project=mine", json=a_file("First", window=200))
    await api.json("POST", "/rules?project=theirs", json=a_file("Second", window=220))
    refused = await api.call("POST", "/rules?project=mine", json=a_file("Second", window=220))

    assert refused.json()["code"] == "too_much_state"


async def test_a_rule_that_is_replaced_is_counted_as_it_becomes(api: Api) -> None:
    small = a_file("Second", window=220, num_windows=1)
    await api.json("POST", "/rules", json=a_file("First", window=200))
    (second,) = (await api.json("POST", "/rules", json=small))["rules"]
    path, match = f"/rules/{second['id']}", {"If-Match": '"1"'}
    large = a_file("Second", window=220)

    refused = await api.call("PUT", path, json=large, headers=match)
    disabled = await api.call("PUT", f"{path}?enabled=false", json=large, headers=match)

    assert refused.json()["code"] == "too_much_state"
    assert disabled.status_code == 200
