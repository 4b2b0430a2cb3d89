"""Public addresses, plain URLs, and egress errors. Pure.

Invariant: an address is public only if it is globally reachable unicast, and so is every address
that it embeds. IPv6 has many ways to embed an IPv4 address, and some gateway or kernel honours each
of them: mapped (`::ffff:a.b.c.d`), compatible (`::a.b.c.d`), translated (`::ffff:0:a.b.c.d`), NAT64
(`64:ff9b::/96` and `64:ff9b:1::/48`), 6to4 (`2002::/16`), Teredo (`2001::/32`) and ISATAP
(`…:0:5efe:a.b.c.d`). `ipaddress.is_global` handles few of these.

A URL is http or https, a plain host, a port and a path. An ambiguous URL is rejected and never
repaired, so the checked host is the requested host. There are no user names, no percent signs or
backslashes in the host, no numbers that only old C libraries read as addresses (`127.1`,
`0x7f.0.0.1`, `2130706433`), and no letters that a browser would fold into others."""

from __future__ import annotations

import re
from ipaddress import AddressValueError, IPv4Address, IPv4Network, IPv6Address, IPv6Network
from urllib.parse import quote, urljoin

from msgspec import Struct

from nanobot.errors import ToolError
from nanobot.text import printable


class EgressRefused(ToolError):
    """The address is not public, or the URL is not plain. No request is sent."""


class EgressError(ToolError):
    """The network or the server failed: no answer, a broken one, or one beyond the limits."""


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
"""The allocated global unicast space. Other addresses have another or a future meaning."""

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
    """Check whether `address` may be requested without the owner's exception."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    if address.scope_id is not None:
        return False
    if address in _NAT64:
        # The well-known prefix is how a host without IPv4 reaches public IPv4.
        return is_public(embedded_address_of(address))
    if address not in _OPEN_6 or any(address in network for network in _CLOSED_6):
        return False
    is_isatap = (int(address) >> 32) & 0xFCFF_FFFF == 0x0000_5EFE
    return not is_isatap or is_public(embedded_address_of(address))


def embedded_address_of(address: IPv6Address) -> IPv4Address:
    return IPv4Address(int(address) & 0xFFFF_FFFF)


MAX_URL = 4_000
_PORTS = {"http": 80, "https": 443}
_URL = r"(?is)(https?)://([^/?#]*)([^#]*)(?:#.*)?"
_AUTHORITY = r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?"
_UNUSABLE = r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ud800-\udfff]"
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = r"[0-9]+|0x[0-9a-f]*"
_KEPT = "%/:?[]@!$&'()*+,;=~-._"
"""Characters allowed in a path or query. All others are percent-encoded."""


class Url(Struct, frozen=True):
    """A checked URL. `host` is a lower-case ASCII name or an address (IPv6 without brackets),
    `target` is path and query. A fragment is never sent."""

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"

    @property
    def origin(self) -> str:
        """Scheme, host, and the port if it is not the scheme's default."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{bracket(self.host)}{port}"

    @property
    def place(self) -> str:
        """Host and port, as an entry of the owner's exceptions."""
        return f"{bracket(self.host)}:{self.port}"

    def join(self, reference: str) -> Url:
        """Return the target of a link or redirect on this page. Raise `EgressRefused`."""
        try:
            return parse_url(urljoin(str(self), reference))
        except ValueError as error:
            raise _not_plain(reference) from error


def parse_url(text: str) -> Url:
    """Parse a URL. Raise `EgressRefused` if it is not plain."""
    text = text.strip()
    match = re.fullmatch(_URL, text)
    if match is None:
        raise EgressRefused(
            f"{printable(text)} is not a valid URL",
            hint="Write the full URL, with http:// or https://.",
        )
    if len(text) > MAX_URL or re.search(_UNUSABLE, text):
        raise _not_plain(text)
    scheme = match[1].lower()
    if "@" in match[2]:
        raise EgressRefused(f"{printable(text)}: URLs with a user name are not allowed")
    authority = re.fullmatch(_AUTHORITY, match[2])
    if authority is None:
        raise _not_plain(text)
    port = int(authority[2]) if authority[2] else _PORTS[scheme]
    if not 1 <= port <= 65_535:
        raise EgressRefused(f"{printable(text)}: {port} is not a port")
    target = quote(match[3], safe=_KEPT)
    return Url(
        scheme, parse_host(authority[1]), port, target if target[:1] == "/" else f"/{target}"
    )


def parse_host(text: str) -> str:
    """Parse a host: a name, an IPv4 address, or an IPv6 address with or without brackets. Return it
    in lower case without brackets. Raise `EgressRefused`."""
    if bracketed := re.fullmatch(r"\[(.*:.*)\]", text):
        text = bracketed[1]
    try:
        if ":" in text:
            address = IPv6Address(text)
            if address.scope_id is not None:
                raise _no_host(text)
            return str(address)
        name = text.lower()
        if not text.isascii():
            import idna

            # IDNA 2008 folds nothing: `１２７.０.０.１` and `ⓔxample.com` are invalid, but older
            # rules turn them into plain names.
            name = idna.encode(text, strict=True, std3_rules=True).decode()
        labels = name.split(".")
        if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
            raise _no_host(text)
        return str(IPv4Address(name)) if re.fullmatch(_NUMBER, labels[-1]) else name
    except ValueError as error:
        raise _no_host(text) from error


def as_address(host: str) -> IpAddress | None:
    """Return the address of a checked host, or None for a name."""
    if ":" in host:
        return IPv6Address(host)
    try:
        return IPv4Address(host)
    except AddressValueError:
        return None


def bracket(host: str) -> str:
    """Return a checked host as it is written before a port."""
    return f"[{host}]" if ":" in host else host


def _no_host(text: str) -> EgressRefused:
    return EgressRefused(
        f"{printable(text)} is not a plain host name or address",
        hint="Write a DNS name without a dot at the end, or a full address.",
    )


def _not_plain(text: str) -> EgressRefused:
    return EgressRefused(f"{printable(text)} is not a plain URL")
