"""A conversation in memory. One lane owns it at a time; it never touches a file.

What a turn adds is first staged: it has numbers and lines (`staged_lines`, which the journal stores
in the transaction that completes the turn), but it is not visible in `messages` until
`SessionManager.save` applies it, or `rollback` drops it. So what is visible is always what the
journal or the file holds.

The window decides which messages may be sent to a model. A model's API refuses a tool result
without its call and a call without its results, so messages are taken in groups: a call and all its
results, side by side, or none of them (files cut by hand and other programs leave such damage).
The window begins at a user message, except where consolidation took the beginning of a turn that
was too long for a prompt. Every message is judged once, when it is added.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
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


class MessageWindow:
    """The sendable messages among those added so far. `continues`: the first ones go on with a turn
    whose beginning was consolidated."""

    def __init__(self, messages: Iterable[Message] = (), *, continues: bool = False) -> None:
        self._valid: list[Message] = []
        self._begun = continues
        self._group: list[Message] = []
        self._missing_results: list[str] = []
        self.extend(messages)

    def extend(self, messages: Iterable[Message]) -> None:
        """Add messages that follow those already here."""
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
        """Return a copy of the messages with a seq above `after`. If there are more than `most`
        (0: no limit), only the newest ones, from a user message on."""
        found = self._valid[bisect_right(self._valid, after, key=attrgetter("seq")) :]
        if not 0 < most < len(found):
            return found
        newest = found[-most:]
        begins = (at for at, message in enumerate(newest) if message.role == "user")
        return newest[next(begins, most) :]


class Contents(Struct, frozen=True):
    """The content of a session's file that a session in memory needs.

    `messages` are those after `last_consolidated` and the newest epoch, without retracted ones.
    `first_seq` is the first number that is not archived, `next_seq` the first that is free.
    `is_half_archived`: after a crash, the live file still has the archived messages. `broken` is
    the number of unreadable lines.
    """

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


Redact = Callable[[str], str]
"""Gives back a line, without its newline, as it may stay; the same line where all of it may."""


class SessionInfo(Struct, frozen=True):
    """A session at a glance. `place` is where it is kept, `size` what that takes in bytes without
    the archive, `preview` its last message.

    `epoch_seq` and `last_consolidated` are as in `Session`, and `last_seq` is that of the last
    message, as far as a quick look tells (else 0); `metadata` is as `SessionManager.metadata_of`
    gives it.
    """

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


class Session:
    """A conversation: its window, its small facts, and what the running turn wants to add.

    To be read only: `metadata` are small facts, which `set_metadata` changes; `last_consolidated`
    is the seq up to which memory holds the conversation; `epoch` names the stretch since the last
    `/new` (empty before the first one); `first_seq` is the first that is not in the archive,
    `next_seq` the number that the next message gets (staged ones have theirs already).
    """

    def __init__(self, key: str, clock: Clock, contents: Contents | None = None) -> None:
        now = clock.now()
        self.key = key
        self.revision = 0
        """Changes whenever visible messages change other than by appending."""
        self.removal_lock = asyncio.Lock()
        """Held while messages become memory's for good, and while some are taken back."""
        self._clock = clock
        self._staged: list[Message | Metadata | Epoch | Retraction] = []
        self._lines: list[str] = []
        self._messages: list[Message] = []
        self._snapshot: tuple[Message, ...] | None = ()
        self.first_seq = self.next_seq = 1
        self.last_consolidated = 0
        self._now_holds(contents or Contents(created_at=now, updated_at=now))

    @property
    def messages(self) -> tuple[Message, ...]:
        """What is in the window: not consolidated, not sealed by an epoch, not retracted."""
        if self._snapshot is None:
            self._snapshot = tuple(self._messages)
        return self._snapshot

    @property
    def epoch_seq(self) -> int:
        """The seq up to which `/new` sealed the conversation; 0 before the first one."""
        return seq_of_epoch(self.epoch)

    @property
    def has_staged(self) -> bool:
        """Whether something waits for `SessionManager.save` or `rollback`."""
        return bool(self._staged)

    def get_history(self, max_messages: int = 50, *, after: int = -1) -> list[Message]:
        """Return the newest messages that are not consolidated yet, at most `max_messages` (0: no
        limit), as far as a model's API accepts them; only those after seq `after`.

        They keep every tool call together with its results and begin at a user message, unless
        nothing was left out and consolidation took the beginning of the first turn. A prompt asks
        without a limit: only consolidation shortens it.
        """
        return self._window.messages(max_messages, after)

    @property
    def marked(self) -> Sequence[Message]:
        """The messages of the window that say where they came from, or carry a notice."""
        return self._marked

    def begin_turn(self) -> None:
        """Drop what a broken turn left staged: its numbers are free, no line of it was stored."""
        if self._staged:
            logger.warning("session {}: dropped the staged changes of an unfinished turn", self.key)
            self.rollback()

    def add_message(self, message: Message) -> Message:
        """Number and stage a message; without a timestamp it gets the present one."""
        timestamp = message.timestamp or self._clock.now()
        if timestamp.tzinfo is None:
            timestamp = timestamp.astimezone()
        numbered = replace(message, seq=self.next_seq, timestamp=timestamp)
        self._stage(numbered)
        self.next_seq += 1
        return numbered

    def clear(self, inbox_id: str | int = "") -> None:
        """Stage a new epoch: the window becomes empty, the messages stay on disk.

        `inbox_id` names what asked for it; asking again with the same one does nothing, unless
        messages came since: a new journal gives the ids of a lost one again.
        """
        epoch = Epoch(self.next_seq - 1, str(inbox_id), self._clock.now())
        if epoch.inbox_id and epoch.id == self._planned().epoch:
            return
        self._stage(epoch)
        self._stage(self._planned())

    def discard(self, inbox_id: str | int = "") -> int:
        """Stage that the window becomes empty and memory never takes what stood in it; returns how
        many messages that were. They stay on disk. `inbox_id` as for `clear`."""
        gone = self._messages
        if gone:
            self._stage(Retraction("", gone[0].seq, gone[-1].seq, self._clock.now()))
        count = len(gone)
        self.clear(inbox_id)
        return count

    def retract(self, turn_id: str) -> tuple[Message, ...]:
        """Stage that a turn leaves the window; returns its messages, none where it is not there."""
        gone = tuple(message for message in self._messages if message.turn_id == turn_id)
        if gone:
            self._stage(Retraction(turn_id, gone[0].seq, gone[-1].seq, self._clock.now()))
        return gone

    def is_being_retracted(self, first: int, last: int) -> bool:
        """Whether what is staged takes back messages between these seqs."""
        undone = (record for record in self._staged if isinstance(record, Retraction))
        return any(record.first <= last and first <= record.last for record in undone)

    def set_metadata(self, **changes: JsonValue) -> None:
        """Stage changes to the small facts; None removes one."""
        planned = self._planned()
        merged = {**(planned.metadata or {}), **changes}
        kept = {name: value for name, value in merged.items() if value is not None}
        self._stage(replace(planned, metadata=kept))

    def mark_consolidated(self, seq: int) -> str:
        """Note that memory holds everything up to `seq`. Return the line for the file, or "" if
        that is nothing new. A turn may be under way: this concerns visible messages only. Raises
        ValueError if no message has that number yet."""
        if seq >= self.next_seq:
            raise ValueError(f"session {self.key} ends at {self.next_seq - 1}, not at {seq}")
        if seq <= self.last_consolidated:
            return ""
        self.last_consolidated = seq
        self._keep([message for message in self._messages if message.seq > seq])
        return encode(self.as_metadata())

    def retract_messages(self, numbers: Iterable[int]) -> str:
        """Take messages out of the window and memory. Return the lines for the file. A turn may be
        under way."""
        now = self._clock.now()
        gone = [Retraction("", seq, seq, now) for seq in sorted(set(numbers))]
        for record in gone:
            self._apply(record)
        return "".join(map(encode, gone))

    def mark_message(self, seq: int, *, kept: bool, by: str, via: str) -> str:
        """Note that the message `seq` is to be kept, or no longer. Return the line for the file. A
        turn may be under way. What prompts show stays the same."""
        mark = Mark(seq, kept, by, via, self._clock.now())
        self._hold(with_marks(self._messages, [mark]))
        return encode(mark)

    def staged_lines(self) -> str:
        """What is staged, exactly as it will stand in the file; each line ends with a newline."""
        return "".join(self._lines)

    def rollback(self) -> None:
        """Drop what is staged."""
        self.next_seq -= sum(isinstance(record, Message) for record in self._staged)
        self._staged, self._lines = [], []

    def apply_staged(self) -> str:
        """Make what is staged visible and return its lines; `SessionManager.save` calls this."""
        lines = self.staged_lines()
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
        """Take over what the file says now; for a file that somebody edited.

        Must not be called while something is staged: its numbers would no longer be right.
        """
        if self._staged:
            raise RuntimeError(f"session {self.key} has staged changes")
        known, next_seq = self.messages, self.next_seq
        self._now_holds(contents)
        self.next_seq = max(self.next_seq, next_seq)
        if self.messages[: len(known)] != known:
            self.revision += 1

    def as_metadata(self) -> Metadata:
        """The metadata line that says what is applied so far."""
        return Metadata(
            key=self.key,
            created_at=self.created_at,
            updated_at=self._clock.now(),
            last_consolidated=self.last_consolidated,
            first_seq=self.first_seq,
            metadata=self.metadata,
            epoch=self.epoch,
        )

    def set_aside(self, header: Metadata) -> None:
        """Note that the conversation is kept under another key; `SessionManager.set_aside` calls
        this."""
        self.key = header.key
        self._apply(header)

    def mark_archived(self, seq: int) -> None:
        """Note that messages up to `seq` have left the live file."""
        self.first_seq = max(self.first_seq, seq + 1)

    def _now_holds(self, contents: Contents) -> None:
        self.created_at, self.updated_at = contents.created_at, contents.updated_at
        self.metadata: Mapping[str, JsonValue] = MappingProxyType({**contents.metadata})
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

    def _planned(self) -> Metadata:
        """The metadata as it will be once everything staged is applied."""
        planned = self.as_metadata()
        for record in self._staged:
            if isinstance(record, Metadata):
                planned = replace(record, updated_at=planned.updated_at)
            elif isinstance(record, Epoch):
                planned = replace(planned, epoch=record.id)
        return planned

    def _apply(self, record: Metadata | Epoch | Retraction) -> None:
        match record:
            case Metadata():
                # Not what it says of consolidation: that may have gone on since it was staged.
                self.metadata = MappingProxyType({**(record.metadata or {})})
            case Epoch():
                self.epoch = record.id
                self._keep([m for m in self._messages if m.seq > record.seq])
            case Retraction():
                self._keep([m for m in self._messages if not record.covers(m)])
