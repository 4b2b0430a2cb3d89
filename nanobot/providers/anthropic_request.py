"""Pure functions that turn a prompt into the body of a Messages request.

The API is strict about the form of a conversation, so any prompt is brought into that form:

- user and assistant take turns, the user first and last: neighbours become one message;
- each `tool_use` has exactly one `tool_result`, at the beginning of the next message and in the
  order of the calls; a result without its call is left out, a missing one is an error;
- no text is blank, the assistant's ends without white space, the input of a tool is an object, ids
  are unique and have the API's characters, no text has half a surrogate pair.

The same prompt gives the same bytes, and a longer prompt begins with the blocks of its prefix, so
Claude's prompt cache keeps matching. Call ids are always ours. The API accepts any, and the
server's ids are lost in a restart, which would change the bytes of the history.

Sources: https://platform.claude.com/docs/en/api/messages/create,
https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls,
https://platform.claude.com/docs/en/build-with-claude/thinking (thinking with tools)"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Literal

import msgspec
from msgspec import Struct

from nanobot.messages import ToolCall
from nanobot.providers.dialogue import (
    NO_RESULT,
    WireIds,
    anthropic_cache_breakpoints,
    with_results,
)
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import Prompt, PromptMessage, Toolset
from nanobot.text import valid_unicode

BEGINNING = "(the conversation goes on)"
CONTINUE = "(go on)"
WORDLESS = "(no text)"
"""Short texts where the API requires a user message and the conversation has none."""

_MARK = b',"cache_control":{"type":"ephemeral"}}'  # replaces the end of a block
_IMAGE_TYPES = ("image/jpeg", "image/png", "image/gif", "image/webp")  # accepted by the API
_COMBINED = ("oneOf", "allOf", "anyOf")  # refused at the top level
_ANY_OBJECT: Mapping[str, object] = {"type": "object"}

THINKING_TYPES = ("thinking", "redacted_thinking")


def encode_json(value: object) -> bytes:
    """Return JSON as it is sent, always valid UTF-8."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return valid_unicode(json.dumps(value, ensure_ascii=False)).encode()


class WireTurn(Struct):
    """A message of a request: `blocks` as JSON, the number of `results` among them, whether it
    begins with thinking, and whether its last block gets a cache breakpoint."""

    role: Literal["user", "assistant"]
    blocks: list[bytes]
    results: int = 0
    thinks: bool = False
    cached: bool = False

    @property
    def only_results(self) -> bool:
        return self.results == len(self.blocks)

    def json(self) -> bytes:
        blocks = self.blocks
        if self.cached:
            blocks = [*blocks[:-1], blocks[-1][:-1] + _MARK]
        return b'{"role":"%s","content":[%s]}' % (self.role.encode(), b",".join(blocks))


class Conversation(Struct):
    """System prompt and messages of a request."""

    system: list[bytes]
    turns: list[WireTurn]

    @property
    def begins_with_thinking(self) -> bool:
        """True if the assistant's running turn began with thinking, or there is none. With a fixed
        budget for thinking, the API requires this."""
        turns = self.turns
        if not turns[-1].results:
            return True
        start = len(turns) - 2
        while start >= 2 and turns[start - 1].only_results:
            start -= 2
        return turns[start].thinks

    def wire_system(self) -> bytes:
        """Return the `system` array as JSON with its breakpoint, or nothing without a system
        prompt."""
        if not self.system:
            return b""
        return b"[" + b",".join([*self.system[:-1], self.system[-1][:-1] + _MARK]) + b"]"

    def wire_messages(self) -> bytes:
        return b"[" + b",".join([turn.json() for turn in self.turns]) + b"]"


def signatures(messages: Sequence[PromptMessage], source: str) -> Iterator[str]:
    """Yield the signatures of all thinking from `source`."""
    for message in messages:
        for block in read_content(message, source):
            if block.get("type") in THINKING_TYPES:
                yield signature_of(block)


def tools_of(prompt: Prompt) -> bytes:
    """Return the `tools` array as JSON, or nothing. The API requires tools if any were called, so
    without a toolset the called names are defined."""
    if prompt.tools.specs:
        return wire_tools(prompt.tools)
    called = dict.fromkeys(call.name for one in prompt.messages for call in one.tool_calls)
    if not called:
        return b""
    return encode_json([{"name": name, "input_schema": _ANY_OBJECT} for name in called])


def wire_tools(tools: Toolset) -> bytes:
    described = []
    for spec in tools.specs:
        tool: dict[str, object] = {"name": spec.name}
        if spec.description.strip():
            tool["description"] = spec.description
        # The API refuses combined schemas at the top level and requires an object there.
        schema = {name: value for name, value in spec.parameters.items() if name not in _COMBINED}
        described.append(tool | {"input_schema": schema | {"type": "object"}})
    return encode_json(described)


