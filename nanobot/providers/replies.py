"""From the bytes of an answer to a `Reply`.

`IncomingReply` takes the body of an answer as it arrives. It gives the visible text to the sink on
the way and the reply at the end.

- Thinking and tool calls that the server left in the text are taken out of it (`thinking`,
  `textcalls`), also while it streams.
- A finish reason is the end only if nothing follows it: some servers put one into each piece.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from nanobot.errors import ProviderError, ProviderGarbage
from nanobot.messages import ProviderData
from nanobot.providers.calls import CallAssembler, written_calls
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import count, items, mapping, parse_json, string
from nanobot.providers.incoming import AnswerBody
from nanobot.providers.port import Prompt, ReadingSink, Reply, TextSink, Usage
from nanobot.providers.refusals import ErrorBody, error_in, filter_in, is_filter, withheld
from nanobot.providers.thinking import Shown, ThinkingFilter
from nanobot.text import valid_unicode

if TYPE_CHECKING:
    from nanobot.providers.textcalls import TextCall, TextCallFilter


_MESSAGE_FIELDS = (
    *("reasoning_content", "reasoning", "reasoning_details", "reasoning_opaque"),
    *("thinking_blocks", "extra_content"),
)
"""Fields that servers want back with a message that has calls."""
_TAIL_SECONDS, _DOUBTFUL_TAIL_SECONDS = 2.0, 10.0
"""How long to wait for more of an answer that seems to be complete. A finish reason that comes with
text is doubtful, because some servers put one into each piece."""
_FINISH = {
    **dict.fromkeys(("null", "none"), ""),
    **dict.fromkeys(("max_tokens", "model_length", "max_output_tokens"), "length"),
    **dict.fromkeys(("stop", "end_turn", "complete", "eos", "eos_token"), "stop"),
    **dict.fromkeys(("stop_sequence", "stop_str", "finish_reason_stop"), "stop"),
}
"""Other words for finish reasons: of vLLM's forks, Gemini, Mistral, Anthropic, Cohere, TGI."""
_BROKEN_OFF = ("error", "insufficient_system_resource")
"""Finish reasons with which servers say that they gave up."""


class ReplyContext(Struct, frozen=True):
    """The request that a reply answers. `source` is the server and model. If `reads_calls`, markup
    in the text is read as tool calls."""

    endpoint: Endpoint
    prompt: Prompt
    source: str = ""
    reads_calls: bool = False
    on_text: TextSink | None = None
    on_reading: ReadingSink | None = None


class IncomingReply:
    """The answer to a prompt on its way in: how it is framed, and when it has ended."""

    def __init__(self, context: ReplyContext) -> None:
        self._endpoint = context.endpoint
        self._body = AnswerBody(context.endpoint)
        self._draft = _ReplyDraft(context)
        self._terminated = False

    @property
    def ending(self) -> float | None:
        """After how many seconds of silence the answer has ended, if its end seems to be here."""
        if self._terminated:
            return _TAIL_SECONDS
        if not (self._draft.finish and self._draft.is_answer) or self._draft.went_on:
            return None
        return _DOUBTFUL_TAIL_SECONDS if self._draft.finished_in_text else _TAIL_SECONDS

    @property
    def complete(self) -> bool:
        """Whether the answer seems complete. The connection may still be open."""
        return self._terminated or (bool(self._draft.finish) and not self._draft.went_on)

    @property
    def has_begun(self) -> bool:
        """Whether any text, thinking or call has arrived."""
        return self._draft.size > 0 or bool(self._draft.finish) or self._body.is_json

    @property
    def has_native_calls(self) -> bool:
        """Whether the server gave tool calls as such."""
        return len(self._draft.calls) > 0

    @property
    def is_from_llama(self) -> bool:
        """Whether llama.cpp answers: only it sends its timings."""
        return self._draft.is_from_llama

    def feed(self, chunk: bytes) -> bool:
        """Take arrived bytes. Return True if they are more than a keep-alive. An unstreamed object
        counts once, at its beginning."""
        was_json = self._body.is_json
        events = self._body.feed(chunk)
        for data in events:
            self._take(data)
        self._body.refuse_beyond_limit(self._draft.size, streamed=self._draft.events > 0)
        return bool(events) or self._body.is_json > was_json

    def finish(self) -> Reply:
        """Return the reply once the body has ended. Raises `ProviderError` if it is none."""
        last = self._body.close()
        if self._body.is_json:
            self._take(self._body.content)
            return self._draft.reply()
        whole = True
        try:
            for data in last:
                self._take(data)
        except ProviderGarbage:  # the connection ended inside an event
            whole = False
        if not self.complete:
            if not self._draft.events:
                raise self._endpoint.garbage("something that is no completion", self._body.content)
            # Some servers end a stream without a word; then the end of the body is the end.
            if not (whole and self._draft.is_answer):
                raise self._endpoint.cut("the stream ended without a finish reason")
        return self._draft.reply()

    def _take(self, data: bytes) -> None:
        """Take the data of an event, or a whole body."""
        if not data.strip():
            return  # keeps the connection alive
        if data.strip() == b"[DONE]":
            self._terminated = True
            return
        try:
            event = parse_json(data)
        except ValueError:
            raise self._endpoint.garbage("something that is not JSON", data) from None
        self._draft.add_event(event)


