"""Apprise as we use it: the dedup key where a service has one, no redirects, no secret shown."""

from ipaddress import ip_network

import pytest
from tests.server.notify.sink import Sink, running_sink

from runwatch_server.errors import SettingsError
from runwatch_server.notify.apprise_sending import AppriseSender
from runwatch_server.notify.receivers import Receiver, Wanted
from runwatch_server.notify.sending import Message

MESSAGE = Message(title="t", body="b", dedup_key="k1", is_over=False)


def sender_to(url: str) -> AppriseSender:
    return AppriseSender(
        Receiver(
            name="a",
            url=url,
            wanted=Wanted(),
            send_resolved=True,
            repeat_s=60.0,
            allowed=(ip_network("127.0.0.0/8"),),
        )
    )


def test_a_webhook_gets_the_dedup_key_beside_the_text(sink: Sink) -> None:
    assert sender_to(f"json://127.0.0.1:{sink.port}/hook?+X-A=b").send(MESSAGE)

    (body,) = sink.bodies
    assert (body["title"], body["message"], body["dedup_key"]) == ("t", "b", "k1")


def test_a_redirect_leads_nowhere_even_where_the_address_asks_for_it(sink: Sink) -> None:
    with running_sink() as elsewhere:
        sink.answer, sink.location = lambda _: 307, elsewhere.url
        assert not sender_to(f"json://127.0.0.1:{sink.port}/?redirect=yes").send(MESSAGE)

        assert elsewhere.posts == []


def test_a_refusal_is_no_delivery(sink: Sink) -> None:
    sink.answer = lambda _: 500

    assert not sender_to(f"json://127.0.0.1:{sink.port}/").send(MESSAGE)


@pytest.mark.parametrize("url", ["bogus://T0PSECRET", "T0PSECRET", "syslog://T0PSECRET"])
def test_an_address_of_no_service_is_refused_without_being_shown(
    url: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(SettingsError) as refused:
        sender_to(url)

    assert "T0PSECRET" not in f"{refused.value} {caplog.text}"
