"""From the bytes of an answer to a `Reply`.

`IncomingReply` takes the body of an answer with status 200 as it arrives, a stream of events or one
JSON object, whichever the server chose to send. It gives the visible text to the sink on the way
and the reply at the end. It holds at most `limit` bytes: no server can fill the memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nanobot.providers.calls import CallAssembler
from nanobot.providers.failures import Endpoint
from nanobot.providers.fields import count, items, mapping, parse_json, string
from nanobot.providers.port import Reply, TextSink, Usage
from nanobot.providers.sse import EventParser
from nanobot.providers.thinking import VisibleText, mend_surrogates

_STREAM_OVERHEAD = 16
"""An event takes a few hundred bytes to bring a few characters, so whole streams may be this much
larger than what is held of them."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
"""Blank bytes keep a connection alive; a byte order mark says nothing either."""
_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons with which servers say that they gave up."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What is known of the request: the ids in its prompt, and a seed that no other prompt has."""

    call_ids: frozenset[str]
    seed: str
    model: str


def first_model(listed: bytes) -> str:
    """The first name in a server's list of models; `default` where there is none."""
    try:
        listing = mapping(parse_json(listed))
    except ValueError:
        return "default"
    names = (string(mapping(item).get("id")) for item in items(listing.get("data")))
    return next(filter(None, names), "default")


class IncomingReply:
    """One answer on its way in."""

    def __init__(
        self, endpoint: Endpoint, asked: Asked, on_text: TextSink | None, limit: int
    ) -> None:
        self._endpoint = endpoint
        self._limit = limit
        self._total = 0
        self._kind = ""
        self._start = b""
        self._body = bytearray()
        self._events = EventParser()
        self._draft = _Draft(endpoint, asked, on_text)
        self._terminated = False

    @property
    def complete(self) -> bool:
        """Whether the answer's end has been seen, though the connection may still be open."""
        return self._terminated or bool(self._draft.finish)

    def feed(self, chunk: bytes) -> bool:
        """Take what arrived; True if it was more than a sign of life."""
        self._total += len(chunk)
        if not self._kind:
            chunk = chunk.lstrip(_BLANK)
            if not chunk:
                self._check(self._total)
                return False
            self._kind = {b"{": "json", b"<": "html"}.get(chunk[:1], "stream")
            self._start = chunk
        if self._kind == "html":
            raise self._endpoint.garbage("a web page", chunk)
        if self._kind == "json":
            self._body += chunk
            self._check(self._total)
            return True
        return self._feed_events(chunk)

    def finish(self) -> Reply:
        """The reply, once the body has ended; raises what it amounts to where it is none."""
        if self._kind == "json":
            self._take_object(bytes(self._body))
        elif self._kind == "stream":
            self._take_events(self._events.close(), last=True)
        if not self._total:
            raise self._endpoint.cut("an empty body")
        if self._kind != "json" and not self.complete:
            if not self._draft.events:
                raise self._endpoint.garbage("something that is no completion", self._start)
            raise self._endpoint.cut("the stream ended without a finish reason")
        return self._draft.reply()

    def _feed_events(self, chunk: bytes) -> bool:
        events = self._events.feed(chunk)
        self._take_events(events)
        self._check(self._events.pending + self._draft.size)
        self._check(self._total // (_STREAM_OVERHEAD if self._draft.events else 1))
        return bool(events)

    def _take_events(self, events: Iterable[bytes], *, last: bool = False) -> None:
        for data in events:
            if data.strip() == b"[DONE]":
                self._terminated = True
                continue
            try:
                event = parse_json(data)
            except ValueError:
                if last:  # the connection ended inside an event
                    return
                raise self._endpoint.garbage("an event that is not JSON", data) from None
            self._draft.add_event(mapping(event))

    def _take_object(self, body: bytes) -> None:
        try:
            answer = parse_json(body)
        except ValueError:
            raise self._endpoint.garbage("broken JSON", body) from None
        self._draft.add_event(mapping(answer))

    def _check(self, held: int) -> None:
        if held > self._limit:
            raise self._endpoint.garbage(f"more than {self._limit} bytes")


class _Draft:
    """What the events so far add up to."""

    def __init__(self, endpoint: Endpoint, asked: Asked, on_text: TextSink | None) -> None:
        self._endpoint = endpoint
        self._asked = asked
        self._on_text = on_text
        self._visible = VisibleText()
        self._text: list[str] = []
        self._refusal = ""
        self._calls = CallAssembler()
        self._characters = 0
        self._usage = Usage()
        self._model = ""
        self._choices = 0
        self.events = 0
        self.finish = ""

    @property
    def size(self) -> int:
        """Characters held."""
        return self._characters + self._calls.size

    def add_event(self, event: Mapping[str, object]) -> None:
        """Take one chunk of a stream, or a whole completion."""
        self.events += 1
        if event.get("error"):
            raise self._endpoint.refused_inside(event["error"])
        self._model = string(event.get("model")) or self._model
        if usage := mapping(event.get("usage")):
            self._usage = read_usage(usage)
        for choice in items(event.get("choices")):
            fields = mapping(choice)
            if count(fields.get("index")) == 0:
                self._add_choice(fields)

    def reply(self) -> Reply:
        """The whole; raises if there was nothing in it."""
        if not self._choices:
            raise self._endpoint.garbage("no choices")
        if self.finish in _BROKEN_OFF:
            raise self._endpoint.cut(f"finish reason {self.finish!r}")
        self._say(self._visible.close())
        if not self._text and self._refusal:
            self._say(mend_surrogates(self._refusal))
        calls = self._calls.finish(self._asked.call_ids, self._asked.seed)
        return Reply(
            text="".join(self._text),
            tool_calls=calls,
            usage=self._usage,
            finish=self.finish or ("tool_calls" if calls else "stop"),
            model=self._model or self._asked.model,
        )

    def _add_choice(self, choice: Mapping[str, object]) -> None:
        self._choices += 1
        self.finish = string(choice.get("finish_reason")) or self.finish
        whole = choice.get("delta") is None and not self.size
        fields = mapping(choice.get("message" if whole else "delta"))
        content = _text_of(fields.get("content"))
        self._characters += len(content)
        self._say(self._visible.feed(content))
        self._refusal += string(fields.get("refusal"))
        self._calls.add(fields.get("tool_calls"), whole=whole)

    def _say(self, text: str) -> None:
        if text:
            self._text.append(text)
            if self._on_text is not None:
                self._on_text(text, False)


def read_usage(fields: Mapping[str, object]) -> Usage:
    """Token counts, with the cached ones wherever the server puts them."""
    details = mapping(fields.get("prompt_tokens_details"))
    cached = (
        count(details.get("cached_tokens"))
        or count(fields.get("prompt_cache_hit_tokens"))
        or count(fields.get("cached_tokens"))
    )
    return Usage(
        prompt=count(fields.get("prompt_tokens")),
        completion=count(fields.get("completion_tokens")),
        cached=cached,
    )


def _text_of(content: object) -> str:
    """The text of `content`: a string, or an array of parts of which only text counts."""
    if isinstance(content, str):
        return content
    parts = [mapping(part) for part in items(content)]
    return "".join(string(part.get("text")) for part in parts if part.get("type") == "text")
