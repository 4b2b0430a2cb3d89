"""Which destinations are asked at all. Pure: a destination is a host, a port and its addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network

from nanobot.security.egress.addresses import IpAddress, is_public
from nanobot.security.egress.urls import as_address, bracketed, parse_host
from nanobot.security.egress.values import EgressRefused

_Network = IPv4Network | IPv6Network

_PORTS = (
    "1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 "
    "113 115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 "
    "548 554 556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 "
    "6566 6665 6666 6667 6668 6669 6679 6697 10080"
)
_CLOSED_PORTS = frozenset(map(int, _PORTS.split()))
"""The ports that browsers refuse (WHATWG Fetch, "bad port"): mail and others that would take a
line of an HTTP request for a command."""

_ONLY_THE_OWNER = "Only the owner can allow this, with tools.web.allow_hosts in the configuration."


@dataclass(frozen=True, slots=True)
class Exceptions:
    """What the owner allows although it is not public: names and networks, each with a port or
    None for any."""

    names: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[tuple[_Network, int | None], ...] = ()

    def name(self, host: str, port: int) -> bool:
        """Whether this name is one of them, whatever its addresses are."""
        return (host, port) in self.names or (host, None) in self.names

    def address(self, address: IpAddress, port: int) -> bool:
        """Whether this address is one of them."""
        return any(
            address in network and only in (None, port)
            for network, only in self.networks
            if network.version == address.version
        )


def parse_exceptions(entries: Iterable[str]) -> Exceptions:
    """Read `host`, `host:port`, an address, `address:port` (`[::1]:80`) or a network. Raises
    `ValueError` with a sentence about the entry that is none of these."""
    names: set[tuple[str, int | None]] = set()
    networks: list[tuple[_Network, int | None]] = []
    for entry in entries:
        host, port = _split(entry.strip())
        try:
            networks.append((ip_network(host), port))
            continue
        except ValueError as error:
            if "/" in host:
                raise ValueError(f"{entry!r} is not a network: {error}") from error
        try:
            names.add((parse_host(host), port))
        except EgressRefused as error:
            raise ValueError(f"{entry!r}: {error}") from error
    return Exceptions(frozenset(names), tuple(networks))


def _split(entry: str) -> tuple[str, int | None]:
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return entry.removeprefix("[").removesuffix("]"), None
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise ValueError(f"{entry!r}: {port!r} is not a port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_domains(entries: Iterable[str]) -> tuple[str, ...]:
    """Read names of domains. Raises `ValueError` with a sentence about the one that is none."""
    names = []
    for entry in entries:
        try:
            name = parse_host(entry.strip())
        except EgressRefused as error:
            raise ValueError(f"{entry!r}: {error}") from error
        if as_address(name):
            raise ValueError(f"{entry!r} is an address; addresses belong into allow_hosts")
        names.append(name)
    return tuple(names)


def refuse_other_domains(
    host: str,
    port: int,
    literal: IpAddress | None,
    domains: Sequence[str],
    exceptions: Exceptions,
) -> None:
    """Raise `EgressRefused` for a host that is not in `domains`, where there are any, and is no
    exception. A domain stands for itself and for all names below it."""
    if not domains or exceptions.name(host, port):
        return
    if literal and exceptions.address(literal, port):
        return
    name = host.removesuffix(".")
    if not any(name == domain or name.endswith(f".{domain}") for domain in domains):
        raise EgressRefused(
            f"{bracketed(host)} is in none of the domains that may be reached",
            hint="Only the owner can allow it, with tools.web.domains in the configuration.",
        )


def admitted(
    host: str,
    port: int,
    addresses: Sequence[IpAddress],
    exceptions: Exceptions,
    is_mine: Callable[[IpAddress], bool],
) -> tuple[IpAddress, ...]:
    """The addresses to connect to. One that is not public closes the whole name: an attacker who
    answers with a good and a bad one would choose which is taken. An address of this machine
    (`is_mine`) is a way round its firewall, however public it is. Raises `EgressRefused`."""
    if exceptions.name(host, port):
        return tuple(addresses)
    judged = [it for it in addresses if not exceptions.address(it, port)]
    if not all(is_public(address) and not is_mine(address) for address in judged):
        # Which address a name has inside somebody's network is nobody's business.
        raise EgressRefused(
            f"{bracketed(host)}:{port} is not on the public Internet", hint=_ONLY_THE_OWNER
        )
    if judged and port in _CLOSED_PORTS:
        raise EgressRefused(f"port {port} of {host} is not asked", hint=_ONLY_THE_OWNER)
    return tuple(addresses)
