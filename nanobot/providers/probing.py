"""Whether a model server answers, without asking a model anything."""

from __future__ import annotations

import asyncio

from nanobot.clock import Clock
from nanobot.errors import ProviderRejected
from nanobot.providers.failures import Endpoint
from nanobot.providers.fields import items, mapping, parse_json, string
from nanobot.providers.opening import open_connection

_LIST_LIMIT = 4_000_000
_NO_LIST = frozenset({404, 405})


async def served_models(
    base_url: str, api_key: str, clock: Clock, *, seconds: float
) -> tuple[str, ...]:
    """The names of the models that a server offers; none where it keeps no list. `seconds` bound
    the connection and each silence. Raises `ProviderError`."""
    endpoint = Endpoint(base_url, "", clock, api_key.strip())
    connection = await asyncio.to_thread(open_connection, endpoint, connect=seconds, stall=seconds)
    try:
        listed = await connection.get("/models", _LIST_LIMIT)
    except ProviderRejected as error:
        if error.status not in _NO_LIST:
            raise
        return ()
    finally:
        await connection.close()
    return _names(listed)


def _names(listed: bytes) -> tuple[str, ...]:
    try:
        listing = mapping(parse_json(listed))
    except ValueError:
        return ()
    names = (string(mapping(item).get("id")) for item in items(listing.get("data")))
    return tuple(filter(None, names))
