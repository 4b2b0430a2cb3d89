"""The messages of a conversation as they are stored. All rooms use these types.

The prompt is derived from these (see `nanobot.agent.prompt`) and has less: the API takes neither
timestamps nor provenance."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, field

from nanobot.text import one_line

Role = Literal["user", "assistant", "tool"]

TURN_STOPPED = "[nanobot: the person stopped you here; do not go on unless asked]"
TURN_FAILED = "[nanobot: this turn failed and was not answered; do not go on with it unless asked]"
"""Both end a turn without a complete answer, so that no model takes its request for open."""

SILENT = "[silent]"
"""The model's answer to an unattended prompt if there is nothing to report. It is not sent."""

EDITED = "[edited: this replaces an earlier message]"
"""Line that marks a message as an edit. The message that it replaces is unknown."""

_HINT_CHARACTERS = 80
_SPEAKER = re.compile(r"\[from ([^\]\n]+)\](?:\n|$)")

ATTACHED = "attached"
"""Origin of a message that holds a quote, or came with files or notes."""

MEDIA = "media"
"""Name of the folder of the files in the home."""

PROGRAM = "api:"
"""Prefix of the origin of a message that a program sent with its API key."""


class ToolCall(Struct, frozen=True):
    """A tool call of the model.

    `id` is nanobot's: short, and unique in its conversation. `arguments` is the text of a JSON
    object, exactly as the model wrote it if valid: re-encoding would change the next request's
    bytes and miss the provider's prompt cache. If the text can't be repaired, `arguments` is `{}`,
    `malformed` is the text, and the call is not run."""

    id: str
    name: str
    arguments: str
    malformed: str = ""

    def as_api(self) -> dict[str, Any]:
        """Return the call in the format of Chat Completions."""
        function = {"name": self.name, "arguments": self.arguments}
        return {"id": self.id, "type": "function", "function": function}

    @property
    def hint(self) -> str:
        """Short line for people: the tool's name and its first short text argument."""
        try:
            arguments = json.loads(self.arguments)
        except (ValueError, RecursionError):
            return self.name
        values = arguments.values() if isinstance(arguments, dict) else ()
        first = next((value for value in values if isinstance(value, str) and value), "")
        return f"{self.name} {' '.join(first.split())}".strip()[:_HINT_CHARACTERS]


class ProviderData(Struct, frozen=True):
    """Data that a model server requires back with its message: reasoning, signatures, its own call
    ids. Only the provider adapters read it.

    It belongs to one message, and nothing is looked up by an id that a server chose. `source` names
    the server and the model, and no other gets it back. `call_ids` are the server's, in the order
    of the calls. `fields` go into the message, and `call_fields` into its calls, in that order. It
    is stored with a running turn's steps, so that a turn continues after a crash, but not in the
    session file."""

    source: str
    call_ids: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    call_fields: tuple[Mapping[str, Any], ...] = ()


class Attachment(Struct, frozen=True, omit_defaults=True):
    """A file that came with a message. `file` is its name in the media folder, empty if it is not
    stored. `name` is the sender's name for it, `size` is in bytes, `mime` its type, and `kind` how
    a chat shows it (`image`). `note` tells what became of it (`transcribed above`)."""

    file: str
    kind: str = ""
    name: str = ""
    mime: str = ""
    size: Annotated[int, Meta(ge=0, le=2**62)] = 0
    note: str = ""

    @property
    def line(self) -> str:
        """The file as the model sees it: `[image cat.png, kept as media/9f….png]`."""
        named = one_line(f"{self.kind or 'file'} {self.name}", None)
        if not self.file:
            return f"[{named}: {self.note}]"
        kept = f"{named}, kept as {MEDIA}/{self.file}"
        return f"[{kept}; {self.note}]" if self.note else f"[{kept}]"


class Message(Struct, frozen=True, gc=False):
    """One message. `seq` counts over the session's whole life. 0 means "not numbered yet".

    `content` is what people read, and `media` are its files. `notice` is only for the model: lines
    before the text, such as changes of memory, or the end of a stopped turn. It is stored, so that
    later prompts repeat it byte for byte. `about` tells the model where nanobot wrote the text:
    `said here by the job “tea”`. `origin` is empty for the person's and the model's
    own words, else it is the source: `forwarded`, `person:<id>` for another person in a group,
    `api:<key>` for a program, `tool:<name>`, `nanobot`, or `attached` for the person's own words
    with files, or with quotes or notes as bracketed lines. If the model read such content, its
    message has all those origins, separated by commas. `kept`: the person marked it to keep.
    Neither its line nor the prompt shows that. `replaces` are the retracted turns in whose place
    this message was sent again, oldest first (`/retry`, `/edit`)."""

    role: Role
    content: str
    timestamp: datetime | None = None
    seq: int = 0
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str = ""
    name: str = ""
    tools_used: tuple[str, ...] = ()
    turn_id: str = ""
    media: tuple[Attachment, ...] = ()
    origin: str = ""
    notice: str = ""
    about: str = ""
    replaces: tuple[str, ...] = ()
    kept: bool = False
    provider_data: ProviderData | None = None

    @property
    def from_person(self) -> bool:
        """True if a person or a program sent it. Tools and nanobot itself also have the user's
        role."""
        spoken = self.origin in {"", ATTACHED, "forwarded"}
        return self.role == "user" and (spoken or self.is_others)

    @property
    def is_others(self) -> bool:
        """True if another person in a group or a program sent it."""
        return self.role == "user" and self.origin.startswith(("person:", PROGRAM))

    @property
    def ended(self) -> Literal["", "stopped", "failed"]:
        """The end of the turn before it, if that has no complete answer."""
        if self.notice == TURN_STOPPED:
            return "stopped"
        return "failed" if self.notice == TURN_FAILED else ""

    @property
    def ends_turn(self) -> bool:
        """True if a turn ended with it, answered or not."""
        return self.role == "assistant" or bool(self.ended)

    @property
    def text(self) -> str:
        """The content and a line for each file, as the model reads them."""
        return "\n".join(filter(None, (self.content, *(one.line for one in self.media))))

    @property
    def texts(self) -> tuple[str, ...]:
        """All texts in which it may state something."""
        return (self.text, *(call.arguments for call in self.tool_calls))

    @property
    def own_words(self) -> str:
        """The text that the person of this conversation wrote themselves."""
        if self.role != "user" or self.origin not in {"", ATTACHED}:
            return ""
        if not self.origin:
            return self.content
        lines = self.content.split("\n")
        return "\n".join(line for line in lines if line[:1] != "[" or line[-1:] != "]")


def source_name(origin: str) -> str:
    """Return a text's source as people call it: `web_fetch` for `tool:web_fetch`."""
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
    """Return the speaker's name at the start of a group message, or an empty string."""
    found = _SPEAKER.match(text)
    return found[1] if found else ""


def attribute_message(role: str, name: str, text: str, origin: str, asker: str) -> tuple[str, str]:
    """Return a message's author, as `asker` would call them, and its text without the author.

    `asker` is the origin of that person's own words: empty for the person of a private chat and for
    the owner, `person:<id>` for others in a group. `name` is the name of a person or tool, if
    any."""
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
