"""Checks destinations and connects to them.

Invariant: a name is resolved once, all its addresses are checked, and the connection goes to one of
these addresses. The name is not resolved again."""

from __future__ import annotations

import asyncio
import base64
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from nanobot.security.egress.urls import (
    EgressError,
    EgressRefused,
    IpAddress,
    as_address,
    bracket,
    is_public,
    parse_host,
)

_Network = IPv4Network | IPv6Network

_PORTS = (
    "1 7 9 11 13 15 17 19 20 21 22 23 25 37 42 43 53 69 77 79 87 95 101 102 103 104 109 110 111 "
    "113 115 117 119 123 135 137 139 143 161 179 389 427 465 512 513 514 515 526 530 531 532 540 "
    "548 554 556 563 587 601 636 989 990 993 995 1719 1720 1723 2049 3659 4045 4190 5060 5061 6000 "
    "6566 6665 6666 6667 6668 6669 6679 6697 10080"
)
_CLOSED_PORTS = frozenset(map(int, _PORTS.split()))
"""Ports that browsers reject (WHATWG Fetch, "bad port"): mail and others that would take a line of
an HTTP request for a command."""

_ONLY_THE_OWNER = "Only the owner can allow this, with tools.web.allow_hosts in the configuration."


class Exceptions(Struct, frozen=True):
    """Non-public destinations that the owner allows: names and networks, each with a port or None
    for any."""

    names: frozenset[tuple[str, int | None]] = frozenset()
    networks: tuple[tuple[_Network, int | None], ...] = ()

    def allows_name(self, host: str, port: int) -> bool:
        """Check whether this name is an exception, with any addresses."""
        return (host, port) in self.names or (host, None) in self.names

    def allows_address(self, address: IpAddress, port: int) -> bool:
        return any(
            address in network and only in (None, port)
            for network, only in self.networks
            if network.version == address.version
        )


def parse_exceptions(entries: Iterable[str]) -> Exceptions:
    """Parse `host`, `host:port`, an address, `address:port` (`[::1]:80`) or a network. Raise
    `ValueError` with a sentence about an invalid entry."""
    names: set[tuple[str, int | None]] = set()
    networks: list[tuple[_Network, int | None]] = []
    for entry in map(str.strip, entries):
        host, port = split_port(entry)
        try:
            networks.append((ip_network(host, strict=False), port))
        except ValueError as error:
            if "/" in host:
                raise ValueError(f"{entry!r} is not a network: {error}") from error
            names.add((parse_name(entry, host), port))
    return Exceptions(frozenset(names), tuple(networks))


def split_port(entry: str) -> tuple[str, int | None]:
    host, colon, port = entry.rpartition(":")
    if not colon or (":" in host and not host.endswith("]")):
        return entry.removeprefix("[").removesuffix("]"), None
    if not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65_535):
        raise ValueError(f"{entry!r}: {port!r} is not a port")
    return host.removeprefix("[").removesuffix("]"), int(port)


def parse_name(entry: str, host: str) -> str:
    try:
        return parse_host(host)
    except EgressRefused as error:
        raise ValueError(f"{entry!r}: {error}") from error


def parse_domains(entries: Iterable[str]) -> tuple[str, ...]:
    """Parse domain names. Raise `ValueError` with a sentence about an invalid one."""
    names = [parse_name(entry, entry.strip()) for entry in entries]
    for name in names:
        if as_address(name):
            raise ValueError(f"{name!r} is an address. Put addresses into allow_hosts")
    return tuple(names)


def check_addresses(
    host: str,
    port: int,
    addresses: Sequence[IpAddress],
    exceptions: Exceptions,
    is_own_address: Callable[[IpAddress], bool],
) -> tuple[IpAddress, ...]:
    """Return the addresses to connect to. Raise `EgressRefused`.

    One non-public address blocks the whole name, because an attacker who answers with a good and a
    bad one could choose which is used. An address of this machine (`is_own_address`) is a way
    around its firewall, even if it is public."""
    judged = [it for it in addresses if not exceptions.allows_address(it, port)]
    if exceptions.allows_name(host, port):
        judged = []
    if not all(is_public(address) and not is_own_address(address) for address in judged):
        # Do not reveal the addresses of names in a private network.
        raise EgressRefused(
            f"{bracket(host)}:{port} is not on the public Internet", hint=_ONLY_THE_OWNER
        )
    if judged and port in _CLOSED_PORTS:
        raise EgressRefused(f"port {port} of {host} is not allowed", hint=_ONLY_THE_OWNER)
    return tuple(addresses)


Resolve = Callable[[str], Awaitable[Sequence[IpAddress]]]
"""Returns the addresses of a name. Raises `OSError` if it has none."""

_MOST_ADDRESSES = 6
_SECONDS_EACH = 6.0
_MAX_PROXY_ANSWER = 8_192

