"""How many replicas and how much storage 100, 1,000 and 10,000 runs want, worked out from figures
that the other programs measure on the machine that is meant.

Both are lines of `python -m benchmarks.ingest`: the values that it judges a second, which are fewer
than it acknowledges and so the bound of what may come day after day, and the bytes a value on disk.

    python -m benchmarks.sizing --values-per-s 1.06e6 --bytes-per-value 3.60
"""

import argparse
import math
from dataclasses import dataclass
from typing import Final

from benchmarks.harness import markdown_table

RUNS: Final = (100, 1_000, 10_000)
_DAY_S: Final = 86_400
_TIB: Final = 2**40


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Of one replica."""

    values_per_s: float
    """Acknowledged, and judged by the built-in rules, at saturation."""
    bytes_per_value: float
    """On disk, with indexes and rollups."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """What runs send, and for how much room is left."""

    steps_per_s: float
    """Of one run."""
    values_per_step: int
    load: float
    """The share of what a replica can take that it is given: the rest is for the spools that come
    in after an outage, and for the runs of a replica that is lost."""

    def values_per_s(self, runs: int) -> float:
        return runs * self.steps_per_s * self.values_per_step


def replicas(runs: int, fleet: Fleet, measured: Measured) -> int:
    """One more than the load asks for: any may be lost."""
    return math.ceil(fleet.values_per_s(runs) / (fleet.load * measured.values_per_s)) + 1


def bytes_a_day(runs: int, fleet: Fleet, measured: Measured) -> float:
    return fleet.values_per_s(runs) * measured.bytes_per_value * _DAY_S


def table(fleet: Fleet, measured: Measured, *, hot_days: float, raw_days: float) -> str:
    rows = [
        (
            f"{runs:,}",
            f"{fleet.values_per_s(runs) / 1e6:.2f} M",
            replicas(runs, fleet, measured),
            f"{(daily := bytes_a_day(runs, fleet, measured)) / _TIB:.2f} TiB",
            f"{daily * hot_days / _TIB:.2f} TiB",
            f"{daily * raw_days / _TIB:.1f} TiB",
        )
        for runs in RUNS
    ]
    heading = ("runs at once", "values/s", "replicas", "a day", "in PostgreSQL", "in objects")
    return markdown_table(heading, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--values-per-s", type=float, required=True)
    parser.add_argument("--bytes-per-value", type=float, required=True)
    parser.add_argument("--steps-per-s", type=float, default=0.2)
    parser.add_argument("--values-per-step", type=int, default=1205, help="300 layers x 4 + 5")
    parser.add_argument("--load", type=float, default=0.5)
    parser.add_argument("--hot-days", type=float, default=1.0)
    parser.add_argument("--raw-days", type=float, default=30.0)
    asked = parser.parse_args()
    measured = Measured(values_per_s=asked.values_per_s, bytes_per_value=asked.bytes_per_value)
    fleet = Fleet(
        steps_per_s=asked.steps_per_s, values_per_step=asked.values_per_step, load=asked.load
    )
    print(table(fleet, measured, hot_days=asked.hot_days, raw_days=asked.raw_days))


if __name__ == "__main__":
    main()
