"""Server-sent events, as chat completion servers send them.

Bytes go in as they arrive, the data of whole events comes out. The result does not depend on how
the bytes were cut up. As the standard has it, lines end in LF, CRLF or CR, a byte order mark,
comments and fields other than `data` are skipped, the space after the colon may be missing, and
data may take several lines.
"""

from __future__ import annotations

import re

_LINE_END = re.compile(rb"\r\n|\n|\r")
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class EventParser:
    """Collects one stream. `pending` is how many bytes it holds that are not yet an event."""

    def __init__(self) -> None:
        self._partial: list[bytes] = []
        self._data: list[bytes] = []
        self._first_line = True
        self.pending = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that `chunk` completes."""
        self.pending += len(chunk)
        self._partial.append(chunk)
        if b"\n" not in chunk and b"\r" not in chunk and not self._ends_in_return(-2):
            return []
        buffer = b"".join(self._partial)
        # A CR at the very end may be half of a CRLF; it waits for the next chunk.
        held = buffer.endswith(b"\r")
        *lines, rest = _LINE_END.split(buffer[:-1] if held else buffer)
        self._partial = [rest + b"\r" if held else rest]
        return self._take(lines)

    def close(self) -> list[bytes]:
        """The data of a last event that no blank line ended; the parser is used up."""
        lines = _LINE_END.split(b"".join(self._partial))
        self._partial = []
        return self._take([*lines, b""])

    def _ends_in_return(self, position: int) -> bool:
        return len(self._partial) >= -position and self._partial[position].endswith(b"\r")

    def _take(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in lines:
            if self._first_line:
                line = line.removeprefix(_BYTE_ORDER_MARK)  # noqa: PLW2901
                self._first_line = False
            if line.startswith(b"data:"):
                self._data.append(line[5:].removeprefix(b" "))
            elif line == b"data":
                self._data.append(b"")
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        self.pending = sum(map(len, self._data)) + sum(map(len, self._partial))
        return events
