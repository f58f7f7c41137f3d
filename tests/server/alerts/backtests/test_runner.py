"""Backtests beside the service's own work: they wait for it, and not it for them."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import numpy as np
import pytest
from starlette.requests import ClientDisconnect
from tests.server.harness import Api, frame
from tests.waiting import until_so

from runwatch.frames import Event
from runwatch.layouts import Layer, Layout
from runwatch.vocabulary import RunId
from runwatch_server.alerts.backtests.runner import Backtests
from runwatch_server.alerts.backtests.turns import BacktestTurns
from runwatch_server.errors import OverloadedError, UnprocessableError
from runwatch_server.rules.backtest import Backtest
from runwatch_server.rules.pack import split_file

pytestmark = pytest.mark.anyio


def dear_rules() -> dict[str, Any]:
    """Whose judging of one frame of 4096 steps takes many seconds, once their windows are full."""
    windows = " or ".join(f"quantile(loss, 0.{number}, 2000) > 1e9" for number in range(11, 21))
    rules = [{"alert": f"Dear{number}", "when": windows} for number in range(10)]
    return {"version": 1, "groups": [{"name": "tests", "rules": rules}]}


async def long_run(api: Api) -> RunId:
    run_id = await api.new_run()
    losses = np.random.default_rng(0).random((3, 4096))
    for number, part in enumerate(losses):
        await api.post(run_id, frame(number + 1, part, first_step=number * 4096))
    await api.until_judged(run_id)
    return run_id


@asynccontextmanager
async def under_way(api: Api, run_id: RunId, count: int) -> AsyncGenerator[list[asyncio.Task[Any]]]:
    """Backtests that are being judged, and given up at the end."""
    body = {"run_id": run_id, "rules": dear_rules()}
    asked = [
        asyncio.create_task(api.call("POST", "/rules/backtest", json=body)) for _ in range(count)
    ]
    await until_so(lambda: api.services.backtests.num_under_way == count)
    try:
        yield asked
    finally:
        for one in asked:
            one.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def test_what_came_in_a_frame_without_rows_is_read_with_the_next_row(api: Api) -> None:
    run_id = await api.new_run()
    told = frame(1, [], first_step=3, events=(Event(3, "unwatched", 1.7e9, {}),))
    for sent in (told, frame(2, [1.0, 1.0], first_step=3)):
        assert (await api.post(run_id, sent)).status_code == 200
    await api.until_judged(run_id)

    found = await api.json("POST", "/rules/backtest", json={"run_id": run_id})

    live = await api.json("GET", "/alerts", params={"run_id": run_id})
    assert [one["rule"] for one in live["alerts"]] == ["Unwatched"]
    (run,) = found["runs"]
    assert [(one["alert"], one["firing_step"]) for one in run["alerts"]] == [("Unwatched", 3)]


async def test_what_came_without_rows_before_the_first_step_asked_for_is_not_read(
    api: Api,
) -> None:
    run_id = await api.new_run()
    told = frame(1, [], first_step=3, events=(Event(3, "unwatched", 1.7e9, {}),))
    for sent in (told, frame(2, [1.0, 1.0, 1.0], first_step=3)):
        assert (await api.post(run_id, sent)).status_code == 200
    await api.until_judged(run_id)

    asked = {"run_id": run_id, "first_step": 5}
    found = await api.json("POST", "/rules/backtest", json=asked)

    (run,) = found["runs"]
    assert (run["rows"], run["alerts"]) == (1, [])


async def test_others_read_while_as_many_backtests_are_judged_as_sqlite_has_readers(
    api: Api,
) -> None:
    run_id = await long_run(api)
    async with under_way(api, run_id, 4) as asked:
        await api.json("GET", "/alerts")

        assert not any(one.done() for one in asked)


async def test_a_key_has_a_few_backtests_under_way_and_is_told_to_come_again(api: Api) -> None:
    run_id = await long_run(api)
    async with under_way(api, run_id, 4):
        refused = await api.call("POST", "/rules/backtest", json={"run_id": run_id})

        assert (refused.status_code, refused.json()["code"]) == (429, "too_many_backtests")
        assert int(refused.headers["Retry-After"]) > 0


async def test_a_few_backtests_are_under_way_of_all_keys_together(api: Api) -> None:
    backtests = api.services.backtests
    with ExitStack() as stack:
        for number in range(8):
            stack.enter_context(backtests.place(f"key {number}"))
        with pytest.raises(OverloadedError, match="8 backtests are under way"):
            stack.enter_context(backtests.place("key 8"))

    assert backtests.num_under_way == 0


async def test_a_stop_of_the_service_ends_a_backtest(api: Api) -> None:
    run_id = await long_run(api)
    async with under_way(api, run_id, 1) as asked:
        api.services.release_waiting()
        answer: httpx.Response = await asked[0]

    assert (answer.status_code, answer.json()["code"]) == (503, "stopping")


def turns_of_dear_rules() -> BacktestTurns:
    rules = [filed.rule for filed in split_file(dear_rules())]
    return BacktestTurns(Backtest.of_rules(rules), None, None)


async def goes_on() -> None:
    """Nobody has gone away."""


async def test_a_backtest_whose_asker_has_gone_ends_within_the_frame_that_it_is_at(
    api: Api,
) -> None:
    run_id, turns, looks = await long_run(api), turns_of_dear_rules(), iter([None, None])

    async def gone_at_the_third_look() -> None:
        if next(looks, ClientDisconnect) is ClientDisconnect:
            raise ClientDisconnect

    with pytest.raises(ClientDisconnect):
        await api.services.backtests.judge(run_id, turns, gone_at_the_third_look)

    assert 0 < turns.test.num_rows < 3 * 4096


async def test_a_backtest_that_takes_too_long_is_given_up_and_says_by_which_limit(
    api: Api,
) -> None:
    run_id = await long_run(api)
    services = api.services
    backtests = Backtests(services.database, services.layouts, services.packs, most_s=0.5)

    with pytest.raises(UnprocessableError, match=r"it may take 0\.5 s of a processor") as refused:
        await backtests.judge(run_id, turns_of_dear_rules(), goes_on)

    assert refused.value.code == "backtest_too_long"


async def test_the_steps_that_were_asked_for_are_judged_each_once(api: Api) -> None:
    turns = BacktestTurns(Backtest.of_rules(()), 100, 9000)
    await api.services.backtests.judge(await long_run(api), turns, goes_on)

    assert (turns.test.num_rows, turns.step, turns.has_more) == (8901, 9000, False)


async def wide_run(api: Api, num_layers: int, *stats: str) -> RunId:
    """A run with a row for each of these stats, each over so many layers of its own."""
    run_id = await api.new_run()
    for seq, stat in enumerate(stats, 1):
        layers = tuple(Layer(f"blocks.{number}.{stat}") for number in range(num_layers))
        layout = Layout(layers, (stat,))
        await api.put_layout(run_id, layout)
        row = np.ones((1, num_layers), np.float32)
        sent = frame(seq, [1.0], first_step=seq - 1, stats=row)
        sent = replace(sent, layout_hash=layout.hash)
        assert (await api.post(run_id, sent)).status_code == 200
    return run_id


def wide_rule(window: int, *, scope: str = "layer") -> dict[str, Any]:
    usual = f"grad_norm - median(grad_norm, {window})"
    when = f"{usual} > 1" if scope == "layer" else f"max_layers({usual}) > 1"
    rule = {"alert": "Wide", "scope": scope, "when": when}
    return {"version": 1, "groups": [{"name": "tests", "rules": [rule]}]}


@pytest.mark.parametrize("scope", ["layer", "run"])
async def test_a_backtest_whose_windows_do_not_fit_for_the_run_s_layers_is_refused_before_it_begins(
    api: Api, scope: str
) -> None:
    run_id = await wide_run(api, 20_000, "grad_norm")
    asked = {"run_id": run_id, "rules": wide_rule(4096, scope=scope)}
    refused = await api.call("POST", "/rules/backtest", json=asked)

    assert (refused.status_code, refused.json()["code"]) == (422, "backtest_too_large")
    detail = refused.json()["detail"]
    assert "take 2500 MiB for the 20000 layers of this run" in detail
    assert "wanted at most 512 MiB: 4096 layers" in detail


async def test_layers_of_layouts_with_other_stats_count_together(api: Api) -> None:
    run_id = await wide_run(api, 3000, "grad_norm", "act_absmax")
    asked = {"run_id": run_id, "rules": wide_rule(4096)}
    refused = await api.call("POST", "/rules/backtest", json=asked)

    assert "for the 6000 layers of this run" in refused.json()["detail"]


async def test_the_built_in_rules_are_tried_on_as_many_layers_as_a_run_may_have(api: Api) -> None:
    run_id = await wide_run(api, 20_000, "grad_norm")
    found = await api.json("POST", "/rules/backtest", json={"run_id": run_id})

    assert found["runs"][0]["rows"] == 1


async def test_backtests_share_one_bound_and_leave_it_when_they_are_over(api: Api) -> None:
    run_id, rules = await wide_run(api, 3000, "grad_norm"), wide_rule(4096)
    asked = {"run_id": run_id, "rules": rules}
    others: list[int] = []

    async def ask_beside() -> None:
        others.append((await api.call("POST", "/rules/backtest", json=asked)).status_code)

    turns = BacktestTurns(Backtest.of_rules([one.rule for one in split_file(rules)]), None, None)
    await api.services.backtests.judge(run_id, turns, ask_beside)  # asks before each of its turns
    assert set(others) == {503}

    await ask_beside()
    assert others[-1] == 200
