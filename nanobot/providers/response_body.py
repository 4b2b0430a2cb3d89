"""Body of an answer: server-sent events or one object, and the timeouts while it arrives.

Data of events is the same however the bytes were cut. As the standard requires, lines end in LF,
CRLF or CR; a byte order mark, comments and fields other than `data` are skipped; data may take
several lines."""

from __future__ import annotations

import asyncio

from msgspec import Struct

from nanobot.errors import ProviderGarbage, ProviderUnavailable
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import parse_json
from nanobot.providers.http import HttpConnection
from nanobot.providers.port import Reply

MOST_BYTES = 2 * 1024 * 1024
"""Four times the longest answers of models. Reading this much takes 200 ms."""
LONGEST_SECONDS = 7_200.0
"""Time limit of an answer: 7,200 tokens at one token a second."""
_LEAST_RATE = 5.0
"""Fewer bytes a second are no progress. A token takes a hundred bytes in transit, so this is far
below the slowest model."""
_EXCERPT = 4_096  # bytes kept for an error
_STREAM_OVERHEAD = 64
"""An event takes a few hundred bytes for a few characters, so a stream may be this much larger than
the characters that are kept."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
"""Blank bytes keep a connection alive. A byte order mark has no meaning either."""


class EventParser:
    """Data of the events in one stream, however its bytes were cut."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    @property
    def pending(self) -> int:
        """The number of bytes that are not part of an event so far."""
        return len(self._rest) + sum(map(len, self._data))

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that `chunk` completes."""
        self._rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        lines = bytes(self._rest).splitlines(keepends=True)
        # The last line may continue, and a CR at its end may be half of a CRLF.
        self._rest = bytearray(b"" if lines[-1].endswith(b"\n") else lines.pop())
        return self._take(lines)

    def close(self) -> list[bytes]:
        """Return the data of a last event that no blank line ended. Ends the parser."""
        lines = bytes(self._rest).splitlines()
        self._rest.clear()
        return self._take([*lines, b""])

    def _take(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in (line.rstrip(b"\r\n") for line in lines):
            name, _, value = line.partition(b":")
            if name in (b"data", b"error"):  # llama.cpp uses the field `error`
                self._data.append(value.removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


class IncomingAnswer:
    """Incoming answer with status 200: a stream of events or one JSON object, as the server chose.
    It keeps at most `MOST_BYTES`. Subclasses read the events.

    `has_begun` is True once any text, thinking or call has arrived. `held` is the number of
    characters that the adapter keeps, and `events` the number of events of its kind."""

    kind = "completion"

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._form, self._size, self._parser = "", 0, EventParser()
        self._start = bytearray()
        self._is_terminated = self.has_begun = False
        self.held = self.events = 0

    @property
    def is_json(self) -> bool:
        return self._form == "json"

    @property
    def complete(self) -> bool:
        """True if the answer seems complete. The connection may still be open."""
        raise NotImplementedError

    @property
    def is_answer(self) -> bool:
        """True if it may count as the answer when the stream ends without a finish reason."""
        return False

    @property
    def ending(self) -> float | None:
        """Seconds of silence after which the answer has ended, or None if its end has not
        arrived."""
        raise NotImplementedError

    def add_event(self, event: object) -> bool:
        """Process the JSON of an event or of the whole body. Return False for a sign of life."""
        raise NotImplementedError

    def reply(self) -> Reply:
        """Return the whole reply. Raise `ProviderError` if it is empty."""
        raise NotImplementedError

    def feed(self, chunk: bytes) -> bool:
        """Process arrived bytes. Return True if they are more than a keep-alive. An unstreamed
        object counts once, at its beginning."""
        was_json = self.is_json
        news = [self._take(data) for data in self._events_in(chunk)]
        self.has_begun = self.has_begun or self.is_json or self.held > 0
        total = self._size // (_STREAM_OVERHEAD if self.events else 1)
        if max(self._parser.pending + self.held, total) > MOST_BYTES:
            raise self._endpoint.garbage_error(f"more than {MOST_BYTES} bytes")
        return any(news) or self.is_json > was_json

    def finish(self) -> Reply:
        """Return the reply at the end of the body. Raise `ProviderError` if there is none."""
        if not self._size:
            raise self._endpoint.cut_error("an empty body")
        if self.is_json:
            self._take(bytes(self._start))
            self._refuse_other_kind()
            return self.reply()
        is_whole = True
        try:
            for data in self._parser.close():
                self._take(data)
        except ProviderGarbage:  # the connection ended inside an event
            is_whole = False
        if not self.complete:
            self._refuse_other_kind()
            # Some servers send no finish reason: then the end of the body is the end.
            if not (is_whole and self.is_answer):
                raise self._endpoint.cut_error("the stream ended without a finish reason")
        return self.reply()

    def _refuse_other_kind(self) -> None:
        if not self.events:
            raise self._endpoint.garbage_error(
                f"something that is not a {self.kind}", bytes(self._start)
            )

    def _events_in(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that `chunk` completes."""
        self._size += len(chunk)
        chunk = chunk if self._form else chunk.lstrip(_BLANK)
        if chunk and not self._form:
            self._form = {b"{": "json", b"<": "html", b"[": "json"}.get(chunk[:1], "stream")
        if self._form == "html":
            raise self._endpoint.garbage_error("a web page", chunk)
        self._start += chunk if self.is_json else chunk[: _EXCERPT - len(self._start)]
        return [] if self.is_json else self._parser.feed(chunk)

    def _take(self, data: bytes) -> bool:
        """Process the data of an event, or a whole body. Blank data keeps the connection alive."""
        if data.strip() == b"[DONE]":
            self._is_terminated = True
        elif data.strip():
            try:
                event = parse_json(data)
            except ValueError:
                raise self._endpoint.garbage_error("something that is not JSON", data) from None
            return self.add_event(event)
        return True


