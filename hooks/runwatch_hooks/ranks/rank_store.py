"""Small values shared by the ranks of a job, by key: torch's own store, over a connection of ours.

One client is one connection, and a waiting call holds it; so each thread takes a `clone`, and
none of ours ever waits where torch.distributed's own calls would have to queue behind it.
"""

import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Final, cast

from torch._C._distributed_c10d import PrefixStore, Store

from runwatch_hooks.ranks.errors import StoreLostError, StoreTimeoutError
from runwatch_hooks.ranks.exit_gate import ExitGate, ShutError

_POLL_S: Final = 0.02
_GATE: Final = ExitGate(timeout_s=5.0)
"""No call here waits for another rank: one that takes longer has lost the store's host."""


class RankStore:
    """Keys live under one prefix. Every method raises StoreLostError where the store is gone."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def under(self, prefix: str) -> "RankStore":
        """The same store and connection, the keys below a prefix."""
        return RankStore(PrefixStore(prefix, self._store))

    def clone(self) -> "RankStore":
        """The same keys over another connection, for another thread."""
        with _lost():
            cloned = self._store.clone()  # type: ignore[attr-defined]  # pyright: ignore
            return RankStore(cast("Store", cloned))

    def put(self, key: str, value: bytes) -> None:
        with _lost():
            # Bytes pass as they are; the stub asks for a text, which would travel as UTF-8.
            self._store.set(key, value)  # type: ignore[arg-type]

    def get(self, key: str) -> bytes | None:
        """The value, or None where nobody has put one: never waits for it."""
        with _lost():
            return self._store.get(key) if self._store.check([key]) else None

    def holds(self, *keys: str) -> bool:
        """Whether all of these have been put, at one question."""
        with _lost():
            return self._store.check(list(keys))

    def wait(self, key: str, timeout_s: float) -> bytes:
        """The value, once somebody has put it. Raises StoreTimeoutError.

        It asks again and again: the store's own way to wait prints a warning when its time is up.
        """
        deadline = time.monotonic() + timeout_s
        while (value := self.get(key)) is None:
            if time.monotonic() >= deadline:
                raise StoreTimeoutError(f"{key}: nobody put it within {timeout_s:g} s")
            time.sleep(_POLL_S)
        return value

    def decide(self, key: str, value: str) -> str:
        """Put a value unless there is one; returns what stands there: the first writer's."""
        with _lost():
            return self._store.compare_set(key, "", value).decode()

    def count(self, key: str) -> int:
        """How often this was called for a key, by whomever."""
        with _lost():
            return self._store.add(key, 1)

    def remove(self, key: str) -> None:
        with _lost():
            self._store.delete_key(key)


@contextmanager
def _lost() -> Generator[None]:
    try:
        with _GATE.inside():
            yield
    except ShutError as error:
        raise StoreLostError(f"the store of the ranks is left alone: {error}") from error
    except (RuntimeError, OSError) as error:  # torch's DistError is a RuntimeError
        raise StoreLostError(f"the store of the ranks is gone: {error}") from error
