"""One budget in bytes for all frames that are unpacked: those that wait to be judged, and those
that are being received or judged.

Some kilobytes on the wire, or in the database, can be 64 MiB unpacked. So whoever unpacks a frame
asks for room first, and a frame that was received is kept unpacked until its turn only while there
is room for it; otherwise it is read again from the database.
"""

import asyncio
import weakref
from collections import Counter, deque
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from runwatch_server.telemetry.committed_frames import CommittedFrame


def unpacking_bytes(body_bytes: int, block_bytes: int) -> int:
    """Most memory that a frame takes while its block is unpacked. Its events and names, which are
    not compressed, take some eight times as much as objects; the block is held twice, in the order
    in which it was compressed and in that of its numbers."""
    return 8 * body_bytes + 2 * block_bytes


@dataclass(slots=True)
class _Share:
    """A part of the budget. An owner gets as much again as is left to the others at most, so that
    one that takes all it can leaves room for those that need little."""

    most_bytes: int
    used_bytes: int = 0
    by_owner: Counter[str] = field(default_factory=Counter[str])

    def fits(self, owner: str, num_bytes: int) -> bool:
        return self.by_owner[owner] + num_bytes <= self.most_bytes - self.used_bytes

    def take(self, owner: str, num_bytes: int) -> None:
        self.used_bytes += num_bytes
        self.by_owner[owner] += num_bytes

    def give_back(self, owner: str, num_bytes: int) -> None:
        self.used_bytes -= num_bytes
        self.by_owner[owner] -= num_bytes
        if not self.by_owner[owner]:
            del self.by_owner[owner]


@dataclass(frozen=True, slots=True, eq=False)
class _Waiter:
    owner: str
    num_bytes: int
    has_room: asyncio.Future[None]


class FrameBudget:
    """Half of it is for frames that wait and half for those that are worked on: however many wait,
    work goes on. For use on one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._waiting = _Share(most_bytes // 2)
        self._at_work = _Share(most_bytes // 2)
        self._waiters: list[_Waiter] = []
        self._freed: deque[tuple[str, int]] = deque()
        """What kept frames took that are gone since: the last reference may be dropped on another
        thread."""

    @property
    def used_bytes(self) -> int:
        """Bytes of the frames that are unpacked now."""
        self._count_freed()
        return self._waiting.used_bytes + self._at_work.used_bytes

    def keep(self, frame: CommittedFrame) -> bool:
        """Whether there is room to keep a frame until its turn. If so, it counts until nobody
        refers to it any more."""
        self._count_freed()
        owner, num_bytes = frame.project, frame.num_bytes
        if not self._waiting.fits(owner, num_bytes):
            return False
        self._waiting.take(owner, num_bytes)
        weakref.finalize(frame, self._freed.append, (owner, num_bytes)).atexit = False
        return True

    def _count_freed(self) -> None:
        with suppress(IndexError):
            while True:
                self._waiting.give_back(*self._freed.popleft())

    @asynccontextmanager
    async def room(self, owner: str, num_bytes: int) -> AsyncGenerator[None]:
        """Room to unpack frames and work on them; waits until there is some. Must not be asked for
        by whoever has some already."""
        num_bytes = min(num_bytes, self._at_work.most_bytes)
        await self._take(owner, num_bytes)
        try:
            yield
        finally:
            self._give_back(owner, num_bytes)

    async def _take(self, owner: str, num_bytes: int) -> None:
        waiter = _Waiter(owner, num_bytes, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._let_in()
        try:
            await waiter.has_room
        except asyncio.CancelledError:
            if not waiter.has_room.cancelled():  # it got room just before
                self._give_back(owner, num_bytes)
            raise

    def _give_back(self, owner: str, num_bytes: int) -> None:
        self._at_work.give_back(owner, num_bytes)
        self._let_in()

    def _let_in(self) -> None:
        """Give room to those that wait, first come, first served, but for those whose owner has its
        share already."""
        waiters = [one for one in self._waiters if not one.has_room.cancelled()]
        self._waiters = []
        for index, waiter in enumerate(waiters):
            if self._at_work.fits(waiter.owner, waiter.num_bytes):
                self._at_work.take(waiter.owner, waiter.num_bytes)
                waiter.has_room.set_result(None)
                continue
            self._waiters.append(waiter)
            if not self._at_work.by_owner[waiter.owner]:
                # It is its turn: nobody who needs less may pass it again and again.
                self._waiters += waiters[index + 1 :]
                return
