"""Checks the objects of packs, copies them elsewhere and restores them.

The index knows each object by its digest. A list of digests in the form of `sha256sum` is written
beside copies, so that they can be checked, or a bucket be copied by other tools, without Runwatch.
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
    """Descriptions of objects that are lost or damaged. Reads all of them. Raises
    ObjectsAwayError."""
    found = [await _read(objects, one) for one in wanted]
    return [fault for fault in found if isinstance(fault, str)]


async def copy_objects(
    source: ObjectStore, target: ObjectStore, wanted: Sequence[IndexedObject]
) -> list[str]:
    """Copy the objects that the target does not hold intact. Returns descriptions of those that are
    lost or damaged in the source and not in the target either. Raises ObjectsAwayError."""
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
    """Write the list of digests. Raises OSError."""
    make_folder(folder)
    lines = "".join(f"{one.digest}  {one.name}\n" for one in wanted)
    (folder / DIGESTS_FILE).write_text(lines)


async def _read(objects: ObjectStore, one: IndexedObject) -> bytes | str:
    """The whole object, or a text that says why it cannot be read. Raises ObjectsAwayError."""
    try:
        (content,) = await objects.read(one.name, [(0, one.num_bytes)])
    except ObjectLostError as error:
        return str(error)
    digest = hashlib.sha256(content).hexdigest()
    if digest == one.digest:
        return content
    return f"{objects.place}: {one.name}: found SHA-256 {digest}, wanted {one.digest}"
