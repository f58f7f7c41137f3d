"""The packer in a process of its own, which ends, or stands still, at one point of its work.

    python -m tests.faults.packing_process DATA_DIR OBJECTS_URL --hours 48 --at written --do kill

`noted`: an object's name is in the database and the object is not written. `written`: it is, and no
pack has it. `indexed`: a pack has it. `condemned`: a loose object is about to be removed.
`removed`: it is, and its name is still there.
"""

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

from runwatch_server.clock import Clock
from runwatch_server.db import Database, make_store
from runwatch_server.objects import ObjectStore, make_objects
from runwatch_server.telemetry.packs.packing import Packer, PackLimits

POINTS = ("noted", "written", "indexed", "condemned", "removed")
_LIMITS = PackLimits(pack_frames=4, least_bytes=1)
_DAY_S = 86_400.0


class Fate:
    """Strikes once, at its point."""

    def __init__(self, point: str, sent: signal.Signals) -> None:
        self._point = point
        self._signal = sent

    def reach(self, point: str) -> None:
        if point == self._point:
            self._point = ""
            os.kill(os.getpid(), self._signal)


class FatedObjects:
    """A store that passes the points of writing and removing."""

    def __init__(self, objects: ObjectStore, fate: Fate) -> None:
        self._objects = objects
        self._fate = fate

    @property
    def place(self) -> str:
        return self._objects.place

    async def put(self, name: str, content: bytes) -> None:
        self._fate.reach("noted")
        await self._objects.put(name, content)
        self._fate.reach("written")

    async def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        return await self._objects.read(name, ranges)

    async def delete(self, name: str) -> None:
        self._fate.reach("condemned")
        await self._objects.delete(name)
        self._fate.reach("removed")


class FatedObserver:
    """Passes the point at which a pack is in the index."""

    def __init__(self, fate: Fate) -> None:
        self._fate = fate

    def observe_packed(self, *, num_bytes: int, num_frames: int) -> None:
        self._fate.reach("indexed")

    def observe_object_failure(self) -> None:
        raise AssertionError("the store of these tests is never away")

    def observe_swept(self, num_objects: int) -> None:
        """Told and forgotten: the points of removing are the store's."""


async def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("objects_url")
    parser.add_argument("--database-url")
    parser.add_argument("--hours", type=float, default=0.0, help="that the clock is ahead")
    parser.add_argument("--at", choices=POINTS, default="")
    parser.add_argument("--do", choices=("KILL", "STOP"), default="KILL")
    parser.add_argument("--sweep", action="store_true", help="only remove what is loose")
    asked = parser.parse_args()
    objects = make_objects(asked.objects_url)
    assert objects is not None
    fate = Fate(asked.at, signal.Signals[f"SIG{asked.do}"])
    clock = Clock(wall=lambda: time.time() + asked.hours * 3600)
    async with Database(make_store(asked.data_dir, asked.database_url)) as database:
        database.start()
        packer = Packer(
            database,
            FatedObjects(objects, fate),
            clock,
            after_s=_DAY_S,
            observer=FatedObserver(fate),
            limits=_LIMITS,
        )
        await (packer.sweep() if asked.sweep else packer.run())


if __name__ == "__main__":
    asyncio.run(main())
