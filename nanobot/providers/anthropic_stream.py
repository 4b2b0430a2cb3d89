"""From the bytes of a Messages answer to a `Reply`.

`IncomingMessage` takes the body of an answer as it arrives, gives the text to the sink on the way
and the reply at the end. Events and blocks of unknown kinds are skipped: the API may add some
within a version.

Source: https://platform.claude.com/docs/en/build-with-claude/streaming
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from nanobot.errors import ContextTooLong
from nanobot.messages import ProviderData, ToolCall
from nanobot.providers.anthropic_request import THINKING_TYPES
from nanobot.providers.calls import made_calls
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import count, items, mapping, string
from nanobot.providers.incoming import IncomingAnswer
from nanobot.providers.port import Prompt, Reply, TextSink, Usage
from nanobot.providers.refusals import error_in
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


class IncomingMessage(IncomingAnswer):
    """The answer to `prompt` on its way in, from `source`."""

    kind = "message"

    def __init__(
        self, endpoint: Endpoint, source: str, prompt: Prompt, on_text: TextSink | None
    ) -> None:
        super().__init__(endpoint)
        self._source, self._prompt, self._on_text = source, prompt, on_text
        self._blocks: dict[int, _Block] = {}
        self._stop = self._model = ""
        self._usage: dict[str, int] = {}

    @property
    def complete(self) -> bool:
        return self._is_terminated or bool(self._stop)

    @property
    def ending(self) -> float | None:
        return _TAIL_SECONDS if self.complete else None

    def add_event(self, event: object) -> bool:
        fields = mapping(event)
        if said := error_in(fields) if self.is_json or "error" in fields else None:
            raise self._endpoint.refused_as(said)
        match string(fields.get("type")):
            case "message" | "message_start":
                self._start_message(mapping(fields.get("message", fields)))
            case "content_block_start":
                self._start_block(count(fields.get("index")), mapping(fields.get("content_block")))
            case "content_block_delta":
                self._add_delta(self._blocks.get(count(fields.get("index"))), fields.get("delta"))
            case "message_delta":
                self._stop = string(mapping(fields.get("delta")).get("stop_reason")) or self._stop
                self._count(fields.get("usage"))
            case "message_stop":
                self._is_terminated = True
        return fields.get("type") != "ping"

    def _start_message(self, message: Mapping[str, object]) -> None:
        """Take the beginning of a message, or all of it."""
        self.events += 1
        self.has_begun = True
        self._model = string(message.get("model"))
        self._count(message.get("usage"))
        for position, content in enumerate(items(message.get("content"))):
            self._start_block(position, mapping(content))
        self._stop = string(message.get("stop_reason"))

    def _start_block(self, index: int, fields: Mapping[str, object]) -> None:
        block = self._blocks[index] = _Block(string(fields.get("type")), dict(fields))
        self.held += sum(len(value) for value in fields.values() if isinstance(value, str))
        if block.kind == "text" and (text := block.joined("text")):
            block.fields["text"] = valid_unicode(text)
            self._say(block.joined("text"))

    def _add_delta(self, block: _Block | None, delta: object) -> None:
        for name, value in mapping(delta).items() if block else ():
            if block and name != "type" and isinstance(value, str):
                if name == "signature":  # comes whole, as the official SDK has it too
                    block.pieces.pop(name, None)
                block.pieces.setdefault(name, []).append(valid_unicode(value))
                self.held += len(value)
                if name == "text" and block.kind == "text":
                    self._say(valid_unicode(value))

    def _say(self, text: str) -> None:
        if text and self._on_text is not None:
            self._on_text(text, False)

    def _count(self, usage: object) -> None:
        """Counts are cumulative, and later events may leave some out."""
        for name, value in mapping(usage).items():
            self._usage[name] = max(self._usage.get(name, 0), count(value))

    def reply(self) -> Reply:
        blocks = [self._blocks[index] for index in sorted(self._blocks)]
        text = "".join(block.joined("text") for block in blocks if block.kind == "text")
        calls = self._calls(blocks)
        if self._stop == _WINDOW_EXCEEDED and not (text or calls):
            detail = "the answer has no room in the model's context window"
            raise ContextTooLong(
                f"the prompt is too long for {self._endpoint.model}", status=400, detail=detail
            )
        finish = _FINISH.get(self._stop, self._stop) or ("tool_calls" if calls else "stop")
        thought = any(block.kind in THINKING_TYPES for block in blocks)
        data = self._returned(blocks) if thought else None
        return Reply(text, calls, self._counted(), finish, self._model, thought, data)

    def _calls(self, blocks: Sequence[_Block]) -> tuple[ToolCall, ...]:
        made = (block for block in blocks if block.kind == "tool_use")
        given = [(block.joined("name"), block.input) for block in made]
        return made_calls(given, self._prompt, cut=self._stop == "max_tokens")

    def _returned(self, blocks: Sequence[_Block]) -> ProviderData:
        """Thinking and text in their order, as the server wants them back."""
        kinds = ("text", *THINKING_TYPES)
        content = [block.whole() for block in blocks if block.kind in kinds]
        return ProviderData(self._source, fields={"content": content})

    def _counted(self) -> Usage:
        """`input_tokens` leaves out cache reads and writes."""
        of = self._usage.get
        cached, writes = of("cache_read_input_tokens", 0), of("cache_creation_input_tokens", 0)
        prompt = of("input_tokens", 0) + cached + writes
        return Usage(prompt, of("output_tokens", 0), cached, writes)
