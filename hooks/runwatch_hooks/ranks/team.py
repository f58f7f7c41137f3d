"""The ranks that watch one run together: how they find each other, and the store they share."""

import atexit
import hashlib
import os
import socket
import threading
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, cast

import msgspec
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, HashStore, PrefixStore, Store, TCPStore
from torch.distributed import distributed_c10d

from runwatch.ulids import ulid
from runwatch.vocabulary import RunId
from runwatch_hooks.own_log import OwnLog
from runwatch_hooks.settings.environment import Environment


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """One process among those that train together."""

    rank: int = 0
    world_size: int = 1
    local_rank: int = 0
    """Its rank on its own machine."""
    restart: int = 0
    """How often the job's processes have been restarted; the store may outlive them."""
    elastic_id: str | None = None
    """The launcher's name for the job."""
    store: Store | None = field(default=None, repr=False, compare=False)
    """torch.distributed's store; None until that is initialised."""

    @property
    def is_alone(self) -> bool:
        return self.world_size == 1

    @property
    def is_leader(self) -> bool:
        """Whether this is rank 0, which sends the layers and the end of the run."""
        return self.rank == 0


def find_world(environment: Environment) -> World:
    """From torch.distributed if it is initialised, otherwise from the launcher's variables."""
    if dist.is_available() and dist.is_initialized():
        return World(
            rank=dist.get_rank(),
            world_size=dist.get_world_size(),
            local_rank=environment.local_rank,
            restart=environment.restart,
            elastic_id=environment.elastic_id,
            store=_default_store(),
        )
    return World(
        rank=environment.rank,
        world_size=environment.world_size,
        local_rank=environment.local_rank,
    )


def _default_store() -> Store:
    """The store of the current processes; restarted ones get another."""
    return distributed_c10d._get_default_store()  # pyright: ignore[reportPrivateUsage]


# After a failure torchrun restarts the ranks but stays alive itself, so its process identifies the
# job. (Its store does not: in torch 2.13 each restart may get another one.)


def run_of_job(elastic_id: str, number: int, parent: int | None = None) -> RunId | None:
    """The id of the `number`th run watched by the children of this launcher.

    `elastic_id` is torchrun's name for the job. It is not enough by itself, because many users give
    every job the same. None if the parent process is unknown (it is read from Linux's /proc).
    """
    parent = os.getppid() if parent is None else parent
    began_ms = _began_ms(parent)
    if began_ms is None:
        return None
    facts = (socket.gethostname(), elastic_id, parent, began_ms, number)
    return RunId(ulid(began_ms, hashlib.sha256(repr(facts).encode()).digest()[:10]))


def _began_ms(process: int) -> int | None:
    """Start time of a process in Unix milliseconds; the same value at each call."""
    try:
        facts = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/stat").read_text().partition("btime ")[2].split()[0]
    except (OSError, IndexError):
        return None
    ticks = int(facts[19])  # field 22 of proc(5), which counts from the process id
    return int(boot) * 1000 + ticks * 1000 // os.sysconf("SC_CLK_TCK")


class ShutError(Exception):
    """The interpreter is shutting down, and no thread may enter any more."""


class ExitGate:
    """Calls inside it end before the interpreter shuts down, or never begin.

    A daemon thread that returns from C++ and asks a finalizing interpreter for the GIL is ended by
    unwinding its stack (CPython up to 3.13, `take_gil` in ceval_gil.h). C++ responds with
    std::terminate, so a training that ended well would exit with SIGABRT because of the hook.
    """

    def __init__(self, timeout_s: float) -> None:
        """`timeout_s` limits how long the exit waits for threads inside."""
        self._timeout_s = timeout_s
        self._open()
        atexit.register(self.shut)
        os.register_at_fork(after_in_child=self._open)  # threads inside exist only in the parent

    @contextmanager
    def inside(self) -> Generator[None]:
        """Enter for the length of a block. Raises ShutError."""
        with self._changed:
            if self._is_shut:
                raise ShutError("the interpreter is shutting down")
            self._num_inside += 1
        try:
            yield
        finally:
            with self._changed:
                self._num_inside -= 1
                self._changed.notify_all()

    def shut(self) -> None:
        """Let no thread in any more, and wait until all are out, at most `timeout_s`."""
        with self._changed:
            self._is_shut = True
            self._changed.wait_for(lambda: self._num_inside == 0, self._timeout_s)

    def _open(self) -> None:
        self._changed = threading.Condition()
        self._num_inside = 0
        self._is_shut = False


