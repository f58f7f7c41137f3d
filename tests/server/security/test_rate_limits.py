"""Who asks too often is told when to come again; the others notice nothing."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests.server.harness import Api, HandClock, frame, serve

from runwatch.codec import CONTENT_TYPE, encode_frame
from runwatch.frames import Frame
from runwatch.vocabulary import RunId
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


async def test_a_sender_of_much_in_little_is_told_when_to_come_again_and_loses_nothing(
    tmp_path: Path, hand_clock: HandClock
) -> None:
    """A thousand losses take 16 kB unpacked: two seconds' worth are two frames of them."""
    async with serve(tmp_path, clock=hand_clock, unpacked_mib_per_s=1 / 64) as api:
        run_id = await api.new_run()
        sent = [frame(seq, [1.0] * 1000, first_step=1000 * seq) for seq in (1, 2, 3)]
        for one in sent[:2]:
            assert (await api.post(run_id, one)).status_code == 200
        refused = await api.post(run_id, sent[2])
        assert (refused.status_code, refused.json()["code"]) == (429, "rate_limited")
        assert refused.headers["Retry-After"] == "1"

        hand_clock.now += 1.0
        answer = await api.post(run_id, sent[2])
        assert (answer.status_code, answer.json()["next"]) == (200, 4)
        other = await api.new_run()
        assert (await post_as(api, await api.new_key("ingest"), other, sent[0])) == 200


async def test_a_frame_of_more_than_may_come_at_once_is_taken_all_the_same(
    tmp_path: Path, hand_clock: HandClock
) -> None:
    async with serve(tmp_path, clock=hand_clock, unpacked_mib_per_s=0.001) as api:
        run_id = await api.new_run()

        assert (await api.post(run_id, frame(1, [1.0] * 4000))).status_code == 200
        assert (await api.post(run_id, frame(2, [1.0]))).status_code == 429


async def post_as(api: Api, key: str, run_id: RunId, sent: Frame) -> int:
    answer = await api.call(
        "POST",
        f"/runs/{run_id}/frames",
        key=key,
        content=encode_frame(sent),
        headers={"Content-Type": CONTENT_TYPE},
    )
    return answer.status_code
