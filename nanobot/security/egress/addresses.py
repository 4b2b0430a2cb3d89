"""Which addresses are the public Internet. Pure.

What always holds: an address is public only if it is globally reachable unicast and everything
that it embeds is as well. IPv6 has many ways to write an IPv4 address, and some gateway or kernel
honours each of them: mapped (`::ffff:a.b.c.d`), compatible (`::a.b.c.d`), translated
(`::ffff:0:a.b.c.d`), NAT64 (`64:ff9b::/96` and `64:ff9b:1::/48`), 6to4 (`2002::/16`), Teredo
(`2001::/32`) and ISATAP (`…:0:5efe:a.b.c.d`). `ipaddress.is_global` sees through few of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

IpAddress = IPv4Address | IPv6Address

_CLOSED_4 = tuple(
    map(
        IPv4Network,
        (
            "0.0.0.0/8",  # this network; Linux takes 0.0.0.0 for loopback
            "10.0.0.0/8",
            "100.64.0.0/10",  # carrier-grade NAT, and metadata of some clouds
            "127.0.0.0/8",
            "168.63.129.16/32",  # a cloud's host services, on an address that looks public
            "169.254.0.0/16",  # link-local and metadata
            "172.16.0.0/12",
            "192.0.0.0/24",  # protocol assignments, and metadata of some clouds
            "192.0.2.0/24",
            "192.31.196.0/24",  # AS112
            "192.52.193.0/24",  # AMT
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "192.175.48.0/24",  # AS112
            "198.18.0.0/15",  # benchmarks
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved, and broadcast
        ),
    )
)

_OPEN_6 = IPv6Network("2000::/3")
"""All that has been given out as global unicast. What lies outside is something else, or will be
something that nobody here has thought about."""

_CLOSED_6 = tuple(
    map(
        IPv6Network,
        (
            "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
            "2001:db8::/32",  # documentation
            "2002::/16",  # 6to4
            "2620:4f:8000::/48",  # AS112
            "3ffe::/16",  # the old 6bone
            "3fff::/20",  # documentation
        ),
    )
)

_NAT64 = IPv6Network("64:ff9b::/96")


def is_public(address: IpAddress) -> bool:
    """Whether `address` may be asked for things without the owner's exception."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        # The well-known prefix is how a host without IPv4 reaches public IPv4.
        return is_public(_embedded(address, 0))
    if address not in _OPEN_6 or any(address in network for network in _CLOSED_6):
        return False
    return all(map(is_public, _hidden(address)))


def _hidden(address: IPv6Address) -> Iterator[IPv4Address]:
    """The IPv4 address that a global unicast address may lead to: ISATAP's interface ids."""
    if (int(address) >> 32) & 0xFCFF_FFFF == 0x0000_5EFE:
        yield _embedded(address, 0)


def _embedded(address: IPv6Address, shift: int) -> IPv4Address:
    return IPv4Address((int(address) >> shift) & 0xFFFF_FFFF)