def conversation_of(
    messages: Sequence[PromptMessage], source: str = "", stale: Collection[str] = ()
) -> Conversation:
    """Bring `messages` into the API's form. Thinking is only returned to the `source` that produced
    it, and not with one of the `stale` signatures."""
    prompts = [one.text for one in messages if one.role == "system"]
    system = list(map(encode_text, filter(str.strip, prompts)))
    said = list(with_results(messages))
    marked, ids = set(anthropic_cache_breakpoints(said)), WireIds("any")
    turns = [WireTurn("user", [])]
    called: list[str] = []
    """Ids of the calls without a result so far, in reverse."""
    for position, message in enumerate(said):
        last = turns[-1]
        if message.role == "assistant":
            called = list(ids.of(message.tool_calls, None))
            # A message with thinking must begin with it, so joined text has none.
            turn = build_answer(message, called, "" if last.role == "assistant" else source, stale)
            called.reverse()  # results are popped in the order of the calls
        else:
            turn = WireTurn("user", build_user_blocks(message, called), int(message.role == "tool"))
        if turn.blocks and turn.role != last.role:
            turns.append(turn)
        else:
            last.blocks += turn.blocks
            last.results += turn.results
        turns[-1].cached |= position in marked
    turns[0].blocks = turns[0].blocks or [encode_text(BEGINNING)]  # the user must be first
    if turns[-1].role == "assistant":
        turns.append(WireTurn("user", [encode_text(CONTINUE)]))  # and last
    return Conversation(system, turns)


def build_answer(
    message: PromptMessage, ids: Sequence[str], source: str, stale: Collection[str]
) -> WireTurn:
    """Return the model's message with these ids for its calls. No text ends with white space."""
    content = restore_content(message, source, stale)
    blocks: list[bytes] = []
    for block in content:
        if block.get("type") != "text":
            blocks.append(encode_json(block))
        elif text := string(block.get("text")).rstrip():
            blocks.append(encode_text(text))
    blocks += map(encode_call, message.tool_calls, ids)
    thinks = any(block.get("type") in THINKING_TYPES for block in content[:1])
    return WireTurn("assistant", blocks, thinks=thinks)


def build_user_blocks(message: PromptMessage, called: list[str]) -> list[bytes]:
    """Return a user message or a result as blocks. A result takes its id from `called`."""
    if message.role == "tool":
        fields: dict[str, object] = {"type": "tool_result", "tool_use_id": called.pop()}
        fields["content"] = message.text
        if message.text == NO_RESULT:
            fields["is_error"] = True
        return [encode_json(fields)]
    blocks = [encode_image(image.mime, image.data) for image in message.images]
    if message.text.strip() or not blocks:
        blocks.insert(0, encode_text(message.text if message.text.strip() else WORDLESS))
    return blocks


def restore_content(
    message: PromptMessage, source: str, stale: Collection[str]
) -> Sequence[Mapping[str, object]]:
    """Return the model's thinking and text in order, or only the text. A text that was shortened
    later replaces the original."""
    content = read_content(message, source, stale)
    text = "".join(string(one.get("text")) for one in content if one.get("type") == "text")
    if not content or text != message.text:
        thinking = [one for one in content if one.get("type") in THINKING_TYPES]
        content = [*thinking, {"type": "text", "text": message.text}]
    # The API refuses a message that ends with thinking.
    while content and not (message.tool_calls or string(content[-1].get("text")).strip()):
        content = content[:-1]
    return content


def read_content(
    message: PromptMessage, source: str, stale: Collection[str] = ()
) -> list[Mapping[str, object]]:
    """Return a message's thinking and text from `source`, or nothing if any of it is stale."""
    data = message.provider_data
    if data is None or data.source != source:
        return []
    content = [mapping(block) for block in items(data.fields.get("content"))]
    return [] if any(signature_of(block) in stale for block in content) else content


def signature_of(block: Mapping[str, object]) -> str:
    return string(block.get("signature")) or string(block.get("data"))


def encode_text(text: str) -> bytes:
    return encode_json({"type": "text", "text": text})


def encode_image(mime: str, data: str) -> bytes:
    if mime not in _IMAGE_TYPES:
        return encode_text(f"[a picture in a format that cannot be shown: {mime}]")
    source = {"type": "base64", "media_type": mime, "data": data}
    return encode_json({"type": "image", "source": source})


def encode_call(call: ToolCall, id: str) -> bytes:
    body = {
        "type": "tool_use",
        "id": id,
        "name": call.name,
        "input": msgspec.Raw(call.arguments.encode()),
    }
    return encode_json(body)
