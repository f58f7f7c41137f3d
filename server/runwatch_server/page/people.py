"""Finds out who an actor in the records is: a key, by the name that it was given."""

from collections.abc import Mapping

from runwatch_server.services import Services


async def names_of_keys(services: Services) -> Mapping[str, str]:
    """Names by actor, as in `key:a2bc3def`."""
    return {f"key:{key.id}": key.name for key in await services.keys.list_keys()}
