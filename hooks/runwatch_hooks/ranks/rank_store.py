"""A key-value store shared by the ranks of a job: torch's own, over separate connections.

One client is one connection, and a waiting call blocks it. So each thread uses a `clone`, and
torch.distributed's own calls never queue behind one of the hook's.
"""

import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, cast

from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store, TCPStore

from runwatch_hooks.ranks.errors import StoreLostError, StoreTimeoutError
from runwatch_hooks.ranks.exit_gate import ExitGate, ShutError

_POLL_S: Final = 0.02
_GATE: Final = ExitGate(timeout_s=5.0)
"""No call here waits for another rank: one that takes longer has lost the store's host."""


class RankStore:
    """Keys under one prefix. Every method raises StoreLostError if the store cannot be reached."""

    def __init__(self, store: Store, prefixes: tuple[str, ...] = ()) -> None:
        self._connection = store
        self._prefixes = prefixes
        for prefix in prefixes:
            store = PrefixStore(prefix, store)
        self._store = store

    def under(self, prefix: str) -> "RankStore":
        """The same store and connection, with another prefix added to the keys."""
        return RankStore(self._connection, (*self._prefixes, prefix))

    def clone(self) -> "RankStore":
        """The same keys over another connection, for another thread."""
        with _lost():
            clone = cast("Callable[[], Store] | None", getattr(self._connection, "clone", None))
            again = second_client(self._connection) if clone is None else clone()
            return RankStore(again, self._prefixes)

    def put(self, key: str, value: bytes) -> None:
        with _lost():
            # Bytes work, although the stub wants a str, which would be sent as UTF-8.
            self._store.set(key, value)  # type: ignore[arg-type]

    def get(self, key: str) -> bytes | None:
        """The value, or None if there is none. Does not wait for it."""
        with _lost():
            return self._store.get(key) if self._store.check([key]) else None

    def holds(self, *keys: str) -> bool:
        """Whether all of these keys have been put, in one request."""
        with _lost():
            return self._store.check(list(keys))

    def wait(self, key: str, timeout_s: float) -> bytes:
        """Wait for a value. Raises StoreTimeoutError.

        Polls, because the store's own wait prints a warning when it times out.
        """
        deadline = time.monotonic() + timeout_s
        while (value := self.get(key)) is None:
            if time.monotonic() >= deadline:
                raise StoreTimeoutError(f"{key}: nobody put it within {timeout_s:g} s")
            time.sleep(_POLL_S)
        return value

    def decide(self, key: str, value: str) -> str:
        """Put a value unless there is one; returns the first writer's value."""
        with _lost():
            return self._store.compare_set(key, "", value).decode()

    def count(self, key: str) -> int:
        """Add 1 to a key's counter; returns how often any rank has called this for the key."""
        with _lost():
            return self._store.add(key, 1)

    def remove(self, key: str) -> None:
        with _lost():
            self._store.delete_key(key)


def second_client(store: Store) -> Store:
    """What `clone` does, which stores have since torch 2.8. Raises StoreLostError for a kind of
    store that cannot be connected to again.

    Torch's own prefixes cannot be read from a store, so the new client has none; ours hold what
    they tell apart, the restarts of a job.
    """
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    if isinstance(store, TCPStore):
        return TCPStore(store.host, store.port, is_master=False, wait_for_workers=False)
    if isinstance(store, FileStore):
        return FileStore(store.path)  # type: ignore[attr-defined]  # pyright: ignore
    if isinstance(store, HashStore):
        return store  # in this process's memory, for threads, and no connection
    kind = type(store).__name__
    raise StoreLostError(f"before torch 2.8 a {kind} takes no second connection")


@contextmanager
def _lost() -> Generator[None]:
    try:
        with _GATE.inside():
            yield
    except ShutError as error:
        raise StoreLostError(f"the store of the ranks is no longer used: {error}") from error
    except (RuntimeError, OSError) as error:  # torch's DistError is a RuntimeError
        raise StoreLostError(f"the store of the ranks is gone: {error}") from error
