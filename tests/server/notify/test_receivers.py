"""The receivers' file: what is taken, what is refused, and that no secret is ever shown."""

import re
from pathlib import Path

import pytest

from runwatch.vocabulary import Severity
from runwatch_server.errors import SettingsError
from runwatch_server.notify.receivers import Receivers, load_receivers

SECRET = "T0PSECRET"


def load(folder: Path, text: str) -> Receivers:
    (folder / "receivers.yaml").write_text(text)
    return load_receivers(folder, None)


def test_without_a_file_nobody_is_told(tmp_path: Path) -> None:
    assert load_receivers(tmp_path, None) == Receivers()


def test_a_file_that_is_named_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="No such file"):
        load_receivers(tmp_path, tmp_path / "other.yaml")


def test_a_secret_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "chat").write_text(f"slack://{SECRET}\n")
    found = load(tmp_path, "receivers: [{name: chat, url_file: chat}]")

    assert found.receivers[0].url == f"slack://{SECRET}"
    assert SECRET not in repr(found)


def test_severity_and_project_choose_the_alerts(tmp_path: Path) -> None:
    text = "alertmanager: {urls: ['http://am:9093'], min_severity: critical, projects: [pre*]}"
    found = load(tmp_path, text).alertmanagers

    assert found is not None
    assert found.wanted.takes(Severity.CRITICAL, "pretrain")
    assert not found.wanted.takes(Severity.WARNING, "pretrain")
    assert not found.wanted.takes(Severity.CRITICAL, "finetune")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("recievers: []", "`recievers`, wanted name, url, alertmanager, receivers, allow_networks"),
        ("receivers: [{name: a, min_severity: bad}]", "wanted critical, info, warning"),
    ],
)
def test_a_word_that_is_not_known_is_told_with_those_that_are(
    tmp_path: Path, text: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=re.escape(words)):
        load(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        f"receivers: [{{name: a, url: x://{SECRET}, color: red}}]",
        f"receivers: [{{name: a, url: x://{SECRET}, url_file: b}}]",
        f"receivers: [{{name: a, url: x://{SECRET}}}, {{name: a, url: x://{SECRET}}}]",
        f"receivers: [{{name: a, url: x://{SECRET}, min_severity: loud}}]",
        f"receivers: [{{name: a, url: x://{SECRET}",
        f"url: !!int ''\nreceivers: [{{name: a, url: x://{SECRET}}}]",
        f"url: 2026-02-30\nreceivers: [{{name: a, url: x://{SECRET}}}]",
        f"receivers: [{{name: a, url: x://{SECRET}}}, {600 * '['}{600 * ']'}]",
        f"alertmanager: {{urls: ['ftp://user:{SECRET}@am']}}",
        f"alertmanager: {{urls: ['http://user:{SECRET}@am:port']}}",
        f"alertmanager: {{urls: ['http://am/?token={SECRET}']}}",
    ],
)
def test_a_bad_file_is_refused_without_showing_what_is_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError) as refused:
        load(tmp_path, text)

    assert SECRET not in str(refused.value)
