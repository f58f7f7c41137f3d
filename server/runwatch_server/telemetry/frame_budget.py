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
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

from runwatch_server.telemetry.committed_frames import CommittedFrame


def unpacking_bytes(body_bytes: int, block_bytes: int) -> int:
    """Most memory that a frame takes while its block is unpacked. Its events and names, which are
    not compressed, take some eight times as much as objects; the block is held twice, in the order
    in which it was compressed and in that of its numbers."""
    return 8 * body_bytes + 2 * block_bytes


@dataclass(slots=True)
class Share:
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


_SMALL: Final = 64
"""What takes no more than this part of the budget is small: 8 MiB of 512, and so the frames of most
trainers, also those that a restart reads at a time."""


class _Room:
    """A part of the budget for those that unpack frames, who wait until there is room for them."""

    def __init__(self, most_bytes: int) -> None:
        self._share = Share(most_bytes)
        self._waiters: list[_Waiter] = []

    @property
    def used_bytes(self) -> int:
        return self._share.used_bytes

    @asynccontextmanager
    async def taken(self, owner: str, num_bytes: int) -> AsyncGenerator[None]:
        num_bytes = min(num_bytes, self._share.most_bytes)
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
        self._share.give_back(owner, num_bytes)
        self._let_in()

    def _let_in(self) -> None:
        """Give room to those that wait, first come, first served, but for those whose owner has its
        share already."""
        waiters = [one for one in self._waiters if not one.has_room.cancelled()]
        self._waiters = []
        for index, waiter in enumerate(waiters):
            if self._share.fits(waiter.owner, waiter.num_bytes):
                self._share.take(waiter.owner, waiter.num_bytes)
                waiter.has_room.set_result(None)
                continue
            self._waiters.append(waiter)
            if not self._share.by_owner[waiter.owner]:
                # It is its turn: nobody who needs less may pass it again and again.
                self._waiters += waiters[index + 1 :]
                return


class FrameBudget:
    """Three eighths of it are for frames that wait, half for those that are worked on, and an
    eighth for those of them that are small: however many wait, work goes on, and no large frame
    keeps small ones waiting. For use on one event loop."""

    def __init__(self, most_bytes: int) -> None:
        self._small_bytes = most_bytes // _SMALL
        self._waiting = Share(most_bytes * 3 // 8)
        self._small = _Room(most_bytes // 8)
        self._large = _Room(most_bytes // 2)
        self._freed: deque[tuple[str, int]] = deque()
        """What kept frames took that are gone since: the last reference may be dropped on another
        thread."""

    @property
    def used_bytes(self) -> int:
        """Bytes of the frames that are unpacked now."""
        self._count_freed()
        return self._waiting.used_bytes + self._small.used_bytes + self._large.used_bytes

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

    def room(self, owner: str, num_bytes: int) -> AbstractAsyncContextManager[None]:
        """Room to unpack frames and work on them; waits until there is some. Must not be asked for
        by whoever has some already."""
        room = self._small if num_bytes <= self._small_bytes else self._large
        return room.taken(owner, num_bytes)
