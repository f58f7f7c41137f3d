"""Stores large immutable objects: in a folder, or in a bucket of S3-compatible storage."""

from runwatch_server.objects.opening import make_objects
from runwatch_server.objects.store import (
    ObjectLostError,
    ObjectsAwayError,
    ObjectStore,
)

__all__ = ["ObjectLostError", "ObjectStore", "ObjectsAwayError", "make_objects"]
