"""A conversation in memory. One lane owns it at a time, and it never touches a file.

A turn's additions are staged first: they have numbers and lines (`encode_staged`, which the journal
stores in the transaction that completes the turn), but are not in `messages` until
`SessionManager.save` applies them. `rollback` drops them. So visible messages are always in the
journal or the file.

The window selects the messages for a model. A model's API rejects a tool result without its call
and a call without its results, so a call and all its results are included together or not at all
(hand-edited files and other programs leave such damage). The window begins at a user message,
except if consolidation removed the start of a turn that was too long for a prompt. Each message is
checked once, when it is added."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from datetime import datetime
from operator import attrgetter
from types import MappingProxyType
from typing import Any

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.clock import Clock
from nanobot.messages import Message
from nanobot.session.records import (
    Epoch,
    JsonValue,
    Mark,
    Metadata,
    Retraction,
    encode,
    seq_of_epoch,
    with_marks,
)
from nanobot.session.titles import is_current, make_opening, read_opening, read_title


class MessageWindow:
    """The sendable messages so far. `continues`: the first ones belong to a turn whose start was
    consolidated."""

    def __init__(self, messages: Iterable[Message] = (), *, continues: bool = False) -> None:
        self._valid: list[Message] = []
        self._begun = continues
        self._group: list[Message] = []
        self._missing_results: list[str] = []
        self.extend(messages)

    def extend(self, messages: Iterable[Message]) -> None:
        """Append messages."""
        for message in messages:
            if message.role == "tool":
                if message.tool_call_id in self._missing_results:
                    self._group.append(message)
                    self._missing_results.remove(message.tool_call_id)
                    if not self._missing_results:
                        self._valid += self._group
                        self._group = []
                continue
            self._group, self._missing_results = [], []
            if message.role == "user":
                self._begun = True
            elif not self._begun:
                continue
            if message.tool_calls and message.role == "assistant":
                self._group = [message]
                self._missing_results = [call.id for call in message.tool_calls]
            else:
                self._valid.append(message)

    def messages(self, most: int = 0, after: int = -1) -> list[Message]:
        """Return a copy of the messages with a seq above `after`. If there are more than `most` (0:
        no limit), return only the newest, starting at a user message."""
        found = self._valid[bisect_right(self._valid, after, key=attrgetter("seq")) :]
        if not 0 < most < len(found):
            return found
        newest = found[-most:]
        begins = (at for at, message in enumerate(newest) if message.role == "user")
        return newest[next(begins, most) :]


class Contents(Struct, frozen=True):
    """The content of a session file that a session in memory needs.

    `messages` are the messages after `last_consolidated` and the newest epoch, except retracted
    ones. `first_seq` is the first number that is not archived, `next_seq` the first free one.
    `is_half_archived`: after a crash, the live file still has the archived messages. `broken`
    counts unreadable lines."""

    created_at: datetime
    updated_at: datetime
    messages: tuple[Message, ...] = ()
    metadata: Mapping[str, JsonValue] = field(default_factory=dict)
    last_consolidated: int = 0
    epoch: str = ""
    first_seq: int = 1
    next_seq: int = 1
    is_half_archived: bool = False
    broken: int = 0


def merge_metadata(
    metadata: Mapping[str, JsonValue], changes: Mapping[str, JsonValue]
) -> dict[str, JsonValue]:
    """Return the changed metadata. None removes an entry."""
    return {name: one for name, one in {**metadata, **changes}.items() if one is not None}


PINNED, ARCHIVED, DELETED = "pinned", "archived", "deleted"
"""Names in the metadata. Each is true, or missing."""

Redact = Callable[[str], str]
"""Returns a redacted line (without its newline), or the same line."""


class SessionInfo(Struct, frozen=True):
    """A summary of a session. `place` is its path, `size` its bytes without the archive, `preview`
    its last message, and `beginning` its first words if the metadata lacks them.

    `epoch_seq` and `last_consolidated` are as in `Session`. `last_seq` is that of the last message,
    or 0 if a quick look doesn't find it. `metadata` is as in `SessionManager.metadata_of`."""

    key: str
    created_at: datetime
    updated_at: datetime
    size: int
    preview: str
    place: str
    epoch_seq: int = 0
    last_consolidated: int = 0
    last_seq: int = 0
    metadata: Mapping[str, Any] = {}
    beginning: str = ""

    @property
    def title(self) -> str:
        """The title that a person or a model gave, or the first words."""
        return read_title(self.metadata, self.epoch_seq) or self.beginning

    @property
    def is_pinned(self) -> bool:
        """True if it comes first in lists."""
        return self.metadata.get(PINNED) is True

    @property
    def is_archived(self) -> bool:
        """True if only lists of archived conversations show it."""
        return self.metadata.get(ARCHIVED) is True

    @property
    def is_deleted(self) -> bool:
        """True if only its numbers are left, so that references stay unambiguous."""
        return self.metadata.get(DELETED) is True and not self.last_seq


