"""A handler of a signal may end the run wherever it interrupts us, also within a lock of ours."""

# pyright: reportPrivateUsage=false
# (the lock is held by the test in place of the call that a signal has interrupted)

import threading
from collections.abc import Callable

import pytest
from tests.hooks.ranks.fingerprints import fingerprint
from tests.hooks.ranks.parts import part_row
from torch._C._distributed_c10d import HashStore

from runwatch_hooks import wraps
from runwatch_hooks.ending import _OPEN_RUNS, SiblingRun
from runwatch_hooks.ranks import RankStore
from runwatch_hooks.ranks.follower import Follower
from runwatch_hooks.ranks.leader import Leader
from runwatch_hooks.step import optimizer_steps
from runwatch_hooks.step.row import Row

_PATIENCE_S = 60.0


def ends(call: Callable[[], None]) -> bool:
    """Whether it comes back at all."""
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    thread.join(_PATIENCE_S)
    return not thread.is_alive()


def pass_by(*_: object) -> None:
    pass


def speak(rank: Leader | Follower) -> None:
    """As the last words of a run do."""
    rank.put(part_row(1, grad_norm=[1.0, 1.0]))
    rank.put_fingerprints([fingerprint(1, 7)])
    rank.take_notices()
    rank._untold.take_paces()


@pytest.mark.parametrize("is_leader", [True, False])
def test_last_words_within_a_put_come_through(is_leader: bool) -> None:
    store = RankStore(HashStore())
    rows: list[Row] = []
    rank = Leader(store, 2, rows.append) if is_leader else Follower(store, 1, rows.append)

    def interrupted() -> None:
        with rank._lock, rank._untold._lock:
            speak(rank)

    assert ends(interrupted)


def test_so_does_the_end_of_a_run_while_another_begins() -> None:
    def interrupted() -> None:
        member = SiblingRun(lambda: None, lambda: False, lambda: None)
        with _OPEN_RUNS._changing, wraps._CHANGING, optimizer_steps._BEFORE._changing:
            member.leave()
            wraps.Subscriptions().release()
            optimizer_steps.hear_before_steps(pass_by).remove()

    assert ends(interrupted)
