"""Tool calls of a reply, assembled from a stream, a whole message or the reply's text.

They arrive whole or in pieces, with or without index or id. The result can always be sent back: ids
are ours and unique in the prompt, names use the API's characters, and arguments are the text of a
JSON object, as the model wrote it if possible."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.messages import ToolCall
from nanobot.providers.arguments import fitting_name, read_arguments
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.port import Prompt
from nanobot.text import valid_unicode

if TYPE_CHECKING:
    from nanobot.providers.textcalls import TextCall

_AROUND_NAME = r"(?as)\s*(?:(?:functions|default_api)[.:])?([\w-]+)(?:\(\)|:[0-9]+|<\|.*)?\s*"
_ID_LENGTH = 9  # every server accepts nine letters and digits, some nothing else
_MALFORMED = 1_000  # characters of malformed arguments that the model gets back
_CUT = " [cut off at the token limit for one answer: write less at once]"
_CALL_FIELDS = ("extra_content", "provider_specific_fields", "thought_signature")
"""Fields that servers need back with a call: Gemini's signatures, also through LiteLLM."""


class _Draft(Struct):
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)
    extra: dict[str, object] = field(default_factory=dict)


class CallAssembler:
    """Tool calls of one reply. `size` is their length in characters."""

    def __init__(self) -> None:
        self._drafts: list[_Draft] = []
        self._by_index: dict[int, _Draft] = {}
        self.size = 0

    def __len__(self) -> int:
        return len(self._drafts)

    def add(self, pieces: object, *, whole: bool) -> None:
        """Add a `tool_calls` array: of a delta, or of a `whole` message, in which each item is a
        call."""
        for piece in items(pieces):
            fields = mapping(piece)
            function = mapping(fields.get("function"))
            name = string(function.get("name"))
            call_id = string(fields.get("id"))
            draft = self._begin(call_id) if whole else self._find_draft(fields, call_id, name)
            if name != draft.name:
                draft.name += name
            arguments = encode_arguments(function.get("arguments"))
            draft.arguments.append(arguments)
            extra = {key: fields[key] for key in _CALL_FIELDS if fields.get(key)}
            draft.extra |= extra
            self.size += len(name) + len(arguments) + (len(str(extra)) if extra else 0)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(draft.id for draft in self._drafts)

    @property
    def extras(self) -> tuple[Mapping[str, object], ...]:
        """The fields of each call that the server needs back."""
        return tuple(draft.extra for draft in self._drafts)

    def finish(self, prompt: Prompt, *, cut: bool) -> tuple[ToolCall, ...]:
        """Return the calls with our ids. `cut`: the reply ended at the token limit."""
        given = [(draft.name, "".join(draft.arguments)) for draft in self._drafts]
        return make_calls(given, prompt, cut=cut)

    def _begin(self, call_id: str) -> _Draft:
        self._drafts.append(_Draft(call_id))
        return self._drafts[-1]

    def _find_draft(self, piece: Mapping[str, object], call_id: str, name: str) -> _Draft:
        """Return the call that a piece of a stream belongs to."""
        index, current = piece.get("index"), self._drafts[-1] if self._drafts else None
        if isinstance(index, int):
            current = self._by_index.get(index)
        # Some servers number every call 0 or none of them: a new id with a name is a new call.
        is_other = current.id not in ("", call_id) if current and call_id else index is None
        if current is None or (name and is_other):
            current = self._begin(call_id)
        current.id = current.id or call_id
        if isinstance(index, int):
            self._by_index[index] = current
        return current


def calls_from_text(written: Sequence[TextCall], prompt: Prompt) -> tuple[ToolCall, ...]:
    """Return tool calls for the calls that a model wrote as text. A call that is unreadable or does
    not fit its tool is malformed, and the model gets it back."""
    calls = make_calls([(one.name, one.arguments) for one in written], prompt)
    return tuple(
        replace(call, arguments="{}", malformed=f"{one.problem}: {shorten_middle(one.markup)}")
        if one.problem
        else call
        for call, one in zip(calls, written, strict=True)
    )


def make_calls(
    given: Sequence[tuple[str, str]], prompt: Prompt, *, cut: bool = False
) -> tuple[ToolCall, ...]:
    """Return tool calls for a model's names and argument texts. Ids are short, unique in `prompt`,
    and practically unique across prompts. If the reply was `cut`, no arguments are repaired."""
    if not given:
        return ()
    used = {call.id for message in prompt.messages for call in message.tool_calls}
    calls = []
    for position, (name, text) in enumerate(given):
        written = valid_unicode(text).strip()
        arguments = read_arguments(written, repair=not cut)
        malformed = "" if arguments is not None else shorten_middle(written) + (_CUT if cut else "")
        attempt, call_id = 0, ""
        while not call_id or call_id in used:
            seed = "\0".join(map(str, (len(prompt.messages), name, written, position, attempt)))
            call_id = hashlib.sha256(seed.encode("utf-8", "surrogatepass")).hexdigest()[:_ID_LENGTH]
            attempt += 1
        used.add(call_id)
        calls.append(ToolCall(call_id, match_name(name, prompt), arguments or "{}", malformed))
    return tuple(calls)


def match_name(name: str, prompt: Prompt) -> str:
    """Return a name in the API's characters, without the markup that models put around it:
    `functions.NAME:0` (Kimi), `default_api.NAME` (Gemini), `NAME<|channel|>json` (gpt-oss)."""
    found = re.fullmatch(_AROUND_NAME, name)
    if found and found[1] in {spec.name for spec in prompt.tools.specs}:
        return found[1]
    return fitting_name(name)


def shorten_middle(text: str) -> str:
    half = _MALFORMED // 2
    return text if len(text) <= _MALFORMED else f"{text[:half]} […] {text[-half:]}"


def encode_arguments(arguments: object) -> str:
    if isinstance(arguments, str):
        return arguments
    return "" if arguments is None else json.dumps(arguments)
