"""Putting tool calls together from what servers send.

A call comes whole or in pieces, with an index or without, with an id or without one. What comes out
can always be sent back: ids are there and differ from each other and from those already in the
prompt, names consist of the characters the API takes. Arguments stay the text the model wrote,
because checking them is the tool gate's business; only "nothing" becomes an empty object.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from nanobot.messages import ToolCall
from nanobot.providers.fields import items, mapping, string
from nanobot.providers.thinking import mend_surrogates

_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 64
_ID_LENGTH = 9
"""Every server takes ids of nine letters and digits; some take nothing else."""


@dataclass(slots=True)
class _Draft:
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list)


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

    def finish(self, taken: Iterable[str], seed: str) -> tuple[ToolCall, ...]:
        """The calls. `taken` are ids in use; `seed` makes new ids differ from prompt to prompt."""
        used = set(taken)
        calls = []
        for position, draft in enumerate(self._drafts):
            arguments = mend_surrogates("".join(draft.arguments)).strip() or "{}"
            call_id = draft.id
            attempt = 0
            while not call_id or call_id in used:
                parts = (seed, draft.id, draft.name, arguments, str(position), str(attempt))
                call_id = _digest("\0".join(parts))
                attempt += 1
            used.add(call_id)
            calls.append(ToolCall(call_id, _sendable_name(draft.name), arguments))
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


def _sendable_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("_", name)[:_LONGEST_NAME] or "unnamed"


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
    return digest[:_ID_LENGTH]
