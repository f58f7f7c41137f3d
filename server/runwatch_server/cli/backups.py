"""`runwatch db backup` and `restore`: copies of the database and of its packed objects; and
`compact`, which writes it anew in its place."""

import asyncio
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runwatch_server.cli.open_database import (
    DataDir,
    Url,
    reported_errors,
    settings_of,
    with_database,
)
from runwatch_server.cli.output import AsJson, print_either, print_facts, print_text
from runwatch_server.db import Database
from runwatch_server.db.backup import BackupError, ask_copy, backed_up, restored
from runwatch_server.db.backup import compact as compact_file
from runwatch_server.objects import ObjectStore, make_objects
from runwatch_server.objects.folder import FolderObjects
from runwatch_server.settings import Settings
from runwatch_server.telemetry.packs.copies import copy_objects, write_digests
from runwatch_server.telemetry.packs.queries import IndexedObject, indexed_objects


class ObjectsInCopy(StrEnum):
    """Whether a copy holds the packed objects, or only their names."""

    COPY = "copy"
    NAME = "name"


_HowObjects = Annotated[
    ObjectsInCopy | None,
    typer.Option(
        "--objects",
        help="Packed objects: copy them into TARGET.objects, or only name them there with their "
        "digests. By default those in a folder are copied and those in a bucket are named.",
    ),
]
_ObjectsOnly = Annotated[
    bool, typer.Option("--objects-only", help="Only the packed objects, for use with PostgreSQL.")
]


def backup(
    target: Annotated[
        Path, typer.Argument(help="File to create; packed objects go to TARGET.objects beside it.")
    ],
    data_dir: DataDir = None,
    database_url: Url = None,
    how: _HowObjects = None,
    objects_only: _ObjectsOnly = False,
    as_json: AsJson = False,
) -> None:
    """Back up a SQLite database, even while the service runs, with the packed objects that it
    refers to, and check the copy. Exits with 1 if objects are lost or damaged."""
    with reported_errors():
        settings = settings_of(data_dir, database_url)
        _check_engine(settings, objects_only, instead="pg_dump or pg_basebackup")
        if objects_only:
            place, indexed = with_database(settings, _indexed)
            faults = _copy_out(settings, indexed, target, how)
        else:
            place = str(settings.data_dir)
            with backed_up(settings.data_dir, target) as copy:
                indexed = ask_copy(copy, indexed_objects)
                faults = _copy_out(settings, indexed, target, how)
    what = "the objects" if objects_only else "a whole copy"
    facts = {"copy": str(target), "of": place, "num_objects": len(indexed)}
    _print_outcome(f"{target}: {what} of {place}", facts, faults, as_json=as_json)


def restore(
    copy: Annotated[Path, typer.Argument(help="A backup made by `runwatch db backup`.")],
    data_dir: DataDir = None,
    database_url: Url = None,
    objects_only: _ObjectsOnly = False,
    as_json: AsJson = False,
) -> None:
    """Restore a backup into a data directory that has no database yet, and its packed objects into
    the object store. Exits with 1 if some are neither in the backup nor in the store."""
    with reported_errors():
        settings = settings_of(data_dir, database_url)
        _check_engine(settings, objects_only, instead="pg_restore")
        if objects_only:
            place, indexed = with_database(settings, _indexed)
            faults = _put_back(settings, indexed, copy)
        else:
            place = str(settings.data_dir)
            with restored(copy, settings.data_dir) as database:
                indexed = ask_copy(database, indexed_objects)
                faults = _put_back(settings, indexed, copy)
    facts = {"copy": str(copy), "restored_to": place, "num_objects": len(indexed)}
    _print_outcome(f"{place}: holds what {copy} held", facts, faults, as_json=as_json)


def compact(data_dir: DataDir = None, as_json: AsJson = False) -> None:
    """Write the SQLite database of a stopped service anew, without the space that removals have
    freed. A database gives that back by itself, unless it was made before it could: such a one is
    to be compacted once. Needs as much free disk as its data takes."""
    with reported_errors():
        settings = settings_of(data_dir, None)
        if settings.database_url is not None:
            raise BackupError(
                "database_url: found PostgreSQL, wanted SQLite; use VACUUM FULL for it"
            )
        before, after = compact_file(settings.data_dir)
    place = str(settings.data_dir)
    sizes = f"{before / 2**20:.1f} MiB before, {after / 2**20:.1f} MiB now"
    facts = {"place": place, "bytes_before": before, "bytes_after": after}
    print_either(f"{place}: {sizes}.", facts, as_json=as_json)


def _check_engine(settings: Settings, objects_only: bool, *, instead: str) -> None:
    """Raises BackupError if the engine has its own tools for this, or if only all of it at once can
    be backed up."""
    if settings.database_url is not None and not objects_only:
        raise BackupError(
            f"database_url: found PostgreSQL, wanted SQLite; use {instead} for it, and "
            "--objects-only for the packed objects"
        )
    if settings.database_url is None and objects_only:
        raise BackupError("--objects-only: found SQLite, wanted PostgreSQL; a copy holds both")


async def _indexed(database: Database) -> list[IndexedObject]:
    async with database.read() as connection:
        return await connection.run_sync(indexed_objects)


def _copy_out(
    settings: Settings,
    indexed: Sequence[IndexedObject],
    target: Path,
    how: ObjectsInCopy | None,
) -> list[str]:
    """Returns the faults. Raises BackupError, SettingsError and ObjectsAwayError."""
    if not indexed:
        return []
    objects = _store(settings, indexed)
    folder = _folder_beside(target)
    is_near = isinstance(objects, FolderObjects)
    try:
        write_digests(folder, indexed)
    except OSError as error:
        raise BackupError(f"{folder}: found {error}, wanted a folder to write to") from error
    if how is ObjectsInCopy.NAME or (how is None and not is_near):
        return []
    return asyncio.run(copy_objects(objects, FolderObjects(folder), indexed))


def _put_back(settings: Settings, indexed: Sequence[IndexedObject], copy: Path) -> list[str]:
    """As `_copy_out`."""
    if not indexed:
        return []
    source = FolderObjects(_folder_beside(copy))
    return asyncio.run(copy_objects(source, _store(settings, indexed), indexed))


def _store(settings: Settings, indexed: Sequence[IndexedObject]) -> ObjectStore:
    objects = make_objects(settings.objects_url)
    if objects is None:
        raise BackupError(
            f"objects_url: found none, wanted the store of {len(indexed)} packed objects "
            "(RUNWATCH_OBJECTS_URL)"
        )
    return objects


def _folder_beside(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.objects")


def _print_outcome(
    text: str, facts: Mapping[str, object], faults: Sequence[str], *, as_json: bool
) -> None:
    if as_json:
        print_facts({**facts, "faults": faults})
    else:
        print_text(f"{text}.")
        for fault in faults:
            print_text(f"not in it: {fault}")
    if faults:
        raise typer.Exit(1)
