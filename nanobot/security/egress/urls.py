"""What a URL is here: http or https, a plain host, a port, a path. Pure.

What always holds: whatever two programs could read in two ways is refused and never mended, so the
host that is checked is the host that is asked. That means no user names, no percent signs or
backslashes in the host, no numbers that only old C libraries take for addresses (`127.1`,
`0x7f.0.0.1`, `2130706433`), no letters that a browser would fold into others.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

from nanobot.security.egress.addresses import IpAddress
from nanobot.security.egress.values import EgressRefused
from nanobot.security.names import printable

MAX_URL = 4_000
_PORTS = {"http": 80, "https": 443}
_URL = re.compile(r"(https?)://([^/?#]*)([^#]*)(?:#.*)?", re.IGNORECASE | re.DOTALL)
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")
_UNUSABLE = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ud800-\udfff]")
_LABEL = re.compile(r"(?!-)[a-z0-9_-]{1,63}(?<!-)")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_KEPT = "%/:?[]@!$&'()*+,;=~-._"
"""What may stand in a path or query as it is; everything else is percent-encoded."""


@dataclass(frozen=True, slots=True)
class Url:
    """A URL that was checked. `host` is a lower-case ASCII name or an address (IPv6 without its
    brackets), `target` path and query. There is no fragment: it is never sent."""

    scheme: str
    host: str
    port: int
    target: str

    def __str__(self) -> str:
        return f"{self.origin}{self.target}"

    @property
    def origin(self) -> str:
        """Scheme, host, and the port where it is not the scheme's own."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{bracketed(self.host)}{port}"

    @property
    def place(self) -> str:
        """Host and port, as an entry of the owner's exceptions."""
        return f"{bracketed(self.host)}:{self.port}"

    def join(self, reference: str) -> Url:
        """Where a link or a redirect leads that stands on this page. Raises `EgressRefused`."""
        try:
            return parse_url(urljoin(str(self), reference))
        except ValueError as error:
            raise _not_plain(reference) from error


def parse_url(text: str) -> Url:
    """Check a URL. Raises `EgressRefused`."""
    text = text.strip()
    match = _URL.fullmatch(text)
    if match is None:
        raise EgressRefused(
            f"{printable(text)} is not a URL that can be fetched",
            hint="Give it whole, with http:// or https://.",
        )
    if len(text) > MAX_URL or _UNUSABLE.search(text):
        raise _not_plain(text)
    scheme = match[1].lower()
    if "@" in match[2]:
        raise EgressRefused(f"{printable(text)}: a URL with a user name is not fetched")
    authority = _AUTHORITY.fullmatch(match[2])
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
    """Check a host: a name, an IPv4 address or an IPv6 one with or without brackets. Returns it in
    lower case without brackets. Raises `EgressRefused`."""
    if text[:1] == "[" and text[-1:] == "]":
        text = text[1:-1]
        if ":" not in text:
            raise _no_host(text)
    if ":" in text:
        return _ipv6(text)
    name = text.lower() if text.isascii() else _ascii_name(text)
    labels = name.split(".")
    if len(name) > 253 or not all(map(_LABEL.fullmatch, labels)):
        raise _no_host(text)
    if _NUMBER.fullmatch(labels[-1]):
        return _ipv4(name)
    return name


def as_address(host: str) -> IpAddress | None:
    """The address that a checked host is; None for a name."""
    if ":" in host:
        return IPv6Address(host)
    try:
        return IPv4Address(host)
    except AddressValueError:
        return None


def bracketed(host: str) -> str:
    """A checked host as it stands before a port."""
    return f"[{host}]" if ":" in host else host


def _ipv4(text: str) -> str:
    try:
        return str(IPv4Address(text))
    except AddressValueError as error:
        raise _no_host(text) from error


def _ipv6(text: str) -> str:
    try:
        address = IPv6Address(text)
    except AddressValueError as error:
        raise _no_host(text) from error
    if address.scope_id is not None:
        raise _no_host(text)
    return str(address)


def _ascii_name(text: str) -> str:
    """A name in other letters as DNS has it. IDNA 2008 folds nothing: `１２７.０.０.１` and
    `ⓔxample.com` are no names, where the older rules make plain ones of them."""
    import idna

    try:
        return idna.encode(text, strict=True, std3_rules=True).decode()
    except idna.IDNAError as error:
        raise _no_host(text) from error


def _no_host(text: str) -> EgressRefused:
    return EgressRefused(
        f"{printable(text)} is not a plain host name or address",
        hint="Write a name as it stands in DNS (no dot at the end), or an address in full.",
    )


def _not_plain(text: str) -> EgressRefused:
    return EgressRefused(f"{printable(text)} is not a plain URL")