class _ReplyDraft:
    """The sum of the events so far."""

    def __init__(self, context: ReplyContext) -> None:
        self._context, self._endpoint = context, context.endpoint
        self._text, self.calls = _ReplyText(context), CallAssembler()
        self._returned = _ReturnedFields()
        self._refusal = self._model = self.finish = self._filtered = ""
        self._usage = Usage()
        self._characters = self._choices = self.events = 0
        self.went_on = self.finished_in_text = self.is_from_llama = False
        self._strange: object = None

    @property
    def size(self) -> int:
        """Characters held."""
        return self._characters + self._returned.size + self.calls.size

    @property
    def is_answer(self) -> bool:
        """Whether there is something of an answer in it, thinking not counted."""
        return bool(self._characters or len(self.calls) or self._refusal)

    def add_event(self, event: object) -> None:
        """Take one chunk of a stream, or a whole completion."""
        self.events += 1
        listed = items(event)
        fields = mapping(listed[0] if listed else event)
        if (said := error_in(fields)) is not None:
            raise self._endpoint.refused_as(said)
        self._model = string(fields.get("model")) or self._model
        self._filtered = self._filtered or filter_in(fields)
        self.is_from_llama = self.is_from_llama or "timings" in fields
        if usage := mapping(fields.get("usage")):
            self._usage = read_usage(usage)
        if progress := mapping(fields.get("prompt_progress")):
            self._show_reading(progress)
        self._strange = event
        for choice in items(fields.get("choices")):
            parts = mapping(choice)
            if count(parts.get("index")) == 0:
                self._add_choice(parts)

    def reply(self) -> Reply:
        """Return the whole. Raises `ProviderError` if there was nothing in it."""
        if not self._choices:
            raise self._without_choices()
        if self.finish in _BROKEN_OFF:
            raise self._broken_off()
        prompt = self._context.prompt
        calls = self.calls.finish(prompt, cut=self.finish == "length")
        text, written = self._text.close(valid_unicode(self._refusal))
        data = None
        if calls:
            returned = self._returned.fields
            data = ProviderData(self._context.source, self.calls.ids, returned, self.calls.extras)
        else:
            calls = written_calls(written, prompt)
        finish = self.finish or ("tool_calls" if calls else "stop")
        if finish == "stop" and self._filtered:
            finish = "content_filter" if text else self._filtered
        thought = self._returned.thought or self._text.thought
        return Reply(text, calls, self._usage, finish, self._model, thought, data)

    def _add_choice(self, choice: Mapping[str, object]) -> None:
        self._choices += 1
        self._filtered = self._filtered or filter_in(choice)
        whole = choice.get("delta") is None and not (self._characters or self.calls.size)
        fields = mapping(choice.get("message" if whole else "delta"))
        before = self._characters + self.calls.size
        content = _text_of(fields.get("content") or (fields or choice).get("text"))
        self._returned.add(fields)
        self._characters += len(content)
        self._text.feed(content)
        self._refusal += string(fields.get("refusal"))
        self.calls.add(fields.get("tool_calls"), whole=whole)
        more = self._characters + self.calls.size > before
        # A finish reason that more text follows was none.
        self.went_on = self.went_on or bool(more and self.finish)
        if finish := _finish_of(choice):
            if is_filter(self.finish) and finish == "stop":  # some proxies add a "stop"
                self._filtered = self._filtered or self.finish
            self.finish, self.finished_in_text = finish, more
            self.went_on = self.went_on and more

    def _without_choices(self) -> ProviderError:
        if self._filtered:
            return withheld(self._filtered)
        said = ErrorBody.of(self._strange)
        if said.message:
            return self._endpoint.refused_as(said)
        return self._endpoint.garbage("no choices")

    def _broken_off(self) -> ProviderError:
        """LMDeploy writes its error as the answer's text."""
        said = ErrorBody.of(self._text.shown)
        if said.overflow or said.blames_request:
            return self._endpoint.refused_as(said)
        return self._endpoint.cut(f"finish reason {self.finish!r}")

    def _show_reading(self, progress: Mapping[str, object]) -> None:
        """Report llama.cpp's progress in reading the prompt."""
        if (show := self._context.on_reading) is not None:
            show(count(progress.get("processed")), count(progress.get("total")))


