"""What `runwatch doctor` finds, on either side of the wire."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

import msgspec


class Verdict(StrEnum):
    GOOD = "good"
    NOTE = "note"
    """Nothing is broken, and somebody may want to know."""
    WRONG = "wrong"
    """Something will not work as it is."""


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    part: Literal["installed", "environment", "spool", "model", "service"]
    name: str
    verdict: Verdict
    found: str
    advice: str = ""
    """What to do about it."""


def is_all_right(findings: Iterable[Finding]) -> bool:
    return all(finding.verdict is not Verdict.WRONG for finding in findings)
