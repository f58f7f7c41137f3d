"""Opens the configured object store: a folder, a bucket, or none."""

import importlib
import re
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from runwatch.addresses import place_of
from runwatch.extras import pip_install
from runwatch_server.errors import SettingsError
from runwatch_server.objects.folder import FolderObjects
from runwatch_server.objects.store import ObjectStore

_FOLDER: Final = re.compile(r"file://(?P<path>/[^?#]*)")
_S3: Final = re.compile(r"s3://[^/?#@\s]+(/[^?#@]*)?")


def make_objects(url: str | None) -> ObjectStore | None:
    """None without a URL: then everything stays in the database, and a backup of it is complete.

    Raises SettingsError for a URL that cannot be used.
    """
    if url is None:
        return None
    if (folder := _FOLDER.fullmatch(url)) is not None:
        return FolderObjects(Path(unquote(folder["path"])))
    if _S3.fullmatch(url) is None:
        raise SettingsError(
            f"objects_url: found {place_of(url)}, wanted s3://bucket/prefix without credentials, "
            "which are in AWS_* variables, or file:///a/folder"
        )
    try:  # imported by name, since obstore may not be installed
        module = importlib.import_module("runwatch_server.objects.bucket")
    except ModuleNotFoundError as error:
        raise SettingsError(
            "objects_url: found a bucket, but no obstore to reach it with; "
            f"install it with: {pip_install('objects')}"
        ) from error
    try:
        store: ObjectStore = module.BucketObjects(url)
    except ValueError as error:
        raise SettingsError(f"objects_url: found {place_of(url)} ({error})") from error
    return store
