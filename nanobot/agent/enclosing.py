"""Files that the `message` tool sends along: read whole, as they are now, within a limit.

What the owner was shown is what goes out: `Shown` remembers the files of a question by their
content, and a call whose files have changed since is refused.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

from nanobot.errors import ToolError
from nanobot.security.names import printable
from nanobot.security.paths import Place
from nanobot.tools.reading import missing

_DIGITS_SHOWN = 12
_MOST_REMEMBERED = 64


@dataclass(frozen=True, slots=True)
class Enclosure:
    """A file as it was when it was read. `shown` is its path, `name` what it is sent as."""

    shown: str
    name: str
    content: bytes

    @property
    def digest(self) -> str:
        """The SHA-256 of the content, in hexadecimal."""
        return hashlib.sha256(self.content).hexdigest()

    @property
    def told(self) -> str:
        """The file in a line, for somebody who must judge it."""
        digest = self.digest[:_DIGITS_SHOWN]
        return f"file: {self.shown} ({len(self.content):,} bytes, sha256 {digest})"


def enclosure(place: Place, most: int, channel: str) -> Enclosure:
    """Read a file of at most `most` bytes, which is what `channel` takes. Blocks; raises
    `ToolError`."""
    found = place.stat()
    if found is None:
        raise missing(place)
    if found.kind == "folder":
        raise ToolError(f"{place.shown} is a folder; only files can be sent")
    if found.kind == "file" and found.size > most:
        raise ToolError(f"{place.shown} has {found.size:,} bytes; {channel} takes at most {most:,}")
    content = place.read_bytes(most)
    if content is None:
        raise missing(place)
    if not content:
        raise ToolError(f"{place.shown} is empty; an empty file cannot be sent")
    return Enclosure(place.shown, printable(place.names[-1]), content)


@dataclass(frozen=True, slots=True)
class Shown:
    """The files of the questions asked last, by the turn and the arguments of the call."""

    _digests: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)

    def remember(self, turn_id: str, call: str, digests: Sequence[str]) -> None:
        """Files with these digests were shown for a call."""
        self._digests.pop((turn_id, call), None)
        self._digests[turn_id, call] = tuple(digests)
        if len(self._digests) > _MOST_REMEMBERED:
            del self._digests[next(iter(self._digests))]

    def check(self, turn_id: str, call: str, digests: Sequence[str]) -> None:
        """Raise `ToolError` where these are not the files that were shown for the call."""
        known = self._digests.pop((turn_id, call), None)
        if known != tuple(digests):
            raise ToolError(
                "a file has changed since this call was judged, so nothing was sent",
                hint="Call again to send it as it is now.",
            )
