"""Conversations of the other program, converted to our session files.

Theirs have a metadata line, then messages without numbers. Ours number them. Invariant: every
message of a person and of the model is imported, in order, with its time, and consolidated messages
stay consolidated. Left out are texts that only steered the other program (its hidden reminders, and
the private state of a provider), and lines that are not messages. The results of its tools count as
untrusted content, because their source is unknown. So do the model's messages after one.

The other program's versions kept them in `sessions/` of the home, in `sessions/` of the workspace,
and in folders of the home that are named after a workspace. Of several files of the same
conversation, the one used last counts. Conversations of this nanobot in their home, before the
import, are not imported."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from itertools import islice
from posixpath import basename
from typing import BinaryIO

from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.bus.events import TERMINAL
from nanobot.importing.files import ImportFile, Transfer, open_file
from nanobot.importing.foreign import OURS, PROGRAMS, Fields, People, is_group, key_of
from nanobot.messages import PROGRAM, Attachment, Message
from nanobot.session.records import (
    SUFFIX,
    Foreign,
    JsonValue,
    Metadata,
    decode_fields,
    encode,
    moment,
    record_of,
    stem_of,
)
from nanobot.text import pluralize

LONGEST = 32 << 20
"""Bytes. Longer lines are not read."""

_HIDDEN = "_hidden_history"
_CONTINUE = "Continue the active task from the working-memory checkpoint above."
_FILE = re.compile(r"\[(?P<kind>[a-z]{2,12}): (?P<path>[^\]\n]{1,1000})\]")
_ODD = re.compile(r"[^\w.:-]+")
_MOST_ORIGINS = 20  # in one mark
_SENT_BY_PROGRAMS = (PROGRAMS, "sdk")
_PICTURES = (".png", ".jpg", ".jpeg", ".gif", ".webp")
_SUMMARY = "[Summary of the earlier conversation:]\n\n"


class Head(Struct):
    """Metadata of a conversation. `consolidated` counts messages. `ours`: this nanobot wrote it, in
    a home that was not imported yet."""

    key: str = ""
    created: datetime | None = None
    updated: datetime | None = None
    consolidated: int = 0
    summary: str = ""
    unfinished: bool = False
    ours: bool = False


class Conversation(Struct):
    """The conversion of one file. `media` gives the new name (`media/…`) of a file by its old
    path within the other program's folder of media."""

    key: str
    head: Head
    media: Mapping[str, str]
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    messages: int = 0
    broken: int = 0
    """The number of messages and of broken lines so far."""

    def lines(self, source: Iterable[bytes]) -> Iterator[bytes]:
        """Yield the lines of our file from the other program's lines."""
        start = Metadata(
            self.key, self.head.created, self.head.updated, first_seq=1, metadata=self.metadata
        )
        yield encode(start).encode()
        consolidated, at = 0, 0  # at: position in their messages
        message: Message | None = None
        foreign: dict[str, None] = {}
        for fields in self._read_objects(source):
            message = self._convert_message(fields)
            if message is not None:
                yield self._number(mark_origin(message, foreign))
            at += 1
            if at == self.head.consolidated:
                consolidated = self.messages
                yield from self._render_summary(message)
        if self.head.consolidated > at:  # some messages have been lost since
            consolidated = self.messages
            yield from self._render_summary(message)
        yield encode(replace(start, last_consolidated=consolidated)).encode()

    def _read_objects(self, source: Iterable[bytes]) -> Iterator[Mapping[str, JsonValue]]:
        """Yield their messages as JSON."""
        for line in source:
            if not line.strip():
                continue
            fields = decode_fields(line) if len(line) < LONGEST else None
            if fields is None:
                self.broken += 1
            elif "_type" not in fields:
                yield fields

    def _convert_message(self, fields: Mapping[str, JsonValue]) -> Message | None:
        record = record_of(fields)
        if isinstance(record, Foreign):
            self.broken += 1
            return None
        if not isinstance(record, Message):
            return None
        message = replace(record, seq=0, turn_id="", origin="", notice="", media=())
        if fields.get(_HIDDEN):
            shown = message.content != _CONTINUE
            hidden = replace(message, content="", origin="nanobot", notice=message.content)
            return hidden if shown else None
        if message.role == "user" and self.key.partition(":")[0] in _SENT_BY_PROGRAMS:
            message = replace(message, origin=f"{PROGRAM}import")
        if message.role == "tool":
            return replace(message, origin=f"tool:{_ODD.sub('_', message.name)[:64] or 'unknown'}")
        return add_files(message, Fields(fields).texts("media"), self.media)

    def _number(self, message: Message) -> bytes:
        self.messages += 1
        return encode(replace(message, seq=self.messages)).encode()

    def _render_summary(self, before: Message | None) -> Iterator[bytes]:
        """Yield the line for the consolidated messages, if there is a summary of them."""
        if self.head.summary:
            when = before.timestamp if before else self.head.updated
            text = _SUMMARY + self.head.summary
            yield self._number(Message("user", text, when, origin="nanobot"))


