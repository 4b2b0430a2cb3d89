"""From a prompt to the body of a Messages request, as pure functions.

The API is strict about the form of a conversation, so this is where any prompt gets it:

- user and assistant speak in turn, the user first and last: neighbours become one message;
- each `tool_use` has exactly one `tool_result`, at the beginning of the next message and in the
  order of the calls; a result without its call is left out, a missing one is an error;
- no text is blank, the assistant's ends without white space, the input of a tool is an object, ids
  are unique and have the API's characters, no text has half a surrogate pair.

The same prompt gives the same bytes, and a longer prompt begins with the blocks of its prefix, so
Claude's prompt cache keeps matching. Call ids are always ours. The API accepts any, and the
server's ids are lost in a restart, which would change the bytes of the history.

Sources: https://platform.claude.com/docs/en/api/messages/create,
https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls,
https://platform.claude.com/docs/en/build-with-claude/thinking (thinking with tools)
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct, field

from nanobot.messages import ToolCall
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import Prompt, PromptMessage, Toolset
from nanobot.providers.prompt_caching import anthropic_cache_breakpoints
from nanobot.text import valid_unicode

NO_RESULT = "error: this call has no result"
BEGINNING = "(the conversation goes on)"
CONTINUE = "(go on)"
WORDLESS = "(no text)"
"""Short texts for places where the API wants a user's message and the conversation has none."""

_MARK = b',"cache_control":{"type":"ephemeral"}}'
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")
_CALL_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")
_COMBINED = ("oneOf", "allOf", "anyOf")
_ANY_OBJECT: Mapping[str, object] = {"type": "object"}

THINKING_TYPES = ("thinking", "redacted_thinking")


def encoded(value: object) -> bytes:
    """JSON as it is sent, which is always valid UTF-8."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return valid_unicode(json.dumps(value, ensure_ascii=False)).encode()


class WireTurn(Struct):
    """One message of a request: its blocks as JSON, how many of them are tool results, whether it
    begins with thinking, and whether its last block gets a cache breakpoint."""

    role: Literal["user", "assistant"]
    blocks: list[bytes]
    results: int = 0
    thinks: bool = False
    cached: bool = False

    @property
    def only_results(self) -> bool:
        """Whether there is nothing but tool results in it."""
        return self.results == len(self.blocks)

    def json(self) -> bytes:
        """The message as it is sent."""
        blocks = self.blocks
        if self.cached:
            blocks = [*blocks[:-1], blocks[-1][:-1] + _MARK]
        return b'{"role":"%s","content":[%s]}' % (self.role.encode(), b",".join(blocks))


class Conversation(Struct):
    """The system prompt and the messages of a request."""

    system: list[bytes] = field(default_factory=list)
    turns: list[WireTurn] = field(default_factory=list)

    @classmethod
    def of(
        cls, messages: Sequence[PromptMessage], source: str = "", stale: Collection[str] = ()
    ) -> Conversation:
        """Bring `messages` into the API's form. Thinking goes back to the `source` that it came
        from, unless it has one of the `stale` signatures."""
        return _Writer(messages, source, stale).write()

    @property
    def begins_with_thinking(self) -> bool:
        """Whether the assistant's turn that is to go on, if any, began with thinking. With a fixed
        budget for thinking, the API takes a running turn only so."""
        turns = self.turns
        if not turns[-1].results:
            return True
        start = len(turns) - 2
        while start >= 2 and turns[start - 1].only_results:
            start -= 2
        return turns[start].thinks

    def wire_system(self) -> bytes:
        """The `system` array as JSON, with its breakpoint; empty if there is no system prompt."""
        if not self.system:
            return b""
        return b"[" + b",".join([*self.system[:-1], self.system[-1][:-1] + _MARK]) + b"]"

    def wire_messages(self) -> bytes:
        """The `messages` array as JSON, with its breakpoints."""
        return b"[" + b",".join([turn.json() for turn in self.turns]) + b"]"


def signatures(messages: Sequence[PromptMessage], source: str) -> Iterator[str]:
    """The signatures of all thinking that came from `source`."""
    for message in messages:
        for block in _content(message, source):
            if block.get("type") in THINKING_TYPES:
                yield _signature(block)


def tools_of(prompt: Prompt) -> bytes:
    """The `tools` array as JSON, or nothing. The API wants tools defined if any were called, so
    without a toolset the names in the conversation are."""
    if prompt.tools.specs:
        return wire_tools(prompt.tools)
    called = dict.fromkeys(call.name for one in prompt.messages for call in one.tool_calls)
    if not called:
        return b""
    return encoded([{"name": name, "input_schema": _ANY_OBJECT} for name in called])


def wire_tools(tools: Toolset) -> bytes:
    """The `tools` array of a toolset as JSON."""
    described = []
    for spec in tools.specs:
        tool: dict[str, object] = {"name": spec.name}
        if spec.description.strip():
            tool["description"] = spec.description
        # The API refuses combined schemas at the top level, and wants an object there.
        schema = {name: value for name, value in spec.parameters.items() if name not in _COMBINED}
        described.append(tool | {"input_schema": schema | {"type": "object"}})
    return encoded(described)


class _Writer:
    """Writes one conversation. Between two assistant messages it gathers the results of the first
    one's calls, and the messages to the model."""

    def __init__(
        self, messages: Sequence[PromptMessage], source: str, stale: Collection[str]
    ) -> None:
        self._messages, self._source, self._stale = messages, source, stale
        self._marked = set(anthropic_cache_breakpoints(messages))
        self._calls: list[tuple[str, str]] = []
        """The calls of the last assistant message: the stored id of each, and the one it is sent
        with."""
        self._used: set[str] = set()
        self._results: dict[str, bytes] = {}
        self._said: list[bytes] = []
        self._cached = False
        self._written = Conversation()

    def write(self) -> Conversation:
        turns = self._written.turns
        for position, message in enumerate(self._messages):
            if message.role == "assistant":
                self._add_assistant(message)
            elif message.role == "system" and not turns and not self._said:
                if message.text.strip():
                    self._written.system.append(_text(message.text))
            else:
                self._add_said(message)
                self._cached = self._cached or position in self._marked
        self._close_user()
        if not turns or turns[-1].role == "assistant":
            turns.append(WireTurn("user", [_text(CONTINUE if turns else WORDLESS)]))
        return self._written

    def _add_assistant(self, message: PromptMessage) -> None:
        turns = self._written.turns
        follows = bool(turns) and turns[-1].role == "assistant" and not (self._calls or self._said)
        # A message with thinking has to begin with it, so joined text comes without.
        content: Sequence[Mapping[str, object]]
        content = self._returned(message, "" if follows else self._source)
        if not message.tool_calls:
            content = _without_last_thinking(content)
        ids = self._new_ids(message.tool_calls)
        calls = [_call(call, id) for call, id in zip(message.tool_calls, ids, strict=True)]
        blocks = _assistant_blocks(content) + calls
        if not blocks:
            return
        self._close_user()
        if not turns:
            turns.append(WireTurn("user", [_text(BEGINNING)]))
        if turns[-1].role == "assistant":
            turns[-1].blocks += blocks
        else:
            thinks = bool(content) and content[0].get("type") in THINKING_TYPES
            turns.append(WireTurn("assistant", blocks, thinks=thinks))
        self._calls = [(call.id, id) for call, id in zip(message.tool_calls, ids, strict=True)]

    def _add_said(self, message: PromptMessage) -> None:
        if message.role == "tool":
            for stored, id in self._calls:
                if stored == message.tool_call_id and id not in self._results:
                    self._results[id] = _result(id, message.text)
                    return
            return
        if message.text.strip() or not message.images:
            self._said.append(_text(message.text if message.text.strip() else WORDLESS))
        self._said += [_image(image.mime, image.data) for image in message.images]

    def _close_user(self) -> None:
        """Write the user message that follows the last assistant message, if there is one."""
        results = [
            self._results.get(id) or _result(id, NO_RESULT, failed=True) for _, id in self._calls
        ]
        if blocks := results + self._said:
            turn = WireTurn("user", blocks, len(results), cached=self._cached)
            self._written.turns.append(turn)
        self._calls, self._results, self._said, self._cached = [], {}, [], False

    def _new_ids(self, calls: Sequence[ToolCall]) -> list[str]:
        """The ids under which calls are sent: their own, unless the API would refuse one."""
        ids = []
        for call in calls:
            id, attempt = call.id, 0
            while id in self._used or not _CALL_ID.fullmatch(id):
                seed = f"{call.id}\0{attempt}".encode("utf-8", "surrogatepass")
                id, attempt = hashlib.sha256(seed).hexdigest()[:9], attempt + 1
            self._used.add(id)
            ids.append(id)
        return ids

    def _returned(self, message: PromptMessage, source: str) -> list[Mapping[str, object]]:
        """Return the model's thinking and text in their order, or only the text. If the text was
        shortened later, it is the shortened one."""
        content = _content(message, source)
        if any(_signature(block) in self._stale for block in content):
            content = []
        text = "".join(string(one.get("text")) for one in content if one.get("type") == "text")
        if not content or text != message.text:
            content = [one for one in content if one.get("type") in THINKING_TYPES]
            content.append({"type": "text", "text": message.text})
        return content


