"""Who is told: read from a file of the service's own, never from a request.

    name: prod                       # the label `watchdog` on every alert
    url: https://runwatch.example    # of this service, for links
    alertmanager:
      urls: [http://am-1:9093, http://am-2:9093]
    receivers:
      - name: team-chat
        url_file: /run/secrets/team-chat
        min_severity: critical
        projects: [pretrain-*]
    allow_networks: [10.0.0.0/8]     # that receivers may lead to, beside the public internet

The addresses hold secrets: they stand in no log, reply or representation.
"""

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Final

import msgspec
import yaml

from runwatch.vocabulary import Severity
from runwatch_server.errors import SettingsError
from runwatch_server.notify.networks import Network
from runwatch_server.settings import is_http_url, is_link_base
from runwatch_server.web.bodies import schema_of
from runwatch_server.web.body_faults import wanted_by

RECEIVERS_FILE: Final = "receivers.yaml"
"""File name that is looked for in the data directory."""

_NO_YAML: Final = (ValueError, OverflowError, LookupError, AttributeError, RecursionError)
"""Errors that PyYAML raises over a date that does not exist, a tag such as `!!int ""` or a thousand
brackets; and that reading the file raises over bytes that are not UTF-8."""

_RANK: Final = {severity: rank for rank, severity in enumerate(Severity)}

_Globs = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which alerts a receiver wants."""

    min_severity: Severity = Severity.WARNING
    projects: tuple[str, ...] = ("*",)
    """Globs; `*` stands for any characters."""

    def takes(self, severity: Severity, project: str) -> bool:
        return _RANK[severity] >= _RANK[self.min_severity] and any(
            fnmatchcase(project, glob) for glob in self.projects
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Alertmanagers:
    """The replicas of one Alertmanager; every alert is sent to each of them."""

    urls: tuple[str, ...] = field(repr=False)
    wanted: Wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class Receiver:
    """An address that Apprise delivers to."""

    name: str
    url: str = field(repr=False)
    wanted: Wanted
    send_resolved: bool
    repeat_s: float
    """An alert that goes on and that nobody acknowledged is sent again after this many seconds."""
    allowed: tuple[Network, ...] = ()
    """Networks, besides the public internet, that it may lead to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Receivers:
    """All receivers."""

    name: str = "runwatch"
    url: str = ""
    """The service's address for people; if empty, messages have no links."""
    alertmanagers: Alertmanagers | None = None
    receivers: tuple[Receiver, ...] = ()


class _AlertmanagerEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    urls: Annotated[tuple[str, ...], msgspec.Meta(min_length=1, max_length=16)]
    min_severity: Severity = Severity.WARNING
    projects: _Globs = ("*",)


class _ReceiverEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
    url: str = ""
    url_file: str = ""
    min_severity: Severity = Severity.WARNING
    projects: _Globs = ("*",)
    send_resolved: bool = True
    repeat_s: Annotated[float, msgspec.Meta(ge=60, le=7 * 86400)] = 4 * 3600.0


class _File(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] = "runwatch"
    url: str = ""
    alertmanager: _AlertmanagerEntry | None = None
    receivers: Annotated[tuple[_ReceiverEntry, ...], msgspec.Meta(max_length=32)] = ()
    allow_networks: Annotated[tuple[str, ...], msgspec.Meta(max_length=64)] = ()


def load_receivers(data_dir: Path, named: Path | None) -> Receivers:
    """The receivers of the given file, or of the one in the data directory; none if there is no
    file.

    Raises SettingsError, whose message contains no address.
    """
    path = named or data_dir / RECEIVERS_FILE
    if named is None and not path.exists():
        return Receivers()
    try:
        document: object = yaml.safe_load(path.read_text("utf-8")) or {}
    except OSError as error:
        raise SettingsError(f"receivers: {path}: {error.strerror}") from error
    except yaml.MarkedYAMLError as error:
        # The error's text quotes the file, and the file holds secrets.
        line = "" if error.problem_mark is None else f", line {error.problem_mark.line + 1}"
        raise SettingsError(f"receivers: {path}{line}: found text that is no YAML") from None
    except (yaml.YAMLError, *_NO_YAML):
        raise SettingsError(f"receivers: {path}: found text that is no YAML") from None
    try:
        entries = msgspec.convert(document, _File)
    except msgspec.ValidationError as error:
        told = str(error)
        wanted = wanted_by(schema_of(_File), told)
        raise SettingsError(f"receivers: {path}: {told}{wanted}") from None
    return _receivers(entries, path)


def _receivers(entries: _File, path: Path) -> Receivers:
    if entries.url and not is_link_base(entries.url):
        raise SettingsError(
            f"receivers: {path}: url: found another form, wanted https://host, with or without a "
            "port and a path, and without a user: it is in every message"
        )
    names = [entry.name for entry in entries.receivers]
    if len(set(names)) < len(names):
        raise SettingsError(f"receivers: {path}: found a name twice, wanted each once")
    allowed = _networks(entries.allow_networks, path)
    return Receivers(
        name=entries.name,
        url=entries.url.rstrip("/"),
        alertmanagers=_alertmanagers(entries.alertmanager, path),
        receivers=tuple(_receiver(entry, path, allowed) for entry in entries.receivers),
    )


def _alertmanagers(entry: _AlertmanagerEntry | None, path: Path) -> Alertmanagers | None:
    if entry is None:
        return None
    for index, url in enumerate(entry.urls):
        _check_http(path, f"alertmanager.urls[{index}]", url)
    return Alertmanagers(
        urls=tuple(url.rstrip("/") for url in entry.urls),
        wanted=Wanted(min_severity=entry.min_severity, projects=entry.projects),
    )


def _receiver(entry: _ReceiverEntry, path: Path, allowed: tuple[Network, ...]) -> Receiver:
    place = f"receivers: {path}: receiver {entry.name}"
    if bool(entry.url) == bool(entry.url_file):
        raise SettingsError(f"{place}: wanted one of url and url_file")
    url = entry.url
    if entry.url_file:
        try:
            url = (path.parent / entry.url_file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError):
            raise SettingsError(f"{place}: url_file cannot be read") from None
    return Receiver(
        name=entry.name,
        url=url,
        wanted=Wanted(min_severity=entry.min_severity, projects=entry.projects),
        send_resolved=entry.send_resolved,
        repeat_s=entry.repeat_s,
        allowed=allowed,
    )


def _networks(texts: tuple[str, ...], path: Path) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(text) for text in texts)
    except ValueError as error:
        raise SettingsError(
            f"receivers: {path}: allow_networks: {error}; wanted networks such as 10.0.0.0/8"
        ) from error


def _check_http(path: Path, place: str, url: str) -> None:
    if not is_http_url(url):
        raise SettingsError(
            f"receivers: {path}: {place}: found another form, "
            "wanted http://host:port or https://host:port, perhaps with a path"
        )