def head_of(source: Iterable[bytes]) -> Head:
    """Return the first metadata line among the first lines."""
    for line in islice(source, 21):
        fields = decode_fields(line) if len(line) < LONGEST else None
        if fields is not None and fields.get("_type") == "metadata":
            given = Fields(fields)
            extra, archived = given.inner("metadata"), given.number("last_archived")
            if archived is None:
                archived = given.number("last_consolidated") or 0
            return Head(
                key=given.text("key"),
                created=moment(fields.get("created_at")),
                updated=moment(fields.get("updated_at")),
                consolidated=max(0, archived),
                summary=extra.inner("_last_summary").text("text"),
                unfinished=bool(extra.get("runtime_checkpoint") or extra.get("pending_user_turn")),
                ours="first_seq" in fields,
            )
    return Head()


def lines_of(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file, each cut at `LONGEST`. The rest is not held in memory."""
    while line := file.readline(LONGEST):
        yield line
        while len(line) == LONGEST and not line.endswith(b"\n"):
            line = file.readline(LONGEST)


def mark_origin(message: Message, foreign: dict[str, None]) -> Message:
    """Mark a message of the model with the origins of the untrusted content before it, which are
    collected in `foreign`. The first result of a tool or message of a program marks a conversation
    for good."""
    if (message.role == "tool" or message.is_others) and len(foreign) < _MOST_ORIGINS:
        foreign[message.origin] = None
    return replace(message, origin=",".join(foreign)) if message.role == "assistant" else message


def add_files(message: Message, paths: Iterable[str], media: Mapping[str, str]) -> Message:
    """Return a message with its files in our form."""
    kinds = {match["path"]: match["kind"] for match in _FILE.finditer(message.content)}
    found = {
        path: media[within]
        for path in (*kinds, *paths)
        if (within := path.rpartition("/media/")[2]) in media
    }
    if message.role != "user" or not found:
        return message
    text = _FILE.sub(lambda match: "" if match["path"] in found else match[0], message.content)
    files = [
        Attachment(
            basename(name),
            "image" if path.lower().endswith(_PICTURES) else kinds.get(path, "file"),
            basename(path),
        )
        for path, name in found.items()
    ]
    return replace(
        message, content="\n".join(filter(str.strip, text.split("\n"))), media=tuple(files)
    )


_CODED = re.compile(r"home/sessions/[0-9a-f]{32}/[^/]+")
_PLAIN = re.compile(r"(home|workspace)/sessions/[^/]+")
_NEVER = datetime.min.replace(tzinfo=UTC)  # sorts last


def import_conversations(
    files: Transfer, people: People, media: Mapping[str, str]
) -> list[tuple[str, str]]:
    """Import all conversations, and return the groups (channel and id) among them. `media` are the
    new names of attachments. Of several files of one conversation the one used last counts."""
    found = sorted(
        find_conversations(files), key=lambda one: one[1].updated or _NEVER, reverse=True
    )
    keys, groups = dict[str, str](), dict[tuple[str, str], None]()
    for one, head in found:
        key, why = key_of(head.key), ""
        if head.ours:
            why = "a conversation with this nanobot before the import"
        elif not key:
            why = "an internal conversation of the other program"
        elif key in keys:
            why = f"an older file of the same conversation as {keys[key]}"
        if why:
            files.record("conversations", one, "left", why=why)
        elif convert_conversation(
            files, one, Conversation(key, head, media, make_metadata(key, people))
        ):
            keys[key] = one.path
            if is_group(key):
                channel, chat, *_ = key.split(":")
                groups[channel, chat] = None
    return list(groups)


def find_conversations(files: Transfer) -> Iterator[tuple[ImportFile, Head]]:
    """Yield the files of conversations, each with its metadata and a key."""
    for one in files.below("home/sessions/", "workspace/sessions/"):
        is_coded, stem = _CODED.fullmatch(one.path), one.place.name.removesuffix(SUFFIX)
        if (is_coded or _PLAIN.fullmatch(one.path)) and stem != one.place.name:
            with suppress(OSError), open_file(one.place) as file:
                head = head_of(lines_of(file))
                named = stem.replace("_", ":", 1)
                if is_coded:
                    with suppress(ValueError):
                        named = base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
                yield one, replace(head, key=head.key or named)


def convert_conversation(files: Transfer, found: ImportFile, conversation: Conversation) -> bool:
    """Write one conversation to the new home. Return True if it has a message."""
    target = f"sessions/{stem_of(conversation.key)}{SUFFIX}"
    try:
        with open_file(found.place) as file:
            files.write(target, conversation.lines(lines_of(file)))
    except OSError as error:
        conversation.messages = 0
        why = f"it cannot be read: {error.strerror}"
    else:
        why = "it has no readable messages"
    if not conversation.messages:
        files.remove(target)
        files.record("conversations", found, "left", why=why)
        return False
    broken = conversation.broken
    notes = [f"{pluralize(broken, 'broken line')} skipped"] if broken else []
    if conversation.head.unfinished:
        notes.append("an unfinished turn is not resumed")
    why = "; ".join(notes)
    files.record("conversations", found, "converted", target, why=why, count=conversation.messages)
    return True


def make_metadata(key: str, people: People) -> Mapping[str, JsonValue]:
    """Return the scope of a conversation if the key does not show it."""
    channel = key.partition(":")[0].replace(PROGRAMS, "api")
    if is_group(key):
        return {"group": True}
    if channel in (TERMINAL, *OURS) or channel not in people.mine:
        return {}
    return {"scope": "owner"}
