"""Where the ranks of a run stand that makes no step, and which of them holds up the others.

Each rank tells the place at which its training thread stands (`runwatch.stalls`). In a job of many
ranks nearly all wait for one, in a collective operation or in the backward pass that contains it.
So the ranks are compared: the odd one out is named, and where the places do not decide, nobody is.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from runwatch.number_texts import counted
from runwatch.stalls import Stage, StalledRank
from runwatch_server.runs.rank_activity import RankFacts

_SILENT_S: Final = 30.0
"""Three heartbeats: a rank of which none came has not told its place, and cannot."""
_MOST_KEPT: Final = 16
_MOST_NAMED: Final = 3


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a run stands."""

    ranks: tuple[StalledRank, ...] = ()
    """Those that hold up the others first; not all of many."""
    words: str = ""
    """Empty if nothing is known."""


NOWHERE: Final = Standing()

_Place = tuple[Stage, str]


def standing_of(
    told: Sequence[StalledRank], team: Sequence[RankFacts], hosts: Mapping[int, str]
) -> Standing:
    """Where the ranks of a team stand, from what they told. What a rank told before its newest step
    is no longer true, and left out."""
    last_steps = {rank.rank: rank.last_step for rank in team}
    current = [
        msgspec.structs.replace(one, host=hosts.get(one.rank))
        for one in told
        if one.rank in last_steps and one.step >= (last_steps[one.rank] or 0)
    ]
    telling = {one.rank for one in current}
    silent = [rank for rank in team if rank.contact_age_s > _SILENT_S and rank.rank not in telling]
    apart = {one.rank for one in _apart(current)} if not silent else set[int]()
    ranks = [msgspec.structs.replace(one, is_apart=one.rank in apart) for one in current]
    words = _words(ranks, silent, hosts, num_ranks=len(team))
    return Standing(_kept(ranks), words)


def _apart(ranks: Sequence[StalledRank]) -> Sequence[StalledRank]:
    """The ranks that the others seem to wait for; empty if their places do not tell.

    A rank that is a step behind and does not wait is one. Of ranks after the same step, those are
    that load data, for which nobody waits for another rank; else those that do not wait while the
    most do; else those that are not where the most are, because a wait for the device looks like
    any other line of the program. Who waits for a majority that works is not to blame.
    """
    if not ranks:
        return []
    first_step = min(one.step for one in ranks)
    behind = [one for one in ranks if one.step == first_step]
    if len(behind) < len(ranks):
        return [one for one in behind if not one.stall.waits]
    loading = [one for one in ranks if one.stall.stage is Stage.DATA]
    working = [one for one in ranks if not one.stall.waits]
    for few in (loading, working):
        if 0 < len(few) <= len(ranks) / 2:
            return few
    place, num_there = Counter(_place(one) for one in ranks).most_common(1)[0]
    if num_there <= len(ranks) / 2:
        return []
    do_most_wait = next(one.stall.waits for one in ranks if _place(one) == place)
    elsewhere = [one for one in ranks if _place(one) != place]
    return [one for one in elsewhere if do_most_wait or not one.stall.waits]


def _words(
    ranks: Sequence[StalledRank],
    silent: Sequence[RankFacts],
    hosts: Mapping[int, str],
    *,
    num_ranks: int,
) -> str:
    if num_ranks == 1:
        return "".join(f"it stands {one.stall.words}" for one in ranks)
    parts: list[str] = []
    if silent:
        silent_s = min(rank.contact_age_s for rank in silent)
        who = _who([rank.rank for rank in silent], hosts)
        has = "has" if len(silent) == 1 else "have"
        parts.append(f"{who} {has} sent nothing for {silent_s:.0f} s")
    parts += _groups([one for one in ranks if one.is_apart], hosts)
    others = [one for one in ranks if not one.is_apart]
    if parts and len(others) > 1:
        words, num_there = Counter(one.stall.words for one in others).most_common(1)[0]
        who = "the others" if num_there == len(others) else "most others"
        return ", ".join([*parts, f"{who} stand {words}"])
    if len(ranks) == num_ranks and len({_place(one) for one in ranks}) == 1:
        return f"all {num_ranks} ranks stand {ranks[0].stall.words}"
    return ", ".join([*parts, *_groups(others, hosts)])


def _groups(ranks: Sequence[StalledRank], hosts: Mapping[int, str]) -> list[str]:
    """Who stands where, the largest groups first."""
    groups: dict[str, list[int]] = defaultdict(list)
    for one in ranks:
        groups[one.stall.words].append(one.rank)
    largest = sorted(groups.items(), key=lambda group: -len(group[1]))[:_MOST_NAMED]
    return [
        f"{_who(at, hosts)} {'stands' if len(at) == 1 else 'stand'} {place}"
        for place, at in largest
    ]


def _who(ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
    if len(ranks) == 1:
        host = hosts.get(ranks[0])
        return f"rank {ranks[0]}" + (f" on {host}" if host else "")
    named = [str(rank) for rank in ranks[:_MOST_NAMED]]
    if len(ranks) > _MOST_NAMED:
        return f"ranks {', '.join(named)} and {counted(len(ranks) - _MOST_NAMED, 'other')}"
    return f"ranks {', '.join(named[:-1])} and {named[-1]}"


def _place(one: StalledRank) -> _Place:
    return one.stall.stage, one.stall.place


def _kept(ranks: Sequence[StalledRank]) -> tuple[StalledRank, ...]:
    """At most _MOST_KEPT: those apart first, then one of each place, then the rest."""
    seen: set[_Place] = set()
    order: list[tuple[bool, bool, StalledRank]] = []
    for one in ranks:
        order.append((not one.is_apart, _place(one) in seen, one))
        seen.add(_place(one))
    order.sort(key=lambda entry: entry[:2])
    return tuple(one for *_, one in order[:_MOST_KEPT])
