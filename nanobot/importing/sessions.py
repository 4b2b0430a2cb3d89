"""Conversations of the other program as session files of ours. Pure: lines in, lines out.

Theirs have a metadata line, then messages without numbers; ours count them. What always holds:
every message of a person and of the model is there, in its place, with its time; what is marked as
consolidated there is so here. Left out are what only steered the other program (its hidden
reminders, and the private state of a provider), and lines that are no message at all.

The results of its tools count as text from elsewhere, as nobody knows where they came from: what
the model said after one carries that mark, too.

The conversations of the other home: which files hold them, and whose each is.

Over its versions the other program kept them in `sessions/` of the home, in `sessions/` of the
workspace, and in a folder of the home that is named after the workspace. Where several files say
that they are the same conversation, the one used last is it, and the others stay among the
originals. What was said to this nanobot in their home, before the import, comes after what was said
to the other program.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain
from typing import BinaryIO

from nanobot.bus.events import TERMINAL
from nanobot.importing.files import WORKSPACE_ID, Found, Gathering, Root, reason
from nanobot.importing.foreign import Fields
from nanobot.importing.people import OURS, UNIFIED, People, is_group, key_of
from nanobot.messages import ATTACHED, Message
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


_CODED = re.compile(r"sessions/([0-9a-f]{32})/[^/]+")
_NEVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A file that may hold a conversation, and what it says of itself."""

    found: Found
    theirs: str
    head: Head

    @property
    def rank(self) -> tuple[bool, datetime]:
        """The best one of a conversation has the highest."""
        return self.theirs != UNIFIED, self.head.updated or _NEVER


class Talks:
    """`media` are the new names of files that came with messages."""

    def __init__(self, files: Gathering, people: People, media: Mapping[str, str]) -> None:
        self._files, self._people, self._media = files, people, media
        self._keys: dict[str, str] = {}

    def run(self) -> None:
        """Take them all."""
        found = sorted(self._candidates(), key=lambda one: one.rank, reverse=True)
        theirs = {key_of(one.theirs) for one in found if not one.head.ours}
        later = {
            key_of(one.theirs): one
            for one in found
            if one.head.ours and key_of(one.theirs) in theirs
        }
        for candidate in found:
            if candidate in later.values():
                continue
            key = self._key(candidate)
            if not key:
                note = "what the other program said to itself"
                self._files.keep("conversations", candidate.found, note)
            elif key in self._keys:
                note = f"an older file of the same conversation as {self._keys[key]}"
                self._files.keep("conversations", candidate.found, note)
            else:
                self._convert(candidate, key, later.pop(key, None))
        for rest in later.values():  # what it would have gone on from could not be read
            self._files.keep("conversations", rest.found, "nothing it goes on from")

    @property
    def groups(self) -> list[tuple[str, str]]:
        """Groups that there are conversations with: channel and id."""
        parts = [key.split(":") for key in self._keys if is_group(key)]
        return list(dict.fromkeys((channel, chat) for channel, chat, *_ in parts))

    def _candidates(self) -> Iterator[_Candidate]:
        coded = self._coded_folder()
        roots: tuple[Root, Root] = ("home", "workspace")
        for found in [found for root in roots for found in self._files.below(root, "sessions")]:
            folder, _, name = found.path.rpartition("/")
            if not (found.kind == "file" and name.endswith(SUFFIX)) or folder not in (
                "sessions",
                coded,
            ):
                continue
            try:
                with self._files.opened(found) as file:
                    head = head_of(lines_of(file)) or Head()
            except OSError as error:
                self._files.leave("conversations", found, f"it cannot be read: {reason(error)}")
                continue
            stem = name.removesuffix(SUFFIX)
            named = _decoded(stem) if folder == coded else stem.replace("_", ":", 1)
            yield _Candidate(found, head.key or named, head)

    def _coded_folder(self) -> str:
        """The folder of this workspace's conversations: by its mark, or the only one there is."""
        found = (_CODED.fullmatch(one.path) for one in self._files.below("home", "sessions"))
        names = {match[1] for match in found if match}
        try:
            mark = self._files.read(self._files.get("workspace", WORKSPACE_ID), 1_000)
        except OSError:
            mark = b""
        name = mark.decode("ascii", "replace").strip()
        if name not in names and len(names) == 1:
            (name,) = names
        return f"sessions/{name}" if name in names else ""

    def _key(self, candidate: _Candidate) -> str:
        """The key here. One conversation for all channels goes on where it was held last, if only
        the owner spoke in it and reads there."""
        routed = key_of(candidate.head.route) if candidate.theirs == UNIFIED else ""
        goes_on = "unified" in self._people.mine and self._people.is_private(routed)
        return routed if goes_on and routed not in self._keys else key_of(candidate.theirs)

    def _convert(self, candidate: _Candidate, key: str, later: _Candidate | None) -> None:
        """Make it ours, and what was said `later`, to us, its end."""
        found = candidate.found
        conversation = Conversation(key, candidate.head, self._media, self._metadata(key))
        target = f"sessions/{stem_of(key)}{SUFFIX}"

        def lines(file: BinaryIO) -> Iterator[bytes]:
            with self._files.opened(later.found) if later else nullcontext() as more:
                rest = lines_of(more) if more else ()
                yield from conversation.lines(chain(lines_of(file), rest))

        if not self._files.stream("conversations", found, target, lines):
            if later:
                self._convert(later, key, None)
            return
        if later:
            note = f"what was said to this nanobot comes after {found.path}"
            self._files.convert("conversations", later.found, target, note)
        if not conversation.messages:
            self._files.new.remove(target)
            self._files.keep("conversations", found, "no message can be read in it")
            return
        self._keys[key] = found.path
        broken = conversation.broken
        notes = [f"{broken} broken lines are only in the original"] if broken else []
        if candidate.head.unfinished:
            notes.append("a turn that was under way does not go on")
        count = conversation.messages
        self._files.convert("conversations", found, target, "; ".join(notes), count)

    def _metadata(self, key: str) -> Mapping[str, JsonValue]:
        """Whose it is, where the key does not tell."""
        channel = key.partition(":")[0]
        if is_group(key):
            return {"group": True}
        if channel in (TERMINAL, *OURS) or channel not in self._people.mine:
            return {}
        return {"scope": "owner"}


def _decoded(stem: str) -> str:
    try:
        return base64.urlsafe_b64decode(stem + "=" * (-len(stem) % 4)).decode()
    except (binascii.Error, ValueError):
        return stem.replace("_", ":", 1)