class StoreError(Exception):
    """The ranks could not communicate.

    StoreError
    ├── StoreLostError      the store cannot be reached: its host has exited, or the network failed
    └── StoreTimeoutError   the expected key was not put in time
    """


class StoreLostError(StoreError):
    """The store cannot be reached. It does not come back: do not retry."""


class StoreTimeoutError(StoreError):
    """No rank put the key in time."""


_POLL_S: Final = 0.02
_GATE: Final = ExitGate(timeout_s=5.0)
"""No call here waits for another rank: one that takes longer has lost the store's host."""


class RankStore:
    """Keys under one prefix. Every method raises StoreLostError if the store cannot be reached.

    One client is one connection, and a waiting call blocks it. So each thread uses a `clone`, and
    torch.distributed's own calls never queue behind one of the hook's.
    """

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


log = OwnLog(__name__)

JOIN_TIMEOUT_S: Final = 60.0
"""How long a rank waits for rank 0 to attach as well, in `attach` and nowhere else."""


class SharedAttempt(msgspec.Struct, frozen=True):
    """The identity of an attempt, the same on all ranks."""

    run_id: RunId
    token: str
    """A random secret, by which the service recognises the ranks of one attempt."""
    started_at: float
    """Unix seconds by the clock of rank 0."""


@dataclass(frozen=True, slots=True)
class Team:
    """This process's rank, the shared attempt, and the store of its ranks."""

    world: World
    attempt: SharedAttempt
    _store: RankStore | None = None

    @property
    def is_whole(self) -> bool:
        """Whether all ranks that train together can be reached; true for a single process."""
        return self.world.is_alone or self._store is not None

    def open_store(self, purpose: str) -> RankStore | None:
        """A store for keys of this `attach` and purpose, over a connection of its own, for one
        thread.

        None if there are no other ranks, or they cannot be reached. Raises StoreLostError.
        """
        return None if self._store is None else self._store.clone().under(purpose)


def alone(attempt: SharedAttempt, world: World | None = None) -> Team:
    """The team of a rank without others, or that cannot reach them."""
    return Team(world or World(), attempt)


def join_team(
    world: World, proposed: SharedAttempt, *, is_run_given: bool, timeout_s: float = JOIN_TIMEOUT_S
) -> Team | None:
    """Agree on the attempt that rank 0 proposes. None for a rank that is not watched.

    Without a given run id, a job restarted by torchrun finds its run again. A rank without
    torch.distributed, or that waits for rank 0 in vain, is not watched, with a warning.
    """
    if world.is_alone:
        return alone(proposed)
    if world.store is None:
        log.warning(
            "%d ranks, and torch.distributed is not set up: only rank 0 is watched "
            "(attach after init_process_group)",
            world.world_size,
        )
        return alone(proposed, world) if world.is_leader else None
    try:
        return _join(world, world.store, proposed, is_run_given=is_run_given, timeout_s=timeout_s)
    except StoreError as error:
        log.warning("rank %d is not watched: %s", world.rank, error)
        return alone(proposed, world) if world.is_leader else None


def _join(
    world: World,
    store: Store,
    proposed: SharedAttempt,
    *,
    is_run_given: bool,
    timeout_s: float,
) -> Team:
    life = RankStore(store).under(f"runwatch/{world.restart}").clone()
    number = life.count(f"attaches/{world.rank}")  # a program may watch several runs in turn
    ours = life.under(str(number))
    if not world.is_leader:
        shared = msgspec.json.decode(ours.wait("attempt", timeout_s), type=SharedAttempt)
        return Team(world, shared, ours)
    if not is_run_given and world.elastic_id is not None:
        found = run_of_job(world.elastic_id, number)
        proposed = msgspec.structs.replace(proposed, run_id=found or proposed.run_id)
    ours.put("attempt", msgspec.json.encode(proposed))
    return Team(world, proposed, ours)
