"""What is asked of the network, within which limits, what comes back, and what can go wrong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from nanobot.errors import ToolError

MEGABYTE = 1_000_000


class EgressRefused(ToolError):
    """This will not be asked for: the address is not public, or the URL is not a plain one."""


class EgressError(ToolError):
    """The network or the other side failed: no answer, a broken one, or one beyond the limits."""


@dataclass(frozen=True, slots=True)
class EgressRequest:
    """One question. `headers` and `body` go to the first address and no further: a redirect to
    another one carries neither, and is not followed at all where there is a body."""

    url: str
    method: str = "GET"
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class EgressLimits:
    """`seconds` for everything, redirects included. `bytes` bound the body, both as it is sent and
    decompressed. `types` are the beginnings of the content types that are read at all; none means
    any. Redirects beyond `redirects` are an error."""

    seconds: float = 30.0
    bytes: int = 10 * MEGABYTE
    redirects: int = 5
    types: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class EgressResponse:
    """What came back. `url` is where it came from in the end, `headers` have lower-case names, and
    `body` is decompressed."""

    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def content_type(self) -> str:
        """The MIME type without its parameters, lower-case; empty where none was given."""
        return self.headers.get("content-type", "").partition(";")[0].strip().lower()
