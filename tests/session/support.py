"""Shared helpers of the session tests: a disk that can fail, and short names."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from nanobot.io import FileOps
from nanobot.messages import Message, ToolCall
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from nanobot.session.session import Session

Open = Callable[..., SessionManager]

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class FailingDisk(FileOps):
    """A disk that fails `step` with `error` while `broken`, after writing `room` bytes.

    `steps` lists the requested steps. `fail_at` breaks exactly the step with that index."""

    def __init__(self) -> None:
        self.broken: set[str] = set()
        self.error = errno.ENOSPC
        self.room = 0
        self.steps: list[str] = []
        self.fail_at = -1

    def _step(self, name: str) -> None:
        self.steps.append(name)
        if name in self.broken or len(self.steps) - 1 == self.fail_at:
            raise OSError(self.error, os.strerror(self.error))

    def write(self, descriptor: int, data: memoryview) -> int:
        if "write" in self.broken and self.room:
            written = super().write(descriptor, data[: self.room])
            self.room -= written
            return written
        self._step("write")
        return super().write(descriptor, data)

    def sync(self, descriptor: int) -> None:
        self._step("sync")
        super().sync(descriptor)

    def sync_folder(self, descriptor: int) -> None:
        self._step("sync_folder")
        super().sync_folder(descriptor)

    def truncate(self, descriptor: int, size: int) -> None:
        self._step("truncate")
        super().truncate(descriptor, size)

    def rename(self, folder: int, source: str, target: str) -> None:
        self._step("rename")
        super().rename(folder, source, target)


class MemoryDisk(FileOps):
    """A disk without power cuts, for loops over many files."""

    def sync(self, descriptor: int) -> None:
        pass

    def sync_folder(self, descriptor: int) -> None:
        pass


def user(content: str, turn_id: str = "") -> Message:
    return Message("user", content, turn_id=turn_id)


def reply(content: str, turn_id: str = "") -> Message:
    return Message("assistant", content, turn_id=turn_id)


def asks(*ids: str, turn_id: str = "") -> Message:
    """Return a model's message that calls a tool once for each ID."""
    calls = tuple(ToolCall(name, "read_file", '{"path": "a"}') for name in ids)
    return Message("assistant", "", tool_calls=calls, turn_id=turn_id)


def result(call_id: str, content: str = "ok") -> Message:
    return Message("tool", content, tool_call_id=call_id, name="read_file")


async def say(manager: SessionManager, key: str, *messages: Message | str) -> Session:
    """Add messages as one turn, and wait until they are durable. A string is the person's."""
    session = await manager.get_or_create(key)
    for message in messages:
        session.add_message(user(message) if isinstance(message, str) else message)
    await manager.save(session)
    return session


def texts(messages: object) -> list[str]:
    assert isinstance(messages, list | tuple)
    return [message.content for message in messages]


def files_in(folder: Path, pattern: str = "*") -> list[Path]:
    """Return the files in a folder by name, or none if it doesn't exist."""
    return sorted(folder.glob(pattern))


def put(folder: Path, data: bytes, name: str = "cli_direct.jsonl") -> Path:
    """Create a folder with only this file."""
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    path = folder / name
    path.write_bytes(data)
    return path


async def talk(
    sessions: SessionManager,
    key: str,
    metadata: Mapping[str, JsonValue] | None = None,
    at: datetime = NOON,
) -> None:
    """Store a conversation with one message."""
    session = await sessions.get_or_create(key)
    session.begin_turn()
    session.set_metadata(**(metadata or {}))
    session.add_message(Message("user", "hello", at))
    await sessions.save(session)
