"""Conversations of the other program as session files of ours. Pure: lines in, lines out.

Theirs have a metadata line, then messages without numbers; ours count them. What always holds:
every message of a person and of the model is there, in its place, with its time; what is marked as
consolidated there is so here. Left out are what only steered the other program (its hidden
reminders, and the private state of a provider), and lines that are no message at all.

The results of its tools count as text from elsewhere, as nobody knows where they came from: what
the model said after one carries that mark, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import BinaryIO

from nanobot.importing.foreign import Fields
from nanobot.messages import ATTACHED, Message
from nanobot.session.records import (
    Foreign,
    JsonValue,
    Metadata,
    decode_fields,
    encode,
    moment,
    record_of,
)

LONGEST = 32 << 20
"""Bytes of a line beyond which it is not looked at."""

_HIDDEN = "_hidden_history"
_CONTINUE = "Continue the active task from the working-memory checkpoint above."
_FILE = re.compile(r"\[(?P<kind>[a-z]{2,12}): (?P<path>[^\]\n]{1,1000})\]")
_ODD = re.compile(r"[^\w.:-]+")
_MOST_ORIGINS = 20
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_SUMMARY = "[What was said before this, as it was summed up then:]\n\n"


@dataclass(slots=True)
class Head:
    """What the metadata of a conversation says. `consolidated` counts messages; `ours`: this
    nanobot wrote it, in a home that was not imported yet."""

    key: str = ""
    created: datetime | None = None
    updated: datetime | None = None
    consolidated: int = 0
    summary: str = ""
    route: str = ""
    unfinished: bool = False
    ours: bool = False


@dataclass(slots=True)
class Conversation:
    """The conversion of one file. `media` gives the new name (`media/…`) of a file by its old
    path within the other program's folder of media."""

    key: str
    head: Head
    media: Mapping[str, str]
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    messages: int = 0
    broken: int = 0
    """How many messages and how many broken lines there were so far."""

    def lines(self, source: Iterable[bytes]) -> Iterator[bytes]:
        """The lines of our file, from those of theirs."""
        yield encode(self._metadata(0)).encode()
        consolidated, at = 0, 0
        message: Message | None = None
        foreign: dict[str, None] = {}
        for fields in self._objects(source):
            message = self._message(fields)
            if message is not None:
                yield self._numbered(_marked(message, foreign))
            at += 1
            if at == self.head.consolidated:
                consolidated = self.messages
                yield from self._summary(message)
        if self.head.consolidated > at:  # some of it has been lost since
            consolidated = self.messages
            yield from self._summary(message)
        yield encode(self._metadata(consolidated)).encode()

    def _objects(self, source: Iterable[bytes]) -> Iterator[Mapping[str, JsonValue]]:
        """Their messages, as JSON has them."""
        for line in source:
            if not line.strip():
                continue
            fields = decode_fields(line) if len(line) < LONGEST else None
            if fields is None:
                self.broken += 1
            elif "_type" not in fields:
                yield fields

    def _message(self, fields: Mapping[str, JsonValue]) -> Message | None:
        record = record_of(fields)
        if isinstance(record, Foreign):
            self.broken += 1
            return None
        if not isinstance(record, Message):
            return None
        message = replace(record, seq=0, turn_id="", origin="", notice="", media=())
        if fields.get(_HIDDEN):
            shown = message.content != _CONTINUE
            return replace(message, origin="nanobot") if shown else None
        if message.role == "tool":
            return replace(message, origin=f"tool:{_ODD.sub('_', message.name)[:64] or 'unknown'}")
        return _with_files(message, Fields(fields).texts("media"), self.media)

    def _numbered(self, message: Message) -> bytes:
        self.messages += 1
        return encode(replace(message, seq=self.messages)).encode()

    def _summary(self, before: Message | None) -> Iterator[bytes]:
        """The line that stands for what is consolidated, if there is a summary of it."""
        if self.head.summary:
            when = before.timestamp if before else self.head.updated
            text = _SUMMARY + self.head.summary
            yield self._numbered(Message("user", text, when, origin="nanobot"))

    def _metadata(self, consolidated: int) -> Metadata:
        return Metadata(
            self.key,
            self.head.created,
            self.head.updated,
            last_consolidated=consolidated,
            first_seq=1,
            metadata=self.metadata,
        )


def head_of(source: Iterable[bytes]) -> Head | None:
    """What the first metadata line among the first lines says; None where there is none."""
    for number, line in enumerate(source):
        fields = decode_fields(line) if len(line) < LONGEST else None
        if fields is not None and fields.get("_type") == "metadata":
            return _head(fields)
        if number == 20:
            break
    return None


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """The lines of a file, each cut at `LONGEST`: of what is longer only the beginning is held."""
    while line := file.readline(LONGEST):
        yield line
        while len(line) == LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST)


def file_within(path: str) -> str:
    """The part of a path below a folder `media`; empty where it is in none."""
    return path.rpartition("/media/")[2] if "/media/" in path else ""


def _head(fields: Mapping[str, JsonValue]) -> Head:
    given = Fields(fields)
    consolidated = given.number("last_archived")
    if consolidated is None:
        consolidated = given.number("last_consolidated") or 0
    extra = given.inner("metadata")
    return Head(
        key=given.text("key"),
        created=moment(fields.get("created_at")),
        updated=moment(fields.get("updated_at")),
        consolidated=max(0, consolidated),
        summary=extra.inner("_last_summary").text("text"),
        route=extra.text("last_channel"),
        unfinished=bool(extra.get("runtime_checkpoint") or extra.get("pending_user_turn")),
        ours="first_seq" in fields,
    )


def _marked(message: Message, foreign: dict[str, None]) -> Message:
    """What the model says carries where the foreign text before it came from, which is gathered in
    `foreign`: a conversation is marked for good by the first result of a tool in it."""
    if message.role == "tool" and len(foreign) < _MOST_ORIGINS:
        foreign[message.origin] = None
    return replace(message, origin=",".join(foreign)) if message.role == "assistant" else message


def _with_files(message: Message, paths: Iterable[str], media: Mapping[str, str]) -> Message:
    """With the files that came with it, as ours notes them: a line in brackets each."""
    if message.role != "user":
        return message
    named = [match["path"] for match in _FILE.finditer(message.content)]
    kinds = {match["path"]: match["kind"] for match in _FILE.finditer(message.content)}
    found = {
        path: media[file_within(path)] for path in (*named, *paths) if file_within(path) in media
    }
    if not found:
        return message
    text = _FILE.sub(lambda match: "" if match["path"] in found else match[0], message.content)
    kinds |= {path: "image" for path in found if path.lower().endswith(_PICTURES)}
    notes = [f"[{kinds.get(path, 'file')}, kept as {name}]" for path, name in found.items()]
    words = [line for line in text.split("\n") if line.strip()]
    return replace(
        message,
        content="\n".join([*words, *notes]),
        media=tuple(name.rpartition("/")[2] for name in found.values()),
        origin=ATTACHED,
    )
