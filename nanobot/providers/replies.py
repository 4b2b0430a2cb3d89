"""Parser that turns the bytes of an answer into a `Reply`.

`IncomingReply` reads the body of an answer as it arrives. It passes the visible text to the sink on
the way and returns the reply at the end.

- Thinking and tool calls that the server left in the text are removed from it (`thinking`,
  `textcalls`), also while it streams.
- A finish reason is the end only if nothing follows it: some servers put one into each piece."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from nanobot.errors import ProviderError
from nanobot.messages import ProviderData
from nanobot.providers.calls import CallAssembler, calls_from_text
from nanobot.providers.endpoint import Endpoint
from nanobot.providers.fields import count, items, mapping, string
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink, Usage
from nanobot.providers.refusals import ErrorBody, error_in, filter_error, filter_in, is_filter
from nanobot.providers.response_body import IncomingAnswer
from nanobot.providers.thinking import ThinkingFilter, VisibleText
from nanobot.text import valid_unicode

if TYPE_CHECKING:
    from nanobot.providers.textcalls import TextCall, TextCallFilter


_MESSAGE_FIELDS = (
    *("reasoning_content", "reasoning", "reasoning_details", "reasoning_opaque"),
    *("thinking_blocks", "extra_content"),
)
"""Fields that servers need back with a message that has calls."""
_NO_OPTIONS = CallOptions()
_TAIL_SECONDS, _DOUBTFUL_TAIL_SECONDS = 2.0, 10.0
"""Seconds to wait for more of an answer that seems complete. A finish reason that comes with text
is doubtful, because some servers put one into each piece."""
_FINISH = {
    **dict.fromkeys(("null", "none"), ""),
    **dict.fromkeys(("max_tokens", "model_length", "max_output_tokens"), "length"),
    **dict.fromkeys(("stop", "end_turn", "complete", "eos", "eos_token"), "stop"),
    **dict.fromkeys(("stop_sequence", "stop_str", "finish_reason_stop"), "stop"),
}
"""Other words for finish reasons: of vLLM's forks, Gemini, Mistral, Anthropic, Cohere, TGI."""
_BROKEN_OFF = ("error", "insufficient_system_resource")  # finish reasons of servers that gave up


