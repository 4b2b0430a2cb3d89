"""An answer as server-sent events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiohttp import web

from nanobot_api.exchanges import AnswerEvent, Event, FailureEvent, ProgressEvent, TextEvent
from nanobot_api.shapes import KEEP_ALIVE, Shape


class Stream:
    """A stream of server-sent events. It starts with the first event or keep-alive."""

    def __init__(self, http: web.Request, shape: Shape, headers: Mapping[str, str]) -> None:
        self._http, self._shape = http, shape
        self._block = ""
        """The text of the current block."""
        self.has_begun = False
        self.response = web.StreamResponse(
            headers={
                "Content-Type": "text/event-stream; charset=utf-8",
                "Cache-Control": "no-cache",
                "X-Accel-Buffering": "no",
                **headers,
            }
        )

    async def show(self, event: Event | None) -> bool:
        """Send an event, or a keep-alive for None. Return True after the last event."""
        if not self.has_begun:
            await self.response.prepare(self._http)
            self.has_begun = True
            await self._send(self._shape.begin())
        match event:
            case None:
                await self._send([KEEP_ALIVE])
            case TextEvent():
                await self._write(event.text, fresh=event.fresh)
            case ProgressEvent():
                await self._send(self._shape.progress(event.kind, event.text))
            case AnswerEvent():
                await self._finish(event)
            case FailureEvent():
                await self._send(self._shape.fail(event.problem))
        return isinstance(event, AnswerEvent | FailureEvent)

    async def _write(self, text: str, *, fresh: bool) -> None:
        if fresh and self._block:
            await self._send(self._shape.next_block())
            self._block = ""
        self._block += text
        await self._send(self._shape.text(text))

    async def _finish(self, event: AnswerEvent) -> None:
        """Send the missing rest of the reply, and the end."""
        reply = event.reply
        if reply.startswith(self._block):
            rest, fresh = reply[len(self._block) :], False
        else:
            rest, fresh = "" if self._block.endswith(reply) else reply, True
        if rest:
            await self._write(rest, fresh=fresh)
        await self._send(self._shape.end(event.answer))
        await self.response.write_eof()

    async def _send(self, chunks: Iterable[bytes]) -> None:
        if data := b"".join(chunks):
            await self.response.write(data)
