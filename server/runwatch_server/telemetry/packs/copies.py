"""The objects of packs outside of the service: looked through, copied away and put back.

Each is known to the index by its digest; a list of these in the form of `sha256sum` stands beside
copies, so that they can be checked, or a bucket be copied by other tools, without Runwatch.
"""

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from runwatch_server.objects import ObjectLostError, ObjectStore
from runwatch_server.secret_files import make_folder
from runwatch_server.telemetry.packs.queries import IndexedObject

DIGESTS_FILE: Final = "SHA256SUMS"


async def find_faults(objects: ObjectStore, wanted: Sequence[IndexedObject]) -> list[str]:
    """What is lost or damaged, in words. Reads all. Raises ObjectsAwayError."""
    found = [await _read(objects, one) for one in wanted]
    return [fault for fault in found if isinstance(fault, str)]


async def copy_objects(
    source: ObjectStore, target: ObjectStore, wanted: Sequence[IndexedObject]
) -> list[str]:
    """Copies what the target does not hold whole; returns what was lost or damaged in the source,
    in words, and is not in the target either. Raises ObjectsAwayError."""
    faults: list[str] = []
    for one in wanted:
        if isinstance(await _read(target, one), bytes):
            continue
        found = await _read(source, one)
        if isinstance(found, bytes):
            await target.put(one.name, found)
        else:
            faults.append(found)
    return faults


def write_digests(folder: Path, wanted: Sequence[IndexedObject]) -> None:
    """Raises OSError."""
    make_folder(folder)
    lines = "".join(f"{one.digest}  {one.name}\n" for one in wanted)
    (folder / DIGESTS_FILE).write_text(lines)


async def _read(objects: ObjectStore, one: IndexedObject) -> bytes | str:
    """The object whole, or in words why it cannot be had. Raises ObjectsAwayError."""
    try:
        (content,) = await objects.read(one.name, [(0, one.num_bytes)])
    except ObjectLostError as error:
        return str(error)
    digest = hashlib.sha256(content).hexdigest()
    if digest == one.digest:
        return content
    return f"{objects.place}: {one.name}: found SHA-256 {digest}, wanted {one.digest}"
