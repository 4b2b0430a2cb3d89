"""Conversations in memory: a second implementation of the port `SessionStore`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from difflib import get_close_matches

from nanobot.clock import Clock
from nanobot.errors import UnknownSession
from nanobot.messages import Message
from nanobot.session.records import (
    Epoch,
    JsonValue,
    Mark,
    Metadata,
    Record,
    Retraction,
    decode,
    encode,
    seq_of_epoch,
    with_marks,
)
from nanobot.session.session import Contents
from nanobot.session.store import Redact, SessionInfo


@dataclass
class MemorySessions:
    """`lines` are what a process leaves behind, by key; give them to the next one."""

    clock: Clock
    lines: dict[str, list[str]] = field(default_factory=dict)
    archived: dict[str, int] = field(default_factory=dict)
    closed: bool = False
    stale: set[str] = field(default_factory=set)

    async def read(self, key: str) -> Contents | None:
        self.stale.discard(key)
        now, records = self.clock.now(), self._records(key)
        messages = [record for record in records if isinstance(record, Message)]
        header = self._header(key) or Metadata(key, None, None)
        gone = [record for record in records if isinstance(record, Retraction)]
        epochs = [record for record in records if isinstance(record, Epoch)]
        epoch = epochs[-1].id if epochs else header.epoch
        bound = max(header.last_consolidated, seq_of_epoch(epoch))
        times = [message.timestamp for message in messages if message.timestamp]
        return Contents(
            created_at=times[0] if times else now,
            updated_at=times[-1] if times else now,
            messages=tuple(
                with_marks(
                    [m for m in messages if m.seq > bound and not any(r.covers(m) for r in gone)],
                    (record for record in records if isinstance(record, Mark)),
                )
            ),
            metadata=header.metadata or {},
            last_consolidated=header.last_consolidated,
            epoch=epoch,
            first_seq=self.archived.get(key, 0) + 1,
            next_seq=max([bound, *(m.seq for m in messages)]) + 1,
        )

    def is_current(self, key: str) -> bool:
        return key not in self.stale

    def is_idle(self, key: str) -> bool:
        return True

    def mark_stale(self, key: str) -> None:
        self.stale.add(key)

    def expire(self) -> None:
        pass

    def append(self, key: str, lines: str) -> asyncio.Future[None]:
        if self.closed:
            raise RuntimeError("the sessions are closed")
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lines.setdefault(key, []).extend(lines.splitlines())

        def done() -> None:
            if not written.done():
                written.set_result(None)

        asyncio.get_running_loop().call_soon(done)
        return written

    async def restore(self, key: str, lines: str) -> None:
        known = self.lines.setdefault(key, [])
        known.extend(line for line in lines.splitlines() if line not in known)

    async def archive(self, key: str, header: Metadata) -> None:
        self.archived[key] = header.last_consolidated

    async def set_aside(self, key: str, aside: Metadata, left: Metadata) -> None:
        header = encode(aside).rstrip("\n")
        self.lines[aside.key] = [header, *self.lines.get(key, []), header]
        self.archived[aside.key] = self.archived.pop(key, 0)
        self.lines[key] = [encode(left).rstrip("\n")]
        self.stale.add(key)

    async def set_damaged_aside(self, key: str) -> None:
        self.lines.pop(key, None)
        self.stale.add(key)

    async def rewrite(self, key: str, redact: Redact) -> int:
        old = self.lines.get(key, [])
        self.lines[key] = [redact(line) for line in old]
        self.stale.add(key)
        return sum(one != other for one, other in zip(old, self.lines[key], strict=True))

    def drop_archive(self, key: str) -> None:
        kept = self.archived.get(key, 0)
        records = zip(self.lines.get(key, []), self._records(key), strict=True)
        gone = (
            line for line, record in records if isinstance(record, Message) and record.seq < kept
        )
        for line in list(gone):
            self.lines[key].remove(line)

    def messages(self, key: str, first: int, last: int | None) -> Iterator[Message]:
        if key not in self.lines:
            raise UnknownSession(key, next(iter(get_close_matches(key, self.lines, 1)), ""))
        records = self._records(key)
        return iter(
            record
            for record in records
            if isinstance(record, Message) and first <= record.seq <= (last or record.seq)
        )

    def window(self, key: str, first: int, last: int | None, holding: str = "") -> list[Message]:
        gone = [record for record in self._records(key) if isinstance(record, Retraction)]
        marks = [record for record in self._records(key) if isinstance(record, Mark)]
        messages = self.messages(key, first, last)
        return with_marks([m for m in messages if not any(r.covers(m) for r in gone)], marks)

    def epochs(self, key: str, first: int, last: int) -> list[int]:
        ends = {record.seq for record in self._records(key) if isinstance(record, Epoch)}
        return sorted(seq for seq in ends if first <= seq <= last)

    def metadata_of(self, key: str) -> Mapping[str, JsonValue]:
        header = self._header(key)
        return header.metadata or {} if header else {}

    def sessions(
        self, *, sealed: bool = False, holding: str = "", within: float = 0.0
    ) -> Iterator[SessionInfo]:
        infos = [self._info(key) for key in self.lines]
        found = [one for one in infos if one.last_consolidated < one.epoch_seq or not sealed]
        return iter(sorted(found, key=lambda info: info.updated_at, reverse=True))

    def count(self) -> int:
        return len(self.lines)

    def retry(self) -> None:
        """Nothing is ever refused."""

    async def close(self) -> None:
        self.closed = True
        await asyncio.sleep(0)  # what was appended is done by now

    def _records(self, key: str) -> list[Record]:
        found = (decode(line.encode()) for line in self.lines.get(key, []))
        return [record for record in found if record is not None]

    def _header(self, key: str) -> Metadata | None:
        headers = [record for record in self._records(key) if isinstance(record, Metadata)]
        if not headers:
            return None
        most = max(header.last_consolidated for header in headers)
        newest = headers[-1]
        return Metadata(key, None, None, most, 1, newest.metadata, newest.epoch)

    def _info(self, key: str) -> SessionInfo:
        records = self._records(key)
        said = [r for r in records if isinstance(r, Message) and r.role != "tool"]
        times: list[datetime] = [m.timestamp for m in said if m.timestamp] or [self.clock.now()]
        header = self._header(key) or Metadata(key, None, None)
        epochs = [record.seq for record in records if isinstance(record, Epoch)]
        return SessionInfo(
            key=key,
            created_at=times[0],
            updated_at=times[-1],
            size=sum(map(len, self.lines[key])),
            preview=" ".join(said[-1].content.split())[:80] if said else "",
            place="memory",
            epoch_seq=max([seq_of_epoch(header.epoch), *epochs]),
            last_consolidated=header.last_consolidated,
            last_seq=max((r.seq for r in records if isinstance(r, Message)), default=0),
            metadata=header.metadata or {},
        )
