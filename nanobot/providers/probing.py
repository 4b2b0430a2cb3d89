"""Whether a model server answers, without asking a model anything."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from nanobot.clock import Clock
from nanobot.errors import ProviderRejected
from nanobot.providers.failures import Endpoint
from nanobot.providers.fields import items, mapping, parse_json, string
from nanobot.providers.opening import open_connection

_LIST_LIMIT = 4_000_000
_NO_LIST = frozenset({404, 405})


@dataclass(frozen=True, slots=True)
class Served:
    """The names of the models that a server offers, none where it keeps no list; and the time that
    it says it is, where it does."""

    names: tuple[str, ...] = ()
    told: datetime | None = None


async def served_models(
    base_url: str, api_key: str, clock: Clock, *, seconds: float
) -> tuple[str, ...]:
    """The names of the models that a server offers; see `probe`."""
    return (await probe(base_url, api_key, clock, seconds=seconds)).names


async def probe(base_url: str, api_key: str, clock: Clock, *, seconds: float) -> Served:
    """What a server says of itself. `seconds` bound the connection and each silence. Raises
    `ProviderError`."""
    endpoint = Endpoint(base_url, "", clock, api_key.strip())
    connection = await asyncio.to_thread(open_connection, endpoint, connect=seconds, stall=seconds)
    try:
        listed, date = await connection.get_dated("/models", _LIST_LIMIT)
    except ProviderRejected as error:
        if error.status not in _NO_LIST:
            raise
        return Served()
    finally:
        await connection.close()
    return Served(_names(listed), _time(date))


def _time(date: str) -> datetime | None:
    """What a `Date` header says."""
    try:
        told = parsedate_to_datetime(date)
    except ValueError:
        return None
    return told if told.tzinfo else told.replace(tzinfo=UTC)


def _names(listed: bytes) -> tuple[str, ...]:
    try:
        listing = mapping(parse_json(listed))
    except ValueError:
        return ()
    names = (string(mapping(item).get("id")) for item in items(listing.get("data")))
    return tuple(filter(None, names))