class Session:
    """A conversation: its window, its metadata, and the staged additions of the running turn.

    Read-only: `metadata` (small facts, see `set_metadata`), `last_consolidated` (the seq up to
    which memory holds the conversation), `epoch` (the stretch since the last `/new`, empty before
    the first), `first_seq` (the first seq that is not archived) and `next_seq` (the number of the
    next message, after staged ones)."""

    metadata: Mapping[str, JsonValue]

    def __init__(self, key: str, clock: Clock, contents: Contents | None = None) -> None:
        now = clock.now()
        self.key = key
        self.revision = 0
        """Changes if visible messages change other than by appending."""
        self.removal_lock = asyncio.Lock()
        """Held while messages move to memory for good, and while messages are retracted."""
        self._clock = clock
        self.opening = ""
        """Lines of `SessionManager.save_early` that may not be durable yet."""
        self._staged: list[Message | Metadata | Epoch | Retraction] = []
        self._lines: list[str] = []
        self._messages: list[Message] = []
        self._snapshot: tuple[Message, ...] | None = ()
        self.first_seq = self.next_seq = 1
        self.last_consolidated = 0
        self._now_holds(contents or Contents(created_at=now, updated_at=now))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The window: messages that are not consolidated, sealed or retracted."""
        if self._snapshot is None:
            self._snapshot = tuple(self._messages)
        return self._snapshot

    @property
    def epoch_seq(self) -> int:
        """The seq up to which `/new` sealed the conversation, or 0."""
        return seq_of_epoch(self.epoch)

    @property
    def has_staged(self) -> bool:
        """True if `SessionManager.save` or `rollback` is pending."""
        return bool(self._staged)

    @property
    def stages_messages(self) -> bool:
        """True if the staged records change more than the metadata."""
        return any(not isinstance(record, Metadata) for record in self._staged)

    def get_history(self, max_messages: int = 50, *, after: int = -1) -> list[Message]:
        """Return the newest sendable messages that are not consolidated, at most `max_messages` (0:
        no limit), after seq `after`.

        Tool calls stay together with their results. The list starts at a user message, unless
        nothing was left out and consolidation removed the start of the first turn. Prompts use no
        limit: only consolidation shortens them."""
        return self._window.messages(max_messages, after)

    @property
    def messages_with_origin(self) -> Sequence[Message]:
        """The messages in the window with an origin or a notice."""
        return self._marked

    def begin_turn(self) -> None:
        """Drop the staged records of an interrupted turn. They were not stored, so their numbers
        are free."""
        if self._staged:
            logger.warning("session {}: dropped the staged changes of an unfinished turn", self.key)
            self.rollback()

    def add_message(self, message: Message) -> Message:
        """Number and stage a message. A missing timestamp becomes the current time."""
        timestamp = message.timestamp or self._clock.now()
        if timestamp.tzinfo is None:
            timestamp = timestamp.astimezone()
        numbered = replace(message, seq=self.next_seq, timestamp=timestamp)
        self._stage(numbered)
        self.next_seq += 1
        return numbered

    def clear(self, inbox_id: str | int = "") -> None:
        """Stage a new epoch: the window becomes empty, and the messages stay on disk.

        `inbox_id` identifies the request. Repeating it does nothing, unless messages were added
        since: a new journal reuses the ids of a lost one."""
        epoch = Epoch(self.next_seq - 1, str(inbox_id), self._clock.now())
        if epoch.inbox_id and epoch.id == self._merge_staged().epoch:
            return
        self._stage(epoch)
        self._stage(self._merge_staged())

    def discard(self, inbox_id: str | int = "") -> int:
        """Stage an empty window, and keep its messages out of memory. Return the number of removed
        messages, which stay on disk. `inbox_id` as for `clear`."""
        gone = self._messages
        if gone:
            self._stage(Retraction("", gone[0].seq, gone[-1].seq, self._clock.now()))
        count = len(gone)
        self.clear(inbox_id)
        return count

    def retract(self, turn_id: str) -> tuple[Message, ...]:
        """Stage the removal of a turn from the window. Return its messages, if any."""
        gone = tuple(message for message in self._messages if message.turn_id == turn_id)
        if gone:
            self._stage(Retraction(turn_id, gone[0].seq, gone[-1].seq, self._clock.now()))
            if self._begins_with({message.seq for message in gone}):
                self.set_metadata(opening=None)
        return gone

    def stage_use(self, coming: Message | None = None) -> None:
        """Stage the first words of the conversation for its title, unless they are known, and its
        return from the archive if a person writes. At the start of a turn, with its `coming`
        message, do that only if something is staged anyway."""
        if coming and not self._staged:
            return
        planned = self._merge_staged()
        known, epoch = planned.metadata or {}, seq_of_epoch(planned.epoch)
        new = [one for one in self._staged if isinstance(one, Message)]
        new += [replace(coming, seq=self.next_seq)] if coming else []
        changes: dict[str, JsonValue] = {}
        if known.get(ARCHIVED) and any(one.from_person for one in new):
            changes[ARCHIVED] = None
        if not is_current(read_opening(known, epoch), new):
            changes |= make_opening((*self._messages, *new), epoch)
        if changes:
            self.set_metadata(**changes)

    def _begins_with(self, numbers: Container[int]) -> bool:
        """Return True if one of these messages has the first words."""
        opening = read_opening(self.metadata, self.epoch_seq)
        return opening is not None and opening["seq"] in numbers

    def is_being_retracted(self, first: int, last: int) -> bool:
        """Return True if a staged record retracts messages between these seqs."""
        undone = (record for record in self._staged if isinstance(record, Retraction))
        return any(record.first <= last and first <= record.last for record in undone)

    def set_metadata(self, **changes: JsonValue) -> None:
        """Stage changes to the metadata. None removes an entry."""
        planned = self._merge_staged()
        self._stage(replace(planned, metadata=merge_metadata(planned.metadata or {}, changes)))

    def mark_consolidated(self, seq: int) -> str:
        """Record that memory holds everything up to `seq`. Return the line for the file, or "" if
        it is already known. May be called during a turn, because it affects only visible messages.
        Raises ValueError if no message has that number yet."""
        if seq >= self.next_seq:
            raise ValueError(f"session {self.key} ends at {self.next_seq - 1}, not at {seq}")
        if seq <= self.last_consolidated:
            return ""
        self.last_consolidated = seq
        self._keep([message for message in self._messages if message.seq > seq])
        return encode(self.as_metadata())

    def retract_messages(self, numbers: Iterable[int]) -> str:
        """Remove messages from the window and memory. Return the lines for the file. May be called
        during a turn."""
        now = self._clock.now()
        numbers = sorted(set(numbers))
        gone = [Retraction("", seq, seq, now) for seq in numbers]
        for record in gone:
            self._apply(record)
        lines = "".join(map(encode, gone))
        return lines + (self.change_metadata(opening=None) if self._begins_with(numbers) else "")

    def change_metadata(self, **changes: JsonValue) -> str:
        """Change the metadata at once, also in staged records. None removes an entry. Return the
        line for the file. May be called during a turn."""
        self.metadata = MappingProxyType(merge_metadata(self.metadata, changes))
        for at, record in enumerate(self._staged):
            if isinstance(record, Metadata):
                merged = merge_metadata(record.metadata or {}, changes)
                self._staged[at] = replace(record, metadata=merged)
                self._lines[at] = encode(self._staged[at])
        return encode(self.as_metadata())

    def mark_message(self, seq: int, *, kept: bool, by: str, via: str) -> str:
        """Set or clear the wish to keep the message `seq`. Return the line for the file. May be
        called during a turn. Prompts don't change."""
        mark = Mark(seq, kept, by, via, self._clock.now())
        self._hold(with_marks(self._messages, [mark]))
        return encode(mark)

    def encode_staged(self) -> str:
        """Return the lines for a commit, exactly as they will be in the file, each with its
        newline: the `opening` and the staged ones."""
        return self.opening + "".join(self._lines)

    def rollback(self) -> None:
        """Drop all staged records."""
        self.next_seq -= sum(isinstance(record, Message) for record in self._staged)
        self._staged, self._lines = [], []

    def apply_staged(self) -> str:
        """Make staged records visible and return their lines. Called by `SessionManager.save`."""
        lines = "".join(self._lines)
        appended: list[Message] = []
        for record in self._staged:
            if isinstance(record, Message):
                appended.append(record)
            else:
                self._append(appended)
                appended = []
                self._apply(record)
        self._append(appended)
        if self._staged:
            self.updated_at = self._clock.now()
        self._staged, self._lines = [], []
        return lines

    def load_edited(self, contents: Contents) -> None:
        """Replace the content after someone edited the file. Raises RuntimeError if records are
        staged, because their numbers would be wrong."""
        if self._staged:
            raise RuntimeError(f"session {self.key} has staged changes")
        known, next_seq = self.messages, self.next_seq
        self._now_holds(contents)
        self.next_seq = max(self.next_seq, next_seq)
        if self.messages[: len(known)] != known:
            self.revision += 1

    def as_metadata(self) -> Metadata:
        """Return the metadata line for the applied state."""
        return Metadata(
            key=self.key,
            created_at=self.created_at,
            updated_at=self.updated_at,  # background work is not use
            last_consolidated=self.last_consolidated,
            first_seq=self.first_seq,
            metadata=self.metadata,
            epoch=self.epoch,
        )

    def set_aside(self, header: Metadata) -> None:
        """Move the conversation to another key. Called by `SessionManager.set_aside`."""
        self.key = header.key
        self._apply(header)

    def mark_archived(self, seq: int) -> None:
        """Record that messages up to `seq` have left the live file."""
        self.first_seq = max(self.first_seq, seq + 1)

    def _now_holds(self, contents: Contents) -> None:
        self.created_at, self.updated_at = contents.created_at, contents.updated_at
        self.metadata = MappingProxyType({**contents.metadata})
        self.last_consolidated = contents.last_consolidated
        self.epoch = contents.epoch
        self.first_seq, self.next_seq = contents.first_seq, contents.next_seq
        self._hold(list(contents.messages))

    def _hold(self, messages: list[Message]) -> None:
        self._messages = messages
        self._marked = [message for message in messages if message.origin or message.notice]
        self._snapshot = None
        self._window = MessageWindow(messages, continues=self.last_consolidated > self.epoch_seq)

    def _keep(self, left: list[Message]) -> None:
        if len(left) != len(self._messages):
            self.revision += 1
            self._hold(left)

    def _append(self, messages: list[Message]) -> None:
        if messages:
            self._messages += messages
            self._marked += [message for message in messages if message.origin or message.notice]
            self._window.extend(messages)
            self._snapshot = None

    def _stage(self, record: Message | Metadata | Epoch | Retraction) -> None:
        self._lines.append(encode(record))
        self._staged.append(record)

    def _merge_staged(self) -> Metadata:
        """Return the metadata after all staged records."""
        planned = replace(self.as_metadata(), updated_at=self._clock.now())
        for record in self._staged:
            if isinstance(record, Metadata):
                planned = replace(record, updated_at=planned.updated_at)
            elif isinstance(record, Epoch):
                planned = replace(planned, epoch=record.id)
        return planned

    def _apply(self, record: Metadata | Epoch | Retraction) -> None:
        match record:
            case Metadata():
                # Ignore its `last_consolidated`: consolidation may have advanced since staging.
                self.metadata = MappingProxyType({**(record.metadata or {})})
            case Epoch():
                self.epoch = record.id
                self._keep([m for m in self._messages if m.seq > record.seq])
            case Retraction():
                self._keep([m for m in self._messages if not record.covers(m)])
