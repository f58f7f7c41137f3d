"""The eight invariants that hold whatever fails, held against a history.

1. What was acknowledged is stored, to the bit, once; what a disk has lost since is named.
2. What is stored was sent.
3. The alerts are those that the stored data give when nothing disturbs.
4. Each alert that fires is told of at least once, and so is its end.
5. A command is applied at most once by a rank, and comes to an end.
6. No training step is held up.
7. Memory and disk are bounded.
8. No secret stands in a log.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, TypeVar

from tests.faults.history import (
    Acked,
    Alerts,
    Applied,
    Broken,
    Ended,
    Fact,
    Fired,
    Grew,
    History,
    Logged,
    Named,
    Notified,
    Ordered,
    Sent,
    Stored,
    Waited,
)

from runwatch.commands import CommandState

F = TypeVar("F")


def violations(history: History) -> list[str]:
    """What the history shows that must not be; empty where all eight hold."""
    facts = list(history.facts())
    return [f"{check.__name__}: {found}" for check in _CHECKS for found in check(facts)]


def acknowledged_is_stored_once(facts: Sequence[Fact]) -> Iterable[str]:
    rows = Counter((fact.stream, fact.seq) for fact in _of(facts, Stored))
    for key in sorted({(fact.stream, fact.seq) for fact in _of(facts, Acked)} | rows.keys()):
        if rows[key] != 1:
            yield f"frame {key[1]} of {key[0]} is stored {rows[key]} times"


def stored_was_sent(facts: Sequence[Fact]) -> Iterable[str]:
    sent = {(fact.stream, fact.seq, fact.crc32) for fact in _of(facts, Sent)}
    broken = {(fact.stream, fact.seq) for fact in _of(facts, Broken)}
    for fact in _of(facts, Stored):
        is_as_sent = (fact.stream, fact.seq, fact.crc32) in sent
        if not is_as_sent and (fact.stream, fact.seq) not in broken:
            yield f"frame {fact.seq} of {fact.stream} is stored as nobody sent it"


def what_is_broken_is_named(facts: Sequence[Fact]) -> Iterable[str]:
    broken = {(fact.stream, fact.seq) for fact in _of(facts, Broken)}
    named = {(fact.stream, fact.seq) for fact in _of(facts, Named)}
    yield from (f"frame {seq} of {stream} is not named" for stream, seq in broken - named)
    yield from (f"frame {seq} of {stream} is named and whole" for stream, seq in named - broken)


def alerts_are_those_of_a_replay(facts: Sequence[Fact]) -> Iterable[str]:
    for fact in _of(facts, Alerts):
        if fact.live != fact.replayed:
            yield f"run {fact.run}: found {fact.live}, wanted {fact.replayed}"


def what_fires_is_told(facts: Sequence[Fact]) -> Iterable[str]:
    told = {(fact.key, fact.over) for fact in _of(facts, Notified)}
    for fact in _of(facts, Fired):
        if (fact.key, fact.over) not in told:
            yield f"nobody heard of {'the end of ' if fact.over else ''}{fact.key}"


def commands_are_applied_once_and_end(facts: Sequence[Fact]) -> Iterable[str]:
    applied = Counter((fact.command_id, fact.rank) for fact in _of(facts, Applied))
    yield from (f"{key} was applied {times} times" for key, times in applied.items() if times > 1)
    states = {fact.command_id: fact.state for fact in _of(facts, Ended)}
    for fact in _of(facts, Ordered):
        state = states.get(fact.command_id)
        if state is None or not CommandState(state).is_ended:
            yield f"{fact.command_id} did not end: {state}"


def no_step_is_held_up(facts: Sequence[Fact]) -> Iterable[str]:
    for fact in _of(facts, Waited):
        if not fact.seconds <= fact.at_most:
            yield f"a step waited {fact.seconds} s, at most {fact.at_most} s are allowed"


def memory_and_disk_are_bounded(facts: Sequence[Fact]) -> Iterable[str]:
    for fact in _of(facts, Grew):
        if fact.num_bytes > fact.at_most:
            yield f"{fact.what} grew by {fact.num_bytes} bytes, wanted at most {fact.at_most}"


def no_secret_is_logged(facts: Sequence[Fact]) -> Iterable[str]:
    for fact in _of(facts, Logged):
        if fact.num_secrets:
            yield f"{fact.num_secrets} of {fact.num_lines} lines of {fact.place} hold a secret"


_CHECKS: Final[tuple[Callable[[Sequence[Fact]], Iterable[str]], ...]] = (
    acknowledged_is_stored_once,
    stored_was_sent,
    what_is_broken_is_named,
    alerts_are_those_of_a_replay,
    what_fires_is_told,
    commands_are_applied_once_and_end,
    no_step_is_held_up,
    memory_and_disk_are_bounded,
    no_secret_is_logged,
)


def _of(facts: Sequence[Fact], kind: type[F]) -> list[F]:
    return [fact for fact in facts if isinstance(fact, kind)]
