"""What silences hold back at one moment, and how much is asked to find that out."""

from dataclasses import replace
from typing import Any

from runwatch_server.notify.recurrence import Recurrence
from runwatch_server.notify.silences import Matcher, Muting, Silence

NOW = 1_800_000_000.0
LABELS = {"project": "pretrain", "run": "llama-7"}
ASKED: list[float] = []


class CountedWindow(Recurrence, frozen=True):
    """One that is always open, and notes that it was asked."""

    def covers(self, now: float) -> bool:
        ASKED.append(now)
        return True


def a_silence(**facts: Any) -> Silence:
    known = Silence(
        id="0" * 26,
        project="pretrain",
        matchers=(Matcher("run", "llama-*"),),
        starts_at=NOW - 60,
        ends_at=NOW + 60,
        author="key:a",
        comment="known",
        created_at=NOW - 60,
        recurs=CountedWindow(cron="* * * * *", for_s=60),
    )
    return replace(known, **facts)


def test_a_window_is_reckoned_once_for_all_alerts_that_it_is_about() -> None:
    ASKED.clear()
    muting = Muting([a_silence()], now=NOW)

    assert all(muting.covers(LABELS | {"run": f"llama-{count}"}) for count in range(200))
    assert len(ASKED) == 1


def test_a_window_that_is_about_none_of_the_alerts_or_is_over_is_not_reckoned() -> None:
    ASKED.clear()
    silences = [
        a_silence(project="another"),
        a_silence(matchers=(Matcher("run", "gpt-*"),)),
        a_silence(ends_at=NOW),
        a_silence(starts_at=NOW + 1),
    ]

    assert not Muting(silences, now=NOW).covers(LABELS)
    assert not any(silence.covers(LABELS, now=NOW) for silence in silences)
    assert ASKED == []


def test_a_silence_of_every_project_covers_each() -> None:
    assert Muting([a_silence(project="", recurs=None)], now=NOW).covers(LABELS)