NO_PROXY = "the proxy (tools.web.proxy) cannot be reached"


async def resolve_by_system(host: str) -> Sequence[IpAddress]:
    """Resolve a name as this machine does."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ip_address(answer[4][0]) for answer in found))


class Proxy(Struct, frozen=True):
    """The owner's HTTP proxy. `credentials` is the value of its header, or empty."""

    host: str
    port: int
    credentials: str = ""

    def build_request(self, address: str, port: int) -> bytes:
        """Return the request for a tunnel to an address."""
        target = f"{bracket(address)}:{port}"
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if self.credentials:
            lines.append(f"Proxy-Authorization: {self.credentials}")
        return "\r\n".join([*lines, "", ""]).encode()


def parse_proxy(text: str) -> Proxy | None:
    """Parse `http://[user:password@]host:port`, or return None for an empty text. Raise
    `ValueError`."""
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("a proxy must be http://host:port or http://user:password@host:port")
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return Proxy(parts.hostname, parts.port or 3128, credentials)


async def read_proxy_answer(read: Callable[[int], Awaitable[bytes]]) -> None:
    """Read the proxy's answer and nothing after it, which belongs to the tunnel. Raise
    `EgressError` if the proxy rejects the request."""
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        byte = await read(1)
        answer += byte
        if not byte or len(answer) > _MAX_PROXY_ANSWER:
            raise EgressError("the proxy (tools.web.proxy) sent an invalid response")
    status = answer.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] != b"200":
        shown = b" ".join(status[1:])[:80].decode("ascii", "replace")
        raise EgressError(f"the proxy (tools.web.proxy) refused the connection: {shown}")


T = TypeVar("T")


class Dialler:
    """Checks, resolves and connects. With `domains`, other names are not even resolved."""

    def __init__(
        self,
        exceptions: Exceptions,
        proxy: Proxy | None,
        resolve: Resolve,
        domains: Sequence[str] = (),
    ) -> None:
        self._exceptions, self._resolve, self._domains = exceptions, resolve, domains
        self.proxy = proxy

    def with_exceptions(self, hosts: Iterable[str]) -> Dialler:
        """Return a dialler with more exceptions. Raise `ValueError`."""
        own, more = self._exceptions, parse_exceptions(hosts)
        both = Exceptions(own.names | more.names, own.networks + more.networks)
        return Dialler(both, self.proxy, self._resolve, self._domains)

    async def dial(self, host: str, port: int, connect: Callable[[str], Awaitable[T]]) -> T:
        """Return the result of `connect` for the first address that answers, through the `proxy` if
        there is one. Raise `EgressRefused` and `EgressError`."""
        host = parse_host(host)
        if not 1 <= port <= 65_535:
            raise EgressRefused(f"{port} is not a port")
        literal = as_address(host)
        self._refuse_other_domains(host, port, literal)
        try:
            addresses = (literal,) if literal else await self._resolve(host)
        except (OSError, UnicodeError) as error:
            problem = f"the host {host} does not exist, or its name can't be resolved"
            raise EgressError(problem) from error
        addresses = check_addresses(host, port, addresses, self._exceptions, is_own_address)
        problem = "it has no address"
        for address in addresses[:_MOST_ADDRESSES]:
            try:
                async with asyncio.timeout(_SECONDS_EACH):
                    return await connect(str(address))
            except TimeoutError:
                problem = "no response"
            except OSError as error:
                problem = error.strerror or "it failed"
        raise EgressError(f"could not connect to {bracket(host)}:{port}: {problem}")

    def _refuse_other_domains(self, host: str, port: int, literal: IpAddress | None) -> None:
        """Raise `EgressRefused` outside the allowed domains and their subdomains."""
        exceptions = self._exceptions
        if exceptions.allows_name(host, port) or (
            literal and exceptions.allows_address(literal, port)
        ):
            return
        name = f".{host.removesuffix('.')}"
        if self._domains and not any(name.endswith(f".{domain}") for domain in self._domains):
            raise EgressRefused(
                f"{bracket(host)} is not in an allowed domain",
                hint="Only the owner can allow it, with tools.web.domains in the configuration.",
            )

    async def open(self, host: str, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection without TLS. Raises like `dial`. The caller closes the writer."""

        async def connect(address: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            if self.proxy is None:
                return await asyncio.open_connection(address, port)
            try:
                streams = await asyncio.open_connection(self.proxy.host, self.proxy.port)
            except OSError as error:
                raise EgressError(NO_PROXY) from error
            reader, writer = streams
            try:
                writer.write(self.proxy.build_request(address, port))
                await read_proxy_answer(reader.read)
            except BaseException:
                writer.close()
                raise
            return streams

        return await self.dial(host, port, connect)


def is_own_address(address: IpAddress) -> bool:
    """Check whether a packet to `address` would have it as its source. Sends nothing."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False  # no route to it
