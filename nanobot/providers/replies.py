"""From the bytes of an answer to a `Reply`.

`IncomingReply` takes the body of an answer with status 200 as it arrives, a stream of events or one
JSON object, whichever the server chose to send. It gives the visible text to the sink on the way
and the reply at the end. It holds at most `MOST_BYTES`: no server can fill the memory.

- Server-sent events: bytes go in as they arrive, the data of whole events comes out, however the
  bytes were cut. As the standard says, lines end in LF, CRLF or CR; a byte order mark, comments and
  fields other than `data` are skipped; data may take several lines.
- Thinking: some servers leave the reasoning in the text as `<think>…</think>` at the start.
  `VisibleText` gives back what may be shown. Its pieces always join to the same text, and that can
  be encoded: surrogate halves in two pieces are joined, stray ones replaced.
- Tool calls come whole or in pieces, with or without index or id. What comes out can always be sent
  back: ids exist and are unique in the prompt, names use the API's characters. Arguments stay the
  text the model wrote; only "nothing" becomes an empty object.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from contextlib import suppress

from msgspec import Struct, field

from nanobot.errors import ProviderGarbage
from nanobot.messages import ToolCall
from nanobot.providers.endpoint import Endpoint, count, items, mapping, parse_json, string
from nanobot.providers.port import Prompt, Reply, TextSink, Usage
from nanobot.text import valid_unicode


class EventParser:
    """The data of the events in one stream, however its bytes were cut."""

    def __init__(self) -> None:
        self._rest = bytearray()
        self._data: list[bytes] = []

    @property
    def pending(self) -> int:
        """How many bytes it holds that are not yet an event."""
        return len(self._rest) + sum(map(len, self._data))

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that `chunk` completes."""
        self._rest += chunk
        if b"\n" not in chunk and b"\r" not in chunk:
            return []
        lines = bytes(self._rest).splitlines(keepends=True)
        # The last line may go on, and a CR at its end may be half of a CRLF.
        self._rest = bytearray(b"" if lines[-1].endswith(b"\n") else lines.pop())
        return self._take(lines)

    def close(self) -> list[bytes]:
        """The data of a last event that no blank line ended; the parser is used up."""
        lines = bytes(self._rest).splitlines()
        self._rest.clear()
        return self._take([*lines, b""])

    def _take(self, lines: list[bytes]) -> list[bytes]:
        events = []
        for line in (line.rstrip(b"\r\n") for line in lines):
            name, _, value = line.partition(b":")
            if name == b"data":
                self._data.append(value.removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


_OPENING = ("<think>", "<thinking>")
_LONGEST_CLOSING = len("</thinking>")
_WHITESPACE = " \t\r\n"


class VisibleText:
    """The visible part of one reply. While `_held` may still be thinking, or white space around it,
    it is not shown; `_closing` is the tag that ends the thinking under way."""

    def __init__(self) -> None:
        self._half = self._held = self._closing = ""
        self._started = self._trim = False

    def feed(self, piece: str) -> str:
        """What `piece` lets be shown now."""
        piece, self._half = self._half + piece, ""
        if piece and "\ud800" <= piece[-1] <= "\udbff":
            piece, self._half = piece[:-1], piece[-1]
        return self._show(valid_unicode(piece))

    def close(self) -> str:
        """What was held back and turned out to be text."""
        shown = self._show(valid_unicode(self._half))
        held = "" if self._closing or self._started else self._held
        return shown + (held.lstrip(_WHITESPACE) if self._trim else held)

    def _show(self, piece: str) -> str:
        if self._started:
            return piece
        self._held += piece
        while True:
            if self._closing:
                end = self._held.lower().find(self._closing)
                if end < 0:
                    self._held = self._held[-_LONGEST_CLOSING:]
                    return ""
                self._held = self._held[end + len(self._closing) :]
                self._closing, self._trim = "", True
            text = self._held.lstrip(_WHITESPACE)
            low = text[: len(_OPENING[-1])].lower()
            tag = next((tag for tag in _OPENING if low.startswith(tag)), "")
            if not tag:
                break
            self._held, self._closing = text[len(tag) :], f"</{tag[1:]}"
        if not text or any(tag.startswith(low) for tag in _OPENING):
            return ""
        self._started = True
        return text if self._trim else self._held


_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_ID_LENGTH = 9
"""Every server takes ids of nine letters and digits; some take nothing else."""


class _Draft(Struct):
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: Mapping[str, object] = field(default_factory=dict)


class CallAssembler:
    """The tool calls of one reply. `size` is how many characters they hold."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._by_index: dict[int, _Draft] = {}
        self.size = 0

    def add(self, pieces: object, *, whole: bool) -> None:
        """Take a `tool_calls` array: of a whole message, where each item is a call, or a delta."""
        for piece in items(pieces):
            fields = mapping(piece)
            function = mapping(fields.get("function"))
            name = string(function.get("name"))
            call_id = string(fields.get("id"))
            draft = self._begin(call_id) if whole else self._draft(fields, call_id, name)
            if name != draft.name:
                draft.name += name
            arguments = _as_text(function.get("arguments"))
            draft.arguments.append(arguments)
            self.size += len(name) + len(arguments)
            if extra := mapping(fields.get("extra_content")):
                draft.extra = extra
                self.size += len(str(extra))

    @property
    def given(self) -> list[tuple[str, Mapping[str, object]]]:
        """The server's own id of each call, and what it gave along to have it back."""
        return [(draft.id, draft.extra) for draft in self._drafts]

    def finish(self, prompt: Prompt) -> tuple[ToolCall, ...]:
        """The calls. New ids differ from those in `prompt`, and from prompt to prompt."""
        if not self._drafts:
            return ()
        used = {call.id for message in prompt.messages for call in message.tool_calls}
        calls = []
        for position, draft in enumerate(self._drafts):
            arguments = valid_unicode("".join(draft.arguments)).strip() or "{}"
            call_id = draft.id
            attempt = 0
            while not call_id or call_id in used:
                seed = (len(prompt.messages), draft.id, draft.name, arguments, position, attempt)
                text = "\0".join(map(str, seed)).encode("utf-8", "surrogatepass")
                call_id = hashlib.sha256(text).hexdigest()[:_ID_LENGTH]
                attempt += 1
            used.add(call_id)
            name = _NOT_IN_NAMES.sub("_", draft.name)[:_LONGEST_NAME] or "unnamed"
            calls.append(ToolCall(call_id, name, arguments))
        return tuple(calls)

    def _begin(self, call_id: str) -> _Draft:
        self._drafts.append(_Draft(call_id))
        return self._drafts[-1]

    def _draft(self, piece: Mapping[str, object], call_id: str, name: str) -> _Draft:
        """The call that a piece of a stream belongs to."""
        index = piece.get("index")
        if isinstance(index, int):
            current = self._by_index.get(index)
        else:
            current = self._drafts[-1] if self._drafts else None
        # Some servers number all their calls 0, or none: a new id with a name begins a new call.
        begins = bool(name and call_id and current and current.id and current.id != call_id)
        if current is None or begins or (index is None and name and not call_id):
            current = self._begin(call_id)
        current.id = current.id or call_id
        if isinstance(index, int):
            self._by_index[index] = current
        return current


def _as_text(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments)


MOST_BYTES = 8 * 1024 * 1024
_EXCERPT = 4_096
_STREAM_OVERHEAD = 16
"""An event takes a few hundred bytes to bring a few characters, so whole streams may be this much
larger than what is held of them."""
_BLANK = b" \t\r\n\xef\xbb\xbf"
"""Blank bytes keep a connection alive; a byte order mark says nothing either."""
_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons with which servers say that they gave up."""


class IncomingReply:
    """The answer to `prompt` on its way in: how it is framed."""

    def __init__(self, endpoint: Endpoint, prompt: Prompt, on_text: TextSink | None) -> None:
        self._endpoint = endpoint
        self._total = 0
        self._kind = ""
        self._body = bytearray()
        self._events = EventParser()
        self._draft = _ReplyDraft(endpoint, prompt, on_text)
        self._terminated = False

    @property
    def complete(self) -> bool:
        """Whether the answer's end has been seen, though the connection may still be open."""
        return self._terminated or bool(self._draft.finish)

    @property
    def given(self) -> list[tuple[str, Mapping[str, object]]]:
        """The server's own id of each call of the reply, and what came along with it."""
        return self._draft.given

    @property
    def thinking(self) -> str:
        """What the server gave as thinking, apart from the text."""
        return "".join(self._draft.thinking)

    def feed(self, chunk: bytes) -> bool:
        """Take what arrived; True if it was more than a sign of life."""
        self._total += len(chunk)
        chunk = chunk if self._kind else chunk.lstrip(_BLANK)
        if chunk and not self._kind:
            self._kind = {b"{": "json", b"<": "html"}.get(chunk[:1], "stream")
        if self._kind == "html":
            raise self._endpoint.garbage("a web page", chunk)
        events = []
        if self._kind == "json":
            self._body += chunk
        elif self._kind:
            self._body += chunk[: _EXCERPT - len(self._body)]
            events = self._events.feed(chunk)
            for data in events:
                self._take(data)
        streamed = _STREAM_OVERHEAD if self._draft.events else 1
        held = max(self._events.pending + self._draft.size, self._total // streamed)
        if held > MOST_BYTES:
            raise self._endpoint.garbage(f"more than {MOST_BYTES} bytes")
        return bool(events) or self._kind == "json"

    def finish(self) -> Reply:
        """The reply, once the body has ended; raises what it amounts to where it is none."""
        if not self._total:
            raise self._endpoint.cut("an empty body")
        if self._kind == "json":
            self._take(bytes(self._body))
        else:
            with suppress(ProviderGarbage):  # where the connection ended inside an event
                for data in self._events.close():
                    self._take(data)
            if not self.complete and not self._draft.events:
                raise self._endpoint.garbage("something that is no completion", bytes(self._body))
            if not self.complete:
                raise self._endpoint.cut("the stream ended without a finish reason")
        return self._draft.reply()

    def _take(self, data: bytes) -> None:
        """Take the data of an event, or a whole body."""
        if data.strip() == b"[DONE]":
            self._terminated = True
            return
        try:
            event = parse_json(data)
        except ValueError:
            raise self._endpoint.garbage("something that is not JSON", data) from None
        self._draft.add_event(mapping(event))


class _ReplyDraft:
    """What the events so far add up to."""

    def __init__(self, endpoint: Endpoint, prompt: Prompt, on_text: TextSink | None) -> None:
        self._endpoint, self._prompt, self._on_text = endpoint, prompt, on_text
        self._visible, self._calls = VisibleText(), CallAssembler()
        self._text: list[str] = []
        self.thinking: list[str] = []
        self._refusal = self._model = self.finish = ""
        self._usage = Usage()
        self._characters = self._thought = self._choices = self.events = 0

    @property
    def size(self) -> int:
        """Characters held."""
        return self._characters + self._thought + self._calls.size

    @property
    def given(self) -> list[tuple[str, Mapping[str, object]]]:
        """The server's own id of each call, and what came along with it."""
        return self._calls.given

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
        if not self._text:
            self._say(valid_unicode(self._refusal))
        calls = self._calls.finish(self._prompt)
        finish = self.finish or ("tool_calls" if calls else "stop")
        return Reply("".join(self._text), calls, self._usage, finish, self._model)

    def _add_choice(self, choice: Mapping[str, object]) -> None:
        self._choices += 1
        self.finish = string(choice.get("finish_reason")) or self.finish
        whole = choice.get("delta") is None and not (self._characters or self._calls.size)
        fields = mapping(choice.get("message" if whole else "delta"))
        content = _text_of(fields.get("content"))
        if thought := string(fields.get("reasoning_content")):
            self.thinking.append(thought)
            self._thought += len(thought)
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
