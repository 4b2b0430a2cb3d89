"""What someone on WhatsApp said, the same for both transports."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nanobot.bus.events import Media, Quote

OURS = "you"
"""Who said what is quoted, where the agent did."""
UNREADABLE = "a message that nanobot could not read"
"""The note in place of one, so that whoever wrote it is answered."""


@dataclass(frozen=True, slots=True)
class Person:
    """Someone who writes. `ids` are all that are known of them, at least one; a number is first
    where there is one. `name` is what they call themselves: for texts, never for decisions."""

    ids: tuple[str, ...]
    name: str = ""


@dataclass(frozen=True, slots=True)
class Heard:
    """Something that was said. `at` is aware.

    `group` is the id of the group it was said in, empty in private, and `title` its name. `own`:
    the person whose account this is wrote it to themselves. `addressed`: in a group, that the agent
    was mentioned or replied to; `text` does not begin with that mention any more. `edits` is the id
    of the message that this one corrects, which is its sender's own; `deletes` is that of one that
    they took back. `unanswered`: it is for the conversation and asks for nothing (a reaction).
    `notes` are lines about what
    is neither words nor a file. The `sender` of the `quote` is `OURS` or a name, which is never
    the same.
    """

    id: str
    person: Person
    at: datetime
    group: str = ""
    title: str = ""
    own: bool = False
    addressed: bool = True
    text: str = ""
    media: Media | None = None
    quote: Quote | None = None
    forwarded: bool = False
    notes: tuple[str, ...] = ()
    edits: str = ""
    deletes: str = ""
    unanswered: bool = False
