"""What a run's name is in the message of a service: text, as it was sent, and never markup.

The messages are built by Apprise's own plug-ins and come over HTTP; the address of a service that
has a fixed one is the sink's.
"""

from html import unescape
from html.parser import HTMLParser
from typing import Any, Final

import apprise
import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from tests.server.notify.sink import Sink
from tests.server.notify.test_apprise import LOOPBACK, sender_to

from runwatch_server.notify.apprise_sending import as_markdown
from runwatch_server.notify.networks import ConnectionGuard
from runwatch_server.notify.sending import Message

NAME: Final = (
    "ok [ack](https://evil.example) <b>x</b> <a href='https://evil.example'>sign in</a> *bold* "
    "_it_ ~~s~~ ||sp|| `x` ![p](https://evil.example/p.png) &lt;i&gt; \\[z](https://evil.example) "
    "https://a.example/[ack](https://evil.example) blocks.0.attn_w.1_x 1 < 2"
)
LINK: Final = "https://rw.example/my_runs/01M8?step=5&of=a_b"
MESSAGE: Final = Message(
    title=f"[critical] NonFinite in run {NAME}",
    body=f"NonFinite (critical): no number\nWhere: run {NAME}\nRun: {LINK}",
    dedup_key="k",
    is_over=False,
)
TEXT: Final = f"{MESSAGE.title}\n{MESSAGE.body}"
MARKDOWN: Final = MarkdownIt("commonmark", {"breaks": True}).enable(["strikethrough", "table"])


class Shown(HTMLParser):
    """What a browser shows of HTML, and the tags in it."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.text, self.tags = "", set[str]()
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def sent(
    url: str, sink: Sink, monkeypatch: pytest.MonkeyPatch, **addresses: str
) -> list[dict[str, Any]]:
    """What a service is sent in a message about a run of this name."""
    plugin: Any = type(apprise.Apprise.instantiate(url))
    for attribute, path in addresses.items():
        monkeypatch.setattr(plugin, attribute, sink.url + path)
    sender_to(url).send(MESSAGE, ConnectionGuard(LOOPBACK))
    return sink.bodies


@pytest.mark.parametrize("options", ["", "?format=text", "?format=html", "?format=markdown"])
def test_telegram_shows_a_name_as_it_is(
    options: str, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"tgram://123456789:abcdefg_hijklmnop/12315544/{options}"
    (body,) = sent(url, sink, monkeypatch, notify_url="/bot")
    shown = Shown(body["text"])

    assert (body["parse_mode"], shown.tags) == ("HTML", {"b"})
    assert shown.text.split() == TEXT.split()
    assert shown.text.splitlines()[-1] == f"Run: {LINK}"


@pytest.mark.parametrize("service", ["discord", "mmost", "guilded"])
def test_a_chat_with_markdown_shows_a_name_as_it_is(
    service: str, sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = {
        "discord": "discord://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
        "guilded": "guilded://4174216298/JHMHI8qBe7bk2ZwO5U711o3dV_js",
        "mmost": f"mmost://127.0.0.1:{sink.port}/3ccdd113474722377935511fc85d3dd4",
    }[service]
    elsewhere = {} if service == "mmost" else {"notify_url": "/hooks"}
    (body,) = sent(address, sink, monkeypatch, **elsewhere)
    told = body.get("content") or body["text"]
    shown = Shown(MARKDOWN.render(told))

    assert shown.tags <= {"p", "br"}
    assert shown.text.split() == TEXT.split()
    assert f"Run: {LINK}" in told  # whole, or chats link to somewhere else
    assert "||" not in told  # Discord's spoiler, which is no CommonMark


def test_slack_shows_a_name_as_it_is(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "slack://T1JJ3T3L2/A1BRTD4JD/TIiajkdnlazkcOXrIdevi7FQ/#chan?format=markdown"
    (body,) = sent(url, sink, monkeypatch, webhook_url="/services")
    (attachment,) = body["attachments"]

    assert not body["mrkdwn"]
    assert not set("<>") & set(attachment["title"] + attachment["text"])
    assert unescape(attachment["title"]) == MESSAGE.title
    assert unescape(attachment["text"]) == MESSAGE.body


def test_a_message_in_html_shows_a_name_as_it_is(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As mail is that an address with `format=html` asks for; its subject is no HTML."""
    url = f"json://127.0.0.1:{sink.port}/?format=html"
    (body,) = sent(url, sink, monkeypatch)
    shown = Shown(body["message"])

    assert (body["title"], shown.tags) == (MESSAGE.title, {"br"})
    assert shown.text == MESSAGE.body


def test_a_program_gets_a_name_as_it_is(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    (body,) = sent(f"json://127.0.0.1:{sink.port}/", sink, monkeypatch)

    assert (body["title"], body["message"]) == (MESSAGE.title, MESSAGE.body)


@given(st.text("ab \\`*_~|[]()<>!&;:/#.", max_size=60))
def test_no_line_of_text_becomes_markup(text: str) -> None:
    shown = Shown(MARKDOWN.render(f"x{as_markdown(text)}x"))

    assert shown.tags == {"p"}
    assert shown.text == f"x{text}x\n"