class Waits(Struct, frozen=True):
    """Timeouts of an answer in seconds: of silence before its first word (`first`) and after it
    (`stall`), and with only keep-alives, incomplete events and trickling bytes (`patience`)."""

    first: float
    stall: float
    patience: float


class Progress:
    """Limit of the wait for an answer from `now` on: `patience` seconds without progress, and
    `LONGEST_SECONDS` in all."""

    def __init__(self, now: float, patience: float) -> None:
        self._patience, self._end = patience, now + LONGEST_SECONDS
        self._since, self._size, self._has_begun = now, 0, False

    @property
    def until(self) -> float:
        return min(self._since + self._patience, self._end)

    def note(self, now: float, size: int, *, is_part: bool) -> None:
        """Record arrived bytes. `is_part` if they are more than a keep-alive. Before the first part
        no rate counts, because the server reads the prompt."""
        self._size += size
        is_fast = not self._has_begun or self._size >= _LEAST_RATE * (now - self._since)
        if is_part and is_fast:
            self._since, self._size, self._has_begun = now, 0, True


async def receive(
    connection: HttpConnection, path: str, body: bytes, incoming: IncomingAnswer, waits: Waits
) -> None:
    """Send a request and read its answer, up to the end or to a silence that ends it."""
    now = asyncio.get_running_loop().time
    silence = min(waits.first, waits.patience)
    progress = Progress(now(), waits.patience)
    try:
        async with asyncio.timeout(silence) as limit, connection.post(path, body) as chunks:
            async for chunk in chunks:
                progress.note(now(), len(chunk), is_part=incoming.feed(chunk))
                quiet = waits.stall if incoming.has_begun else waits.first
                silence, until = incoming.ending or quiet, progress.until
                if now() + silence < until:
                    until = now() + silence
                else:
                    silence = waits.patience
                limit.reschedule(until)
    except TimeoutError as error:
        if incoming.ending is None and not incoming.complete:
            raise connection.endpoint.stall_error(silence) from error
    except ProviderUnavailable:
        if not incoming.complete:
            raise
