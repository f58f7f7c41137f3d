"""One replica of Alertmanager, over real HTTP: what it refuses, and that nobody else is asked."""

import logging
from typing import Any

import pytest
from tests.server.notify.factories import FIRED_AT, a_case
from tests.server.notify.sink import Sink, running_sink

from runwatch.vocabulary import AlertId
from runwatch_server.notify.alertmanager import Replica, UndeliveredError, batches, make_client
from runwatch_server.notify.posting import Posting, posting_of

pytestmark = pytest.mark.anyio


def postings(*rules: str) -> list[Posting]:
    cases = [a_case(id=AlertId(f"{number:026}"), rule=rule) for number, rule in enumerate(rules)]
    return [posting_of(case, watchdog="w", url="", wall=FIRED_AT) for case in cases]


def names(body: Any) -> list[str]:
    return [alert["labels"]["alertname"] for alert in body]


async def test_a_batch_with_a_bad_alert_is_sent_one_by_one_once(sink: Sink) -> None:
    sink.answer = lambda body: 400 if "Bad" in names(body) else 200
    async with make_client() as client:
        replica = Replica(sink.url, client)
        await replica.post(postings("Good", "Bad", "Fine"))

    assert [names(body) for body in sink.bodies] == [
        ["Good", "Bad", "Fine"],
        ["Good"],
        ["Bad"],
        ["Fine"],
    ]
    assert sink.posts[0][0] == "/api/v2/alerts"
    assert (replica.figures.num_sent, replica.figures.num_rejected) == (2, 1)


@pytest.mark.parametrize("status", [302, 404, 429, 500, 503])
async def test_any_other_answer_is_a_failure_that_is_tried_again(sink: Sink, status: int) -> None:
    sink.answer = lambda _: status
    async with make_client() as client:
        replica = Replica(sink.url, client)
        with pytest.raises(UndeliveredError, match=f"answered {status}"):
            await replica.post(postings("A"))

    assert replica.figures.num_failed == 1


async def test_a_redirect_leads_nowhere(sink: Sink) -> None:
    with running_sink() as elsewhere:
        sink.answer, sink.location = lambda _: 307, elsewhere.url
        async with make_client() as client:
            with pytest.raises(UndeliveredError):
                await Replica(sink.url, client).post(postings("A"))

        assert elsewhere.posts == []


async def test_what_fails_is_told_without_the_password(caplog: pytest.LogCaptureFixture) -> None:
    with running_sink() as gone:
        url = gone.url.replace("://", "://me:T0PSECRET@")
    caplog.set_level(logging.DEBUG, "runwatch_server")
    async with make_client() as client:
        replica = Replica(url, client)
        with pytest.raises(UndeliveredError) as failed:
            await replica.post(postings("A"))

    assert "T0PSECRET" not in f"{failed.value} {caplog.text} {replica.figures}"


def test_no_request_holds_more_alerts_than_prometheus_sends() -> None:
    assert [len(batch) for batch in batches(postings(*["A"] * 600))] == [256, 256, 88]