class IncomingReply(IncomingAnswer):
    """Incoming answer to a prompt. `source` is the server and model. If `reads_calls`, markup in
    the text is read as tool calls. `from_llama` is True for llama.cpp, because only it sends
    timings."""

    def __init__(
        self,
        endpoint: Endpoint,
        prompt: Prompt,
        source: str = "",
        *,
        reads_calls: bool = False,
        on_text: TextSink | None = None,
        options: CallOptions = _NO_OPTIONS,
    ) -> None:
        super().__init__(endpoint)
        self._prompt, self._source = prompt, source
        self._on_reading = options.on_reading or (lambda _, __: None)
        self._on_thinking = on_thinking = options.on_thinking or (lambda: None)
        self._text = _ReplyText(prompt if reads_calls else None, on_text, on_thinking)
        self._calls = CallAssembler()
        self._given: dict[str, list[Any]] = {}
        """Fields that the server needs back with its message, in pieces."""
        self._refusal = self._model = self._finish = self._filtered = ""
        self._usage = Usage()
        self._characters = self._given_size = self._choices = 0
        self._went_on = self._finished_in_text = self._thought = self.from_llama = False
        self._strange: object = None

    @property
    def ending(self) -> float | None:
        if self._is_terminated:
            return _TAIL_SECONDS
        if not (self._finish and self.is_answer) or self._went_on:
            return None
        return _DOUBTFUL_TAIL_SECONDS if self._finished_in_text else _TAIL_SECONDS

    @property
    def complete(self) -> bool:
        return self._is_terminated or (bool(self._finish) and not self._went_on)

    @property
    def is_answer(self) -> bool:
        """True if it contains any answer besides thinking."""
        return bool(self._characters or len(self._calls) or self._refusal)

    @property
    def has_native_calls(self) -> bool:
        return len(self._calls) > 0

    def add_event(self, event: object) -> bool:
        """Process one chunk of a stream, or a whole completion."""
        self.events += 1
        listed = items(event)
        fields = mapping(listed[0] if listed else event)
        if (said := error_in(fields)) is not None:
            raise self._endpoint.body_error(said)
        self._model = string(fields.get("model")) or self._model
        self._filtered = self._filtered or filter_in(fields)
        self.from_llama = self.from_llama or "timings" in fields
        if usage := mapping(fields.get("usage")):
            self._usage = read_usage(usage)
        if progress := mapping(fields.get("prompt_progress")):  # llama.cpp
            self._on_reading(count(progress.get("processed")), count(progress.get("total")))
        self._strange = event
        for choice in items(fields.get("choices")):
            parts = mapping(choice)
            if count(parts.get("index")) == 0:
                self._add_choice(parts)
        self.held = self._characters + self._given_size + self._calls.size
        return True

    def reply(self) -> Reply:
        if not self._choices:
            raise self._no_choices_error()
        if self._finish in _BROKEN_OFF:
            raise self._abort_error()
        calls = self._calls.finish(self._prompt, cut=self._finish == "length")
        text, written = self._text.close(valid_unicode(self._refusal))
        data = None
        if calls:
            fields = merge_fields(self._given)
            data = ProviderData(self._source, self._calls.ids, fields, self._calls.extras)
        else:
            calls = calls_from_text(written, self._prompt)
        finish = self._finish or ("tool_calls" if calls else "stop")
        if finish == "stop" and self._filtered:
            finish = "content_filter" if text else self._filtered
        thought = self._thought or self._text.thinking.thought
        return Reply(text, calls, self._usage, finish, self._model, thought, data)

    def _add_choice(self, choice: Mapping[str, object]) -> None:
        self._choices += 1
        self._filtered = self._filtered or filter_in(choice)
        before = self._characters + self._calls.size
        whole = choice.get("delta") is None and not before
        fields = mapping(choice.get("message" if whole else "delta"))
        self._keep_fields(fields)
        content = text_of(fields.get("content") or (fields or choice).get("text"))
        self._characters += len(content)
        self._text.feed(content)
        self._refusal += string(fields.get("refusal"))
        self._calls.add(fields.get("tool_calls"), whole=whole)
        self._note_finish(choice, more=self._characters + self._calls.size > before)

    def _keep_fields(self, fields: Mapping[str, object]) -> None:
        """Keep the fields that the server needs back, such as its thinking."""
        for name in _MESSAGE_FIELDS:
            if value := fields.get(name):
                self._given.setdefault(name, []).append(value)
                self._given_size += len(value if isinstance(value, str) else str(value))
                if isinstance(value, str) or name == "reasoning_details":
                    self._thought = True
                    self._on_thinking()

    def _note_finish(self, choice: Mapping[str, object], *, more: bool) -> None:
        """Record the finish reason of a choice, which may come with `more` text or calls. If more
        text follows, it was not the end. Some servers write the word null."""
        self._went_on = self._went_on or bool(more and self._finish)
        said = string(choice.get("finish_reason"))
        if finish := _FINISH.get(said.lower(), said):
            if is_filter(self._finish) and finish == "stop":  # some proxies add a "stop"
                self._filtered = self._filtered or self._finish
            self.has_begun = True
            self._finish, self._finished_in_text = finish, more
            self._went_on = self._went_on and more

    def _abort_error(self) -> ProviderError:
        """Return the error of an aborted answer. LMDeploy writes its error as the answer's text."""
        said = ErrorBody.of("".join(self._text.pieces))
        if said.overflow or said.blames_request:
            return self._endpoint.body_error(said)
        return self._endpoint.cut_error(f"finish reason {self._finish!r}")

    def _no_choices_error(self) -> ProviderError:
        if self._filtered:
            return filter_error(self._filtered)
        said = ErrorBody.of(self._strange)
        return (
            self._endpoint.body_error(said)
            if said.message
            else self._endpoint.garbage_error("no choices")
        )


