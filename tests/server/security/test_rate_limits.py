"""Who asks too often is told when to come again; the others notice nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.harness import Api, HandClock, frame, serve

from runwatch_server.auth.rate_limits import MAX_BUCKETS, Limit, RateLimit
from runwatch_server.errors import RateLimitedError

pytestmark = pytest.mark.anyio


@pytest.fixture
async def narrow(tmp_path: Path, hand_clock: HandClock) -> AsyncIterator[Api]:
    """Ten requests at once of a key, four of a trainer's, sixty refused of an address."""
    limits: dict[str, Any] = {"requests_per_s": 2.0, "ingest_per_s": 2.0, "refused_per_s": 1.0}
    async with serve(tmp_path, clock=hand_clock, **limits) as api:
        yield api


async def statuses(
    api: Api, count: int, path: str = "/runs", *, key: str | None = None
) -> set[int]:
    return {(await api.call("GET", path, key=key)).status_code for _ in range(count)}


async def test_a_key_that_asks_too_often_is_told_when_to_come_again(
    narrow: Api, hand_clock: HandClock
) -> None:
    reader = await narrow.new_key("read")
    assert await statuses(narrow, 10, key=reader) == {200}

    refused = await narrow.call("GET", "/runs", key=reader)

    assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
    assert refused.headers["Retry-After"] == "1"
    hand_clock.now += 1.0
    assert await statuses(narrow, 2, key=reader) == {200}


async def test_another_key_is_not_held_up(narrow: Api) -> None:
    reader, other = await narrow.new_key("read"), await narrow.new_key("read")
    await statuses(narrow, 12, key=reader)

    assert await statuses(narrow, 1, key=other) == {200}


async def test_a_trainer_and_a_reader_of_one_key_do_not_hold_each_other_up(narrow: Api) -> None:
    run_id = await narrow.new_run()
    await statuses(narrow, 12)

    assert (await narrow.post(run_id, frame(1, [1.0]))).status_code == 200
    assert (await narrow.call("GET", "/runs")).status_code == 429


async def test_whoever_tries_keys_is_stopped_and_good_keys_from_there_go_on(narrow: Api) -> None:
    assert await statuses(narrow, 60, key="bad") == {401}

    assert await statuses(narrow, 3, key="bad") == {429}
    assert await statuses(narrow, 1) == {200}


async def test_the_login_counts_as_trying_keys(narrow: Api) -> None:
    await statuses(narrow, 60, key="bad")

    reply = await narrow.http.post("/login", data={"key": "bad"})

    assert reply.status_code == 429


async def test_health_is_never_limited(narrow: Api) -> None:
    replies = [await narrow.http.get("/readyz") for _ in range(80)]

    assert {reply.status_code for reply in replies} == {200}


def test_askers_without_number_are_forgotten_not_kept() -> None:
    limit = RateLimit(Limit(1.0, 1.0), lambda: 0.0)
    limit.take("first")
    with pytest.raises(RateLimitedError):
        limit.take("first")

    for number in range(MAX_BUCKETS):
        limit.take(f"asker {number}")

    limit.take("first")
