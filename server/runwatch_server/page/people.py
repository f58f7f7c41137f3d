"""Who is behind an actor of the records: a key by the name that was given to it."""

from collections.abc import Mapping

from runwatch_server.services import Services


async def names_of_keys(services: Services) -> Mapping[str, str]:
    """By actor, as in `key:a2bc3def`."""
    return {f"key:{key.id}": key.name for key in await services.keys.list_keys()}
