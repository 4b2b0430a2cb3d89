"""From the bytes of a Messages answer to a `Reply`.

`IncomingMessage` takes the body of an answer as it arrives, gives the text to the sink on the way
and the reply at the end. Events and blocks of unknown kinds are skipped: the API may add some
within a version.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from msgspec import Struct, field

from nanobot.errors import ContextTooLong, ProviderGarbage
from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.anthropic_request import THINKING_TYPES
from nanobot.providers.calls import made_calls
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import count, items, mapping, parse_json, string
from nanobot.providers.incoming import AnswerBody
from nanobot.providers.port import Prompt, Reply, TextSink, Usage
from nanobot.providers.refusals import ErrorBody
from nanobot.text import valid_unicode

_FINISH = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "pause_turn": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "refusal": "content_filter",
    "model_context_window_exceeded": "length",
}
_TAIL_SECONDS = 2.0
_WINDOW_EXCEEDED = "model_context_window_exceeded"


class _Block(Struct):
    """A content block: its fields at the start, and the text of each kind of delta."""

    kind: str
    fields: dict[str, object]
    pieces: dict[str, list[str]] = field(default_factory=dict)

    def joined(self, name: str) -> str:
        """A field of the block, deltas included."""
        return string(self.fields.get(name)) + "".join(self.pieces.get(name, ()))

    @property
    def input(self) -> str:
        """The input of a tool as the model wrote it."""
        text = "".join(self.pieces.get("partial_json", ()))
        given = self.fields.get("input")
        return text.strip() or (json.dumps(given) if given else "{}")

    def whole(self) -> dict[str, object]:
        """The block as it has to come back, unchanged."""
        added = {name: self.joined(name) for name in self.pieces}
        return self.fields | added


class IncomingMessage:
    """The answer to `prompt` on its way in, from `source`."""

    def __init__(
        self, endpoint: Endpoint, source: str, prompt: Prompt, on_text: TextSink | None
    ) -> None:
        self._endpoint, self._source, self._prompt = endpoint, source, prompt
        self._on_text = on_text
        self._held, self._body = 0, AnswerBody(endpoint)
        self._blocks: dict[int, _Block] = {}
        self._stop = self._model = ""
        self._usage: dict[str, int] = {}
        self._started = self._ended = False

    @property
    def complete(self) -> bool:
        """Whether the answer is whole, though the connection may still be open."""
        return self._ended or bool(self._stop)

    @property
    def has_begun(self) -> bool:
        """Whether any of it has arrived."""
        return self._started

    @property
    def ending(self) -> float | None:
        """After how many seconds of silence it has ended, so that the connection can be used
        again."""
        return _TAIL_SECONDS if self.complete else None

    def feed(self, chunk: bytes) -> bool:
        """Take what arrived; True if it was more than a sign of life."""
        was_json = self._body.is_json
        news = [self._take_event(data) for data in self._body.feed(chunk)]
        self._body.refuse_beyond_limit(self._held, streamed=self._started)
        return any(news) or self._body.is_json > was_json

    def finish(self) -> Reply:
        """Return the reply, once the body has ended. Raise a `ProviderError` if there is none."""
        last = self._body.close()
        if self._body.is_json:
            self._take_whole(self._endpoint.object_in(self._body.content))
        with suppress(ProviderGarbage):  # the connection ended inside an event
            for data in last:
                self._take_event(data)
        if not self._started:
            raise self._endpoint.garbage("something that is no message", self._body.content)
        if not self.complete:
            raise self._endpoint.cut("the stream ended without a stop reason")
        return self._reply()

    def _take_event(self, data: bytes) -> bool:
        try:
            event = mapping(parse_json(data))
        except ValueError:
            raise self._endpoint.garbage("something that is not JSON", data) from None
        kind = string(event.get("type"))
        if kind == "error" or event.get("error"):
            raise self._endpoint.refused_as(ErrorBody.of(event.get("error")))
        take = self._TAKES.get(kind)
        if take is not None:
            take(self, event)
        return kind != "ping"

    def _start(self, event: Mapping[str, object]) -> None:
        message = mapping(event.get("message"))
        self._started = True
        self._model = string(message.get("model"))
        self._count(message.get("usage"))

    def _start_block(self, event: Mapping[str, object]) -> None:
        self._begin(count(event.get("index")), mapping(event.get("content_block")))

    def _add_delta(self, event: Mapping[str, object]) -> None:
        block = self._blocks.get(count(event.get("index")))
        if block is None:
            return
        for name, value in mapping(event.get("delta")).items():
            if name != "type" and isinstance(value, str):
                if name == "signature":  # comes whole, as the official SDK has it too
                    block.pieces.pop(name, None)
                block.pieces.setdefault(name, []).append(valid_unicode(value))
                self._held += len(value)
                if name == "text" and block.kind == "text":
                    self._say(valid_unicode(value))

    def _change(self, event: Mapping[str, object]) -> None:
        self._stop = string(mapping(event.get("delta")).get("stop_reason")) or self._stop
        self._count(event.get("usage"))

    def _end(self, _: Mapping[str, object]) -> None:
        self._ended = True

    _TAKES: Mapping[str, Callable[[IncomingMessage, Mapping[str, object]], None]] = {
        "message_start": _start,
        "content_block_start": _start_block,
        "content_block_delta": _add_delta,
        "message_delta": _change,
        "message_stop": _end,
    }

    def _take_whole(self, message: Mapping[str, object]) -> None:
        """Take a message that came as one object."""
        if message.get("type") != "message":
            raise self._endpoint.garbage("something that is no message", self._body.content)
        self._start({"message": message})
        for position, content in enumerate(items(message.get("content"))):
            self._begin(position, mapping(content))
        self._stop = string(message.get("stop_reason"))
        self._ended = True

    def _begin(self, index: int, fields: Mapping[str, object]) -> None:
        block = _Block(string(fields.get("type")), dict(fields))
        self._blocks[index] = block
        self._held += sum(len(value) for value in fields.values() if isinstance(value, str))
        if block.kind == "text" and (text := block.joined("text")):
            block.fields["text"] = valid_unicode(text)
            self._say(block.joined("text"))

    def _say(self, text: str) -> None:
        if text and self._on_text is not None:
            self._on_text(text, False)

    def _count(self, usage: object) -> None:
        """Counts are cumulative, and later events may leave some out."""
        for name, value in mapping(usage).items():
            self._usage[name] = max(self._usage.get(name, 0), count(value))

    def _reply(self) -> Reply:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(block.joined("text") for block in blocks if block.kind == "text")
        calls = self._calls(blocks)
        if self._stop == _WINDOW_EXCEEDED and not text and not calls:
            detail = "the answer has no room in the model's context window"
            raise ContextTooLong(
                f"the prompt is too long for {self._endpoint.model}", status=400, detail=detail
            )
        finish = _FINISH.get(self._stop, self._stop) or ("tool_calls" if calls else "stop")
        thought = any(block.kind in THINKING_TYPES for block in blocks)
        return Reply(
            text, calls, self._counted(), finish, self._model, thought, self._returned(blocks)
        )

    def _calls(self, blocks: Sequence[_Block]) -> tuple[ToolCall, ...]:
        made = (block for block in blocks if block.kind == "tool_use")
        given = [(block.joined("name"), block.input) for block in made]
        return made_calls(given, self._prompt, cut=self._stop == "max_tokens")

    def _returned(self, blocks: Sequence[_Block]) -> ProviderData | None:
        """Thinking and text in their order, if there is thinking, which the server wants back."""
        if not any(block.kind in THINKING_TYPES for block in blocks):
            return None
        kinds = ("text", *THINKING_TYPES)
        content = [block.whole() for block in blocks if block.kind in kinds]
        return ProviderData(self._source, fields={"content": content})

    def _counted(self) -> Usage:
        """`input_tokens` leaves out cache reads and writes."""
        of = self._usage.get
        cached, writes = of("cache_read_input_tokens", 0), of("cache_creation_input_tokens", 0)
        prompt = of("input_tokens", 0) + cached + writes
        return Usage(prompt, of("output_tokens", 0), cached, writes)