class _ReplyText:
    """The text of a reply for its reader: without thinking, and without calls that were written as
    text if the context reads those. Shown text may have to be taken back."""

    def __init__(self, context: ReplyContext) -> None:
        self._context = context
        self._thinking, self._calls = ThinkingFilter(), self._new_calls()
        self._pieces: list[str] = []

    @property
    def thought(self) -> bool:
        """Whether there was thinking in it."""
        return self._thinking.thought

    @property
    def shown(self) -> str:
        """The text so far."""
        return "".join(self._pieces)

    def feed(self, piece: str) -> None:
        """Take a piece as it came."""
        self._take(self._thinking.feed(piece))

    def close(self, refusal: str) -> tuple[str, Sequence[TextCall]]:
        """Return the whole text, or the model's `refusal` if there is none, and the calls in it."""
        self._take(self._thinking.close())
        calls: Sequence[TextCall] = ()
        if self._calls is not None:
            read = self._calls.close()
            self._show(read.text)
            calls = read.calls
        if not self._pieces and not calls:
            self._show(refusal)
        return "".join(self._pieces), calls

    def _new_calls(self) -> TextCallFilter | None:
        context = self._context
        if not context.reads_calls:
            return None
        from nanobot.providers.textcalls import TextCallFilter  # its patterns take 15 ms

        return TextCallFilter(context.prompt.tools.specs, context.prompt)

    def _take(self, shown: Shown) -> None:
        if shown.restart:
            self._calls, self._pieces = self._new_calls(), []
            if self._context.on_text is not None:
                self._context.on_text("", True)
        self._show(shown.text if self._calls is None else self._calls.feed(shown.text))

    def _show(self, text: str) -> None:
        if text:
            self._pieces.append(text)
            if self._context.on_text is not None:
                self._context.on_text(text, False)


_PIECES = ("text", "summary", "thinking")


class _ReturnedFields:
    """The fields that a server wants back with its message, gathered from a stream."""

    def __init__(self) -> None:
        self._values: dict[str, list[Any]] = {}
        self.size = 0

    @property
    def thought(self) -> bool:
        """Whether there was thinking."""
        return any(
            name == "reasoning_details" or isinstance(values[0], str)
            for name, values in self._values.items()
        )

    @property
    def fields(self) -> Mapping[str, Any]:
        """The fields of the message. OpenRouter's details hold the text of `reasoning` as well."""
        fields = {name: _joined(values) for name, values in self._values.items()}
        if "reasoning_details" in fields:
            fields.pop("reasoning", None)
        return fields

    def add(self, fields: Mapping[str, object]) -> None:
        """Take the fields of a message or of a piece of one."""
        for name in _MESSAGE_FIELDS:
            if value := fields.get(name):
                self._values.setdefault(name, []).append(value)
                self.size += len(value if isinstance(value, str) else str(value))


def _joined(values: Sequence[Any]) -> Any:
    """Return a field from its pieces: texts become one, arrays too, of others the last counts."""
    pieces = [piece for value in values if isinstance(value, list) for piece in value]
    if pieces:
        return _entries(pieces)
    texts = [value for value in values if isinstance(value, str)]
    return "".join(texts) if texts else values[-1]


def _entries(pieces: Sequence[Any]) -> list[Any]:
    """Return the entries of an array from the pieces of them."""
    groups: list[list[Any]] = []
    for piece in pieces:
        if groups and _goes_on(groups[-1][0], piece):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [group[0] if len(group) == 1 else _merged(group) for group in groups]


def _merged(group: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Return the pieces of one entry as one: their texts become one text."""
    merged: dict[str, Any] = {}
    for piece in group:
        merged |= {key: value for key, value in piece.items() if value is not None}
    for key in _PIECES:
        if texts := [piece[key] for piece in group if isinstance(piece.get(key), str)]:
            merged[key] = "".join(texts)
    return merged


def _goes_on(last: object, piece: object) -> bool:
    """Whether a piece of an array belongs to the entry before it. OpenRouter tells entries apart by
    type and index."""
    return (
        isinstance(last, dict)
        and isinstance(piece, dict)
        and any(isinstance(piece.get(key), str) for key in (*_PIECES, "signature"))
        and "data" not in piece
        and (last.get("type"), last.get("index")) == (piece.get("type"), piece.get("index"))
    )


def _finish_of(choice: Mapping[str, object]) -> str:
    """The finish reason of a choice; some servers write the word null while there is none."""
    finish = string(choice.get("finish_reason"))
    return _FINISH.get(finish.lower(), finish)


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


_TEXT_PARTS = ("text", "output_text")


def _text_of(content: object) -> str:
    """The text of `content`: a string, or an array of parts of which only text counts."""
    if isinstance(content, str):
        return content
    parts = [mapping(part) for part in items(content)] or [mapping(content)]
    return "".join(string(part.get("text")) for part in parts if part.get("type") in _TEXT_PARTS)