def _content(message: PromptMessage, source: str) -> list[Mapping[str, object]]:
    """The thinking and text that came from `source` with a message."""
    data = message.provider_data
    if data is None or data.source != source:
        return []
    return [mapping(block) for block in items(data.fields.get("content"))]


def _signature(block: Mapping[str, object]) -> str:
    return string(block.get("signature")) or string(block.get("data"))


def _assistant_blocks(content: Sequence[Mapping[str, object]]) -> list[bytes]:
    """The blocks as JSON, without white space at the end of text."""
    blocks = []
    for block in content:
        if block.get("type") != "text":
            blocks.append(encoded(block))
        elif text := string(block.get("text")).rstrip():
            blocks.append(_text(text))
    return blocks


def _without_last_thinking(
    content: Sequence[Mapping[str, object]],
) -> Sequence[Mapping[str, object]]:
    """The content up to its last text: the API takes no message that ends with thinking."""
    end = len(content)
    while end and (
        content[end - 1].get("type") != "text" or not string(content[end - 1].get("text")).strip()
    ):
        end -= 1
    return content[:end]


def _text(text: str) -> bytes:
    return encoded({"type": "text", "text": text})


def _image(mime: str, data: str) -> bytes:
    if mime not in _IMAGE_TYPES:
        return _text(f"[a picture in a format that cannot be shown: {mime}]")
    source = {"type": "base64", "media_type": mime, "data": data}
    return encoded({"type": "image", "source": source})


def _result(id: str, text: str, *, failed: bool = False) -> bytes:
    fields: dict[str, object] = {"type": "tool_result", "tool_use_id": id, "content": text}
    return encoded(fields | {"is_error": True} if failed else fields)


def _call(call: ToolCall, id: str) -> bytes:
    body = {
        "type": "tool_use",
        "id": id,
        "name": call.name,
        "input": msgspec.Raw(call.arguments.encode()),
    }
    return encoded(body)
