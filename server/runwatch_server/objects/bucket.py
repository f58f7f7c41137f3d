"""Objects in S3-compatible storage, through obstore.

Endpoint, region and credentials come from the usual AWS_* variables, which obstore reads itself.
"""

import asyncio
from collections.abc import Coroutine, Sequence
from datetime import timedelta
from typing import Any, Final, TypeVar

import obstore
from obstore.exceptions import BaseError
from obstore.store import S3Store

from runwatch_server.objects.store import ObjectLostError, ObjectsAwayError

T = TypeVar("T")

_REQUEST_S: Final = 30
"""Seconds for any one request; an object of 16 MiB then needs 5 Mbit/s."""
_IN_ALL_S: Final = 60.0
_BEHIND_THE_END: Final = "status code: 416"
"""How obstore reports that a range was refused, because the object was cut short. The number alone
could be part of a name or a port."""


class BucketObjects:
    """The objects below one prefix of a bucket: `s3://bucket/prefix`."""

    def __init__(self, url: str) -> None:
        """Raises ValueError for an invalid URL."""
        self._url = url
        try:
            self._store = S3Store.from_url(
                url,
                # An endpoint without TLS was configured deliberately, by AWS_ENDPOINT_URL.
                client_options={"timeout": timedelta(seconds=_REQUEST_S), "allow_http": True},
                retry_config={"max_retries": 2, "retry_timeout": timedelta(seconds=_REQUEST_S)},
            )
        except BaseError as error:
            raise ValueError(str(error)) from error

    @property
    def place(self) -> str:
        return self._url

    async def put(self, name: str, content: bytes) -> None:
        await self._ask(obstore.put_async(self._store, name, content), name)

    async def read(self, name: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        starts, ends = zip(*ranges, strict=True)
        asked = obstore.get_ranges_async(self._store, name, starts=starts, ends=ends)
        try:
            return [bytes(part) for part in await self._ask(asked, name)]
        except ObjectsAwayError as error:
            if _BEHIND_THE_END in str(error):
                return [b""] * len(ranges)
            raise

    async def delete(self, name: str) -> None:
        try:
            await self._ask(obstore.delete_async(self._store, name), name)
        except ObjectLostError:
            return

    async def _ask(self, request: Coroutine[Any, Any, T], what: str) -> T:
        try:
            async with asyncio.timeout(_IN_ALL_S):
                return await request
        except FileNotFoundError as error:
            raise ObjectLostError(f"{self.place}: found no {what}") from error
        except (BaseError, OSError, TimeoutError) as error:
            first_line = (str(error).splitlines() or [type(error).__name__])[0]
            raise ObjectsAwayError(f"{self.place}: {what}: {first_line}") from error
