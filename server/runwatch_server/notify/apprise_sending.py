"""Sends one message through Apprise. Imported only if a receiver is configured: Apprise is an
optional part of the installation, and takes 45 MB of memory.

A message is text, and names in it are others': it is escaped here in the form that its service
takes, since Apprise hands text on as it is to services that read it as markup.

Synchronous: call it on a worker thread.
"""

import re
from collections.abc import Sequence
from html import escape
from ipaddress import ip_address
from typing import Final
from urllib.parse import quote

import apprise

from runwatch_server.errors import SettingsError
from runwatch_server.notify.networks import ConnectionGuard, Network, guarded_by, may_connect
from runwatch_server.notify.receivers import Receiver
from runwatch_server.notify.refusals import listening, take_over_log
from runwatch_server.notify.sending import Message

TIMEOUT_S: Final = 10.0
_PAUSES_S: Final = 5.0
"""Seconds for Apprise's pauses between the targets of a message, all together. By default it pauses
for 5.5 s after each, so that seven targets would outlast the attempt."""

_DEDUP_PARAMETERS: Final = {
    "pagerduty": "action=map&dedup",
    "opsgenie": "alias",
    **dict.fromkeys(("json", "jsons", "form", "forms"), ":dedup_key"),
}
"""How each service is told which messages belong to one incident; others have it in the text
only."""
_CLOSED_BY_SUCCESS: Final = ("pagerduty", "opsgenie")
"""Services whose incidents nothing else closes. Elsewhere the kind is a colour, or a sign."""

_LOCAL: Final = frozenset(
    ("dbus", "glib", "gnome", "kde", "macosx", "qt", "syslog", "windows", "file")
)
"""Services that address this machine and nobody on call."""
_UNHELD: Final = frozenset(("mqtt", "mqtts", "xmpp", "xmpps"))
"""Services that connect from threads of their own, which `guarded_by` does not restrict."""

_MARKDOWN_CHATS: Final = frozenset(
    (
        *("discord", "guilded", "mmost", "mmosts", "nctalk", "nctalks", "revolt", "rocket"),
        *("rockets", "ryver", "webex", "workflow", "workflows", "wxteams", "zulip"),
    )
)
"""Services that show Markdown, in titles too, whatever form Apprise says that they take."""
_FORMS: Final = {
    "slack": apprise.NotifyFormat.TEXT,
    "tgram": apprise.NotifyFormat.HTML,
}
"""Of several forms that a service takes, the one without markup that passes, or the one that can be
escaped; an address cannot choose another."""
_MARKDOWN: Final = re.compile(
    r"(?P<link>https?://[\w.:/?#@$%+,;=&-]+)|[\\`*_~|\[\]]|<(?! )|&(?=#?\w+;)", re.ASCII
)
"""What makes text Markdown. A link stays whole: chats would not take a backslash out of it. What is
compared (`loss < 5`) is no tag, and Mattermost shows a backslash before it."""


class AppriseSender:
    """Sends to one receiver. Raises SettingsError for an address that Apprise does not know."""

    def __init__(self, receiver: Receiver) -> None:
        self._url = receiver.url
        self._scheme = receiver.url.partition("://")[0].lower()
        self._asset = apprise.AppriseAsset(http_redirects=False, async_mode=False)
        take_over_log()
        if self._scheme in _UNHELD:
            raise SettingsError(
                f"receivers: receiver {receiver.name}: found {self._scheme}://, whose connections "
                "cannot be held to the networks that are allowed; wanted another service"
            )
        plugin = None if self._scheme in _LOCAL else self._plugin("")
        if plugin is None:
            raise SettingsError(
                f"receivers: receiver {receiver.name}: found an address that is none of "
                "Apprise's services, wanted one such as json://host/path or slack://..."
            )
        if _is_private(plugin, receiver.allowed):
            raise SettingsError(
                f"receivers: receiver {receiver.name}: found an address of this machine or of a "
                "private network, wanted a public one; to allow it, name its network beside "
                "receivers, as in allow_networks: [127.0.0.0/8]"
            )

    def send(self, message: Message, guard: ConnectionGuard) -> str:
        """Send a message; returns why the service did not accept it, empty if it did."""
        plugin = self._plugin(message.dedup_key)
        assert plugin is not None, "the address was tried at the start"
        form = plugin.resolve_format(apprise.NotifyFormat.TEXT)  # with it, Apprise changes nothing
        has_title = plugin.title_maxlen > 0 and self._scheme not in _MARKDOWN_CHATS
        with guarded_by(guard), listening() as heard:
            is_accepted = plugin.notify(
                title=message.title if has_title else self._escaped(message.title, form),
                body=self._escaped(message.body, form),
                notify_type=self._kind_of(message),
                body_format=form,
            )
            return "" if is_accepted else heard.reason

    def _escaped(self, text: str, form: apprise.NotifyFormat) -> str:
        if form is apprise.NotifyFormat.HTML:
            return escape(text, quote=False).replace("\n", "<br/>\n")
        if form is apprise.NotifyFormat.MARKDOWN or self._scheme in _MARKDOWN_CHATS:
            return as_markdown(text)
        return text

    def _kind_of(self, message: Message) -> apprise.NotifyType:
        if not message.is_over:
            return apprise.NotifyType.FAILURE
        is_good = message.did_recover or self._scheme in _CLOSED_BY_SUCCESS
        return apprise.NotifyType.SUCCESS if is_good else apprise.NotifyType.WARNING

    def _plugin(self, dedup_key: str) -> apprise.NotifyBase | None:
        url = self._url
        parameter = _DEDUP_PARAMETERS.get(self._scheme)
        if dedup_key and parameter is not None:
            url += f"{'&' if '?' in url else '?'}{parameter}={quote(dedup_key)}"
        plugin = apprise.Apprise.instantiate(url, asset=self._asset)  # pyright: ignore[reportUnknownMemberType]
        if plugin is not None:  # set here, so no address can override it
            plugin.redirects = False
            plugin.socket_connect_timeout = TIMEOUT_S
            plugin.socket_read_timeout = TIMEOUT_S
            longest_pause_s = _PAUSES_S / max(1, len(plugin))
            plugin.request_rate_per_sec = min(plugin.request_rate_per_sec, longest_pause_s)
            plugin.notify_format = _FORMS.get(self._scheme, plugin.notify_format)
        return plugin


def as_markdown(text: str) -> str:
    """The text in Markdown that shows it as it is."""
    return _MARKDOWN.sub(lambda found: found[0] if found["link"] else f"\\{found[0]}", text)


def _is_private(plugin: apprise.NotifyBase, allowed: Sequence[Network]) -> bool:
    """Whether it is already certain that no message will ever leave. For a host name that is only
    so if it is this machine's, since other names may resolve differently tomorrow."""
    host = str(getattr(plugin, "host", None) or "")
    if host == "localhost":
        host = "127.0.0.1"
    try:
        ip_address(host)
    except ValueError:
        return False
    return not may_connect(host, allowed)
