"""Connections to destinations that were checked.

What always holds: a name is resolved once, all its addresses are judged, and the socket goes to one
of these very addresses; nothing below asks for the name again.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import socket
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

from nanobot.security.egress.addresses import IpAddress
from nanobot.security.egress.rules import Exceptions, admitted, refuse_other_domains
from nanobot.security.egress.urls import as_address, bracketed, parse_host
from nanobot.security.egress.values import EgressError, EgressRefused

Resolve = Callable[[str], Awaitable[Sequence[IpAddress]]]
"""The addresses of a name. Raises `OSError` where it has none."""

_MOST_ADDRESSES = 6
_SECONDS_EACH = 6.0
_MAX_PROXY_ANSWER = 8_192


async def ask_the_system(host: str) -> Sequence[IpAddress]:
    """The addresses of a name as this machine sees them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(ip_address(answer[4][0]) for answer in found))


@dataclass(frozen=True, slots=True)
class ProxyAddress:
    """An HTTP proxy of the owner's; `credentials` is the value of its header, or empty."""

    host: str
    port: int
    credentials: str = ""


def parse_proxy(text: str) -> ProxyAddress | None:
    """Read `http://[user:password@]host:port`; None for an empty text. Raises `ValueError`."""
    if not text:
        return None
    parts = urlsplit(text)
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError("a proxy is written as http://host:port or http://user:password@host:port")
    credentials = ""
    if parts.username is not None:
        pair = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        credentials = f"Basic {base64.b64encode(pair.encode()).decode()}"
    return ProxyAddress(parts.hostname, parts.port or 3128, credentials)


class Dialler:
    """Judges, resolves, connects. Where there are `domains`, other names are not even resolved."""

    def __init__(
        self,
        exceptions: Exceptions,
        proxy: ProxyAddress | None,
        resolve: Resolve,
        domains: Sequence[str] = (),
    ) -> None:
        self._exceptions, self._proxy, self._resolve = exceptions, proxy, resolve
        self._domains = domains

    async def dial(self, host: str, port: int) -> socket.socket:
        """A connected socket. Raises `EgressRefused` and `EgressError`."""
        host = parse_host(host)
        if not 1 <= port <= 65_535:
            raise EgressRefused(f"{port} is not a port")
        literal = as_address(host)
        refuse_other_domains(host, port, literal, self._domains, self._exceptions)
        addresses = (literal,) if literal else await self._resolved(host)
        addresses = admitted(host, port, addresses, self._exceptions, is_mine)
        problem = "it has no address"
        for address in addresses[:_MOST_ADDRESSES]:
            try:
                async with asyncio.timeout(_SECONDS_EACH):
                    return await self._connected(address, port)
            except TimeoutError:
                problem = "no answer"
            except OSError as error:
                problem = error.strerror or "it failed"
        raise EgressError(f"could not connect to {bracketed(host)}:{port}: {problem}")

    async def _resolved(self, host: str) -> Sequence[IpAddress]:
        try:
            return await self._resolve(host)
        except (OSError, UnicodeError) as error:
            raise EgressError(
                f"there is no host {host}, or its name could not be looked up"
            ) from error

    async def _connected(self, address: IpAddress, port: int) -> socket.socket:
        if self._proxy is None:
            return await _open(str(address), port)
        proxy = self._proxy
        try:
            connection = await _open_named(proxy.host, proxy.port)
        except OSError as error:
            raise EgressError("the proxy (tools.web.proxy) cannot be reached") from error
        try:
            await _tunnel(connection, f"{bracketed(str(address))}:{port}", proxy.credentials)
        except BaseException:
            connection.close()
            raise
        return connection


async def _open(address: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    connection = socket.socket(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, (address, port))
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except BaseException:
        connection.close()
        raise
    return connection


async def _open_named(host: str, port: int) -> socket.socket:
    """A connection to the proxy, which the owner has named and which may be anywhere."""
    for address in await ask_the_system(host):
        with contextlib.suppress(OSError):
            return await _open(str(address), port)
    raise OSError("no address answers")


async def _tunnel(connection: socket.socket, target: str, credentials: str) -> None:
    loop = asyncio.get_running_loop()
    lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
    if credentials:
        lines.append(f"Proxy-Authorization: {credentials}")
    await loop.sock_sendall(connection, "\r\n".join([*lines, "", ""]).encode())
    answer = b""
    while not answer.endswith(b"\r\n\r\n"):
        # One at a time: what follows the answer belongs to the tunnel.
        byte = await loop.sock_recv(connection, 1)
        answer += byte
        if not byte or len(answer) > _MAX_PROXY_ANSWER:
            raise EgressError("the proxy (tools.web.proxy) gave no proper answer")
    status = answer.split(b"\r\n", 1)[0].split(b" ")
    if len(status) < 2 or status[1] != b"200":
        shown = b" ".join(status[1:])[:80].decode("ascii", "replace")
        raise EgressError(f"the proxy (tools.web.proxy) refused the connection: {shown}")


def is_mine(address: IpAddress) -> bool:
    """Whether a packet to `address` would leave from it. Sends nothing."""
    family = socket.AF_INET6 if address.version == 6 else socket.AF_INET
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((str(address), 9))
            return ip_address(probe.getsockname()[0]) == address
    except OSError:
        return False  # there is no way to it at all
