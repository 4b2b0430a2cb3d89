"""What some servers want back of their own answers, beside text and calls, and the forms that they
insist on.

Gemini signs tool calls (`extra_content`) and refuses a turn whose calls come back unsigned;
DeepSeek's thinking models want the thinking before a call (`reasoning_content`). Neither belongs to
the conversation, which may go on with another model, so it is not stored: it is kept here while the
process runs. Where it is not there, as after a start or for another model's calls, what stands in
for it goes out. Mistral takes no ids of calls but those of nine letters and digits.

Invariant: nothing gets from one conversation into another. So only ids count that the server made
and that are long enough to be random; a server that numbers its calls has nothing kept.

Sources: https://ai.google.dev/gemini-api/docs/thought-signatures,
https://api-docs.deepseek.com/guides/thinking_mode
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from nanobot.messages import ToolCall
from nanobot.providers.port import Prompt, PromptMessage

_MOST_CHARACTERS = 4 * 1024 * 1024
_UNSIGNED = {"google": {"thought_signature": "skip_thought_signature_validator"}}
"""What Gemini's documentation has for calls that were not its own."""
_RANDOM_LENGTH = 9
_SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")


class Insistence(Struct, frozen=True):
    """What a server turned out to insist on: `signed` calls, the `thinking` before calls, and
    `short_ids`."""

    signed: bool = False
    thinking: bool = False
    short_ids: bool = False


class _Kept(Struct, frozen=True):
    extra: Mapping[str, Any]
    thinking: str

    @property
    def size(self) -> int:
        return len(str(self.extra)) + len(self.thinking)


class ReturnedFields:
    """What one server gave along with its calls, by their ids: the latest 4 million characters."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._size = 0

    def keep(
        self,
        calls: Sequence[ToolCall],
        given: Sequence[tuple[str, Mapping[str, Any]]],
        thinking: str,
    ) -> None:
        """Keep what was `given` with each call: the id that the server has for it, and its
        `extra_content`; and the thinking before them, for the first stands for the message."""
        for call, (id, extra) in zip(calls, given, strict=True):
            if (extra or thinking) and id == call.id and len(id) >= _RANDOM_LENGTH:
                if known := self._kept.pop(id, None):
                    self._size -= known.size
                self._kept[id] = kept = _Kept(extra, thinking)
                self._size += kept.size
            thinking = ""
        while self._size > _MOST_CHARACTERS:
            self._size -= self._kept.popitem(last=False)[1].size

    def wire_messages(self, prompt: Prompt, wants: Insistence) -> bytes:
        """The `messages` array as JSON, with what is kept of calls and what the server wants. The
        same prompt gives the same bytes as long as nothing is lost."""
        if not self._kept and wants == Insistence():
            return prompt.wire_messages()
        return b"[" + b",".join([self._wire(one, wants) for one in prompt.messages]) + b"]"

    def _wire(self, message: PromptMessage, wants: Insistence) -> bytes:
        if message.tool_call_id and wants.short_ids:
            body = json.loads(message.wire)
            body["tool_call_id"] = _short(message.tool_call_id)
            return _encoded(body)
        kept = [self._kept.get(call.id) for call in message.tool_calls]
        if not kept or not (wants != Insistence() or any(one and one.extra for one in kept)):
            return message.wire
        body = json.loads(message.wire)
        for call, one in zip(body["tool_calls"], kept, strict=True):
            if one and one.extra:
                call["extra_content"] = one.extra
            elif wants.signed and call is body["tool_calls"][0]:
                call["extra_content"] = _UNSIGNED
            if wants.short_ids:
                call["id"] = _short(call["id"])
        if wants.thinking:
            body["reasoning_content"] = kept[0].thinking if kept[0] else ""
        return _encoded(body)


def _short(id: str) -> str:
    return id if _SHORT_ID.fullmatch(id) else hashlib.sha256(id.encode()).hexdigest()[:9]


def _encoded(body: object) -> bytes:
    return json.dumps(body, separators=(",", ":")).encode()
