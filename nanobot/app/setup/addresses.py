"""The addresses at which a model server can be. Others in the network must not read a key, and
addresses of the link itself, such as a cloud's metadata service, have no models."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from socket import SOCK_STREAM

from nanobot.providers.dialect import host_of, is_near

_LOOKUP_SECONDS = 5.0


async def find_fault(url: str) -> str:
    """Return the reason why a model server can't be at this URL, or an empty text. A name is looked
    up, because its address decides."""
    found = await _look_up(host_of(url))
    is_public = not is_near(url) or any(one.is_global for one in found)
    if is_public and url.startswith("http:"):
        return (
            "An http:// address on the internet would expose your key and your messages.\n"
            "Use https://. Only servers in your own network can use http://."
        )
    unusable = [one.version for one in found if not _is_usable(one)]
    # The names of machines in a network can have an IPv6 address of the link too.
    if unusable and (4 in unusable or len(unusable) == len(found)):
        return "The URL must be the address of a model server."
    return ""


async def _look_up(host: str) -> Sequence[IPv4Address | IPv6Address]:
    """Return the addresses of a host, or none if it has none, or only a proxy knows it."""
    try:
        async with asyncio.timeout(_LOOKUP_SECONDS):
            answers = await asyncio.get_running_loop().getaddrinfo(host, None, type=SOCK_STREAM)
    except (OSError, UnicodeError):
        return ()
    found = (ip_address(str(place[0]).partition("%")[0]) for *_, place in answers)
    return [getattr(one, "ipv4_mapped", None) or one for one in found]


def _is_usable(address: IPv4Address | IPv6Address) -> bool:
    return not (address.is_link_local or address.is_multicast or address.is_unspecified)