class _ReplyText:
    """Visible text of a reply, in `pieces`: without thinking, and if there is a `prompt`, without
    calls written as text. Shown text may have to be retracted."""

    def __init__(
        self, prompt: Prompt | None, on_text: TextSink | None, on_thinking: Callable[[], None]
    ) -> None:
        self._prompt, self._on_text, self._on_thinking = prompt, on_text, on_thinking
        self.thinking, self._calls = ThinkingFilter(), self._new_calls()
        self.pieces: list[str] = []

    def feed(self, piece: str) -> None:
        """Process a raw piece."""
        shown = self.thinking.feed(piece)
        if self.thinking.thought and not (shown.text or self.pieces):
            self._on_thinking()
        self._take(shown)

    def close(self, refusal: str) -> tuple[str, Sequence[TextCall]]:
        """Return the whole text, or the model's `refusal` if there is none, and the calls in it."""
        self._take(self.thinking.close())
        calls: Sequence[TextCall] = ()
        if self._calls is not None:
            read = self._calls.close()
            self._show(read.text)
            calls = read.calls
        if not self.pieces and not calls:
            self._show(refusal)
        return "".join(self.pieces), calls

    def _new_calls(self) -> TextCallFilter | None:
        if self._prompt is None:
            return None
        from nanobot.providers.textcalls import TextCallFilter  # compiling its patterns takes 15 ms

        return TextCallFilter(self._prompt.tools.specs, self._prompt)

    def _take(self, shown: VisibleText) -> None:
        if shown.restart:
            self._calls, self.pieces = self._new_calls(), []
            if self._on_text is not None:
                self._on_text("", True)
        self._show(shown.text if self._calls is None else self._calls.feed(shown.text))

    def _show(self, text: str) -> None:
        if text:
            self.pieces.append(text)
            if self._on_text is not None:
                self._on_text(text, False)


_PIECES = ("text", "summary", "thinking")


def merge_fields(given: Mapping[str, Sequence[Any]]) -> Mapping[str, Any]:
    """Return the fields from their pieces. OpenRouter's details hold `reasoning` as well."""
    names = given.keys() - ({"reasoning"} if "reasoning_details" in given else set())
    return {name: merge_values(values) for name, values in given.items() if name in names}


def merge_values(values: Sequence[Any]) -> Any:
    """Join the pieces of a field: texts and arrays are concatenated, of other types the last
    counts."""
    pieces = [piece for value in values if isinstance(value, list) for piece in value]
    if pieces:
        return merge_entries(pieces)
    texts = [value for value in values if isinstance(value, str)]
    return "".join(texts) if texts else values[-1]


def merge_entries(pieces: Sequence[Any]) -> list[Any]:
    """Join the pieces of an array's entries."""
    groups: list[list[Any]] = []
    for piece in pieces:
        if groups and continues_entry(groups[-1][0], piece):
            groups[-1].append(piece)
        else:
            groups.append([piece])
    return [group[0] if len(group) == 1 else merge_pieces(group) for group in groups]


def merge_pieces(group: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """Merge the pieces of one entry, with their texts joined."""
    merged: dict[str, Any] = {}
    for piece in group:
        merged |= {key: value for key, value in piece.items() if value is not None}
    for key in _PIECES:
        if texts := [piece[key] for piece in group if isinstance(piece.get(key), str)]:
            merged[key] = "".join(texts)
    return merged


def continues_entry(last: object, piece: object) -> bool:
    """Return True if a piece of an array continues the previous entry. OpenRouter distinguishes
    entries by type and index."""
    return (
        isinstance(last, dict)
        and isinstance(piece, dict)
        and any(isinstance(piece.get(key), str) for key in (*_PIECES, "signature"))
        and "data" not in piece
        and (last.get("type"), last.get("index")) == (piece.get("type"), piece.get("index"))
    )


def read_usage(fields: Mapping[str, object]) -> Usage:
    """Return token counts, with the cached ones wherever the server puts them."""
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


def text_of(content: object) -> str:
    """Return the text of `content`: a string, or the text parts of an array."""
    if isinstance(content, str):
        return content
    parts = [mapping(part) for part in items(content)] or [mapping(content)]
    return "".join(string(part.get("text")) for part in parts if part.get("type") in _TEXT_PARTS)
