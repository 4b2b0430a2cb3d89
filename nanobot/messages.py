"""The messages of a conversation as they are stored: the value that every room speaks.

What is sent to a model is derived from these (see `nanobot.agent.prompt`) and is poorer: the API
takes neither timestamps nor provenance.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct, field

Role = Literal["user", "assistant", "tool"]

TURN_STOPPED = "[nanobot: the person stopped this turn; do not go on with it]"
TURN_FAILED = "[nanobot: this turn failed and was not answered; do not go on with it unless asked]"
"""What stands in a conversation after a turn without an answer, so that no model takes the request
before it for one that is still open."""

SILENT = "[silent]"
"""What the model answers where nobody asked and there is nothing to say: nothing is sent then."""

EDITED = "[edited: this replaces an earlier message]"
"""The line that says so in a message; which one it replaces is not known."""

_HINT_CHARACTERS = 80
_SPEAKER = re.compile(r"\[from ([^\]\n]+)\](?:\n|$)")

ATTACHED = "attached"
"""The origin of a message that holds a quote, or came with files or notes."""

PROGRAM = "api:"
"""Begins the origin of what a program sent by its API key."""


class ToolCall(Struct, frozen=True):
    """A model's wish to run a tool.

    `id` is ours: short, and unique in its conversation. `arguments` is the text of a JSON object,
    exactly as the model wrote it if that is one: re-encoding it would change the bytes of the next
    request and so defeat the provider's prompt cache. If the model's text is no JSON object and
    can't be repaired, `arguments` is `{}`, `malformed` is that text, and the call is not run.
    """

    id: str
    name: str
    arguments: str
    malformed: str = ""

    def as_api(self) -> dict[str, Any]:
        """As Chat Completions has it."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    @property
    def hint(self) -> str:
        """A short line for people: the tool's name and its first short text argument."""
        try:
            arguments = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return self.name
        values = arguments.values() if isinstance(arguments, dict) else ()
        first = next((value for value in values if isinstance(value, str) and value), "")
        return f"{self.name} {' '.join(first.split())}".strip()[:_HINT_CHARACTERS]


class ProviderData(Struct, frozen=True):
    """What a model server wants back with an assistant message it wrote: reasoning, signatures, its
    own call ids. It is opaque outside the adapters.

    It belongs to one message and so to one conversation; nothing is looked up by an id that a
    server chose. `source` names the server and the model: no other gets it back. `call_ids` are the
    server's own, in the order of the calls. `fields` go into the message, and `call_fields` into
    each of its calls, in that order. It is stored with a running turn's steps, so that a turn goes
    on after a crash, and not in the session file.
    """

    source: str
    call_ids: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    call_fields: tuple[Mapping[str, Any], ...] = ()


class Message(Struct, frozen=True, gc=False):
    """One message. `seq` counts over the session's whole life; 0 means "not numbered yet".

    `media` holds names of files that came with it, `origin` where its content came from when that
    is not the person or the model themselves (`forwarded`, `person:<id>` for somebody else in a
    group, `api:<key>` for a program, `tool:<name>`, `nanobot`; `attached`: the person's own words
    beside quotes, files, notes, which stand in lines in brackets). What the model said after it
    read such things has all their origins, with commas between. `notice` what the prompt said about
    changed memory when the message was first sent (stored so that later prompts repeat it byte for
    byte). `kept`: the person marked it to keep, which its own line does not say, nor the prompt of
    a conversation.
    """

    role: Role
    content: str
    timestamp: datetime | None = None
    seq: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    tools_used: tuple[str, ...] = ()
    turn_id: str = ""
    media: tuple[str, ...] = ()
    origin: str = ""
    notice: str = ""
    kept: bool = False
    provider_data: ProviderData | None = None

    @property
    def from_person(self) -> bool:
        """Whether a person or a program sent it; tools and nanobot itself speak from the user's
        side as well."""
        spoken = self.origin in {"", ATTACHED, "forwarded"}
        return self.role == "user" and (spoken or self.is_others)

    @property
    def is_others(self) -> bool:
        """Whether another person in a group, or a program, sent it."""
        return self.role == "user" and self.origin.startswith(("person:", PROGRAM))

    @property
    def own_words(self) -> str:
        """What the person of this conversation said in it themselves."""
        if self.role != "user" or self.origin not in {"", ATTACHED}:
            return ""
        if not self.origin:
            return self.content
        lines = self.content.split("\n")
        return "\n".join(line for line in lines if line[:1] != "[" or line[-1:] != "]")


def source_name(origin: str) -> str:
    """What people call the source of a text: `web_fetch` for `tool:web_fetch`."""
    kind, _, name = origin.partition(":")
    names = {
        "attached": "an attachment or a quote",
        "forwarded": "a forwarded message",
        "person": f"the sender {name}",
        "tool": name,
        "api": f"the program {name}",
        "job": f"the job {name}",
        "helper": f"the subagent {name}",
    }
    return names.get(kind, origin)


def speaker_in(text: str) -> str:
    """The name in front of what somebody says in a group; empty where none is."""
    found = _SPEAKER.match(text)
    return found[1] if found else ""


def attribute_message(role: str, name: str, text: str, origin: str, asker: str) -> tuple[str, str]:
    """Who said a message, as `asker` would call them, and what they said.

    `asker` is the origin of that person's own words: empty for the person of a private chat and for
    the owner, `person:<id>` for others in a group. `name` is the name of a person or tool, if any.
    """
    if role != "user":
        return ("nanobot" if role == "assistant" and name in ("", role) else name), text
    speaker, said = speaker_in(text), _SPEAKER.sub("", text, count=1)
    own = {asker} if asker else {"", ATTACHED, *(() if speaker else ("forwarded",))}
    if origin in own and name in ("", role, speaker):
        return "you", said
    if origin.startswith(PROGRAM):
        return f"the program {origin.removeprefix(PROGRAM)}", said
    names = (speaker, name.removesuffix(role), origin.removeprefix("person:"), role)
    return next(filter(None, names)), said
