"""Stored requests: for repetitions, and responses that others follow.

Each has a file in the adapter's folder, named after the request. Its first line, the request, is
written before its message is published. The second, the answer, is appended before the core learns
of the delivery. So no answer is lost, even after a crash. A torn line counts as missing. Files of a
message are stored next to it until it is answered. Everything is deleted after a month, as long as
the core knows the events. Blocks. Raises `StorageError`."""

from __future__ import annotations

import json
import os
import re
import threading
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import MsgspecError, Struct, to_builtins
from msgspec.json import decode
from msgspec.structs import replace

from nanobot.bus.events import Media, Said
from nanobot.errors import SendRefused, StorageError
from nanobot.io import DISK, make_folder, replace_file, storage_errors, sync_folder, write_all
from nanobot_api.requests import Attachment

REPEATABLE, FOLLOWED, ONCE = "key-", "resp-", "once-"
"""Prefixes of event ids: with a client's key, to be followed by another request, or neither, in
which case nothing is stored."""

KEEP_SECONDS = 30 * 86_400.0
_FILE_SECONDS = 3 * 86_400.0
_ID = re.compile(r"[0-9a-f]{32}")


class Answer(Struct, frozen=True):
    """An answer: its `text`, and the turn's texts `before` it. `error` is the class of the error,
    if it failed. The tokens count all model calls. `origin` marks the untrusted content that it may
    repeat. `turn` is the id of its turn."""

    text: str
    error: str = ""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    before: str = ""
    origin: str = ""
    turn: str = ""

    @property
    def whole(self) -> str:
        """The complete text of the turn."""
        return "\n\n".join(filter(None, (self.before, self.text)))


class Record(Struct, frozen=True):
    """A request, and its answer when there is one. `key` is the name of the key, `chat` the chat of
    its message, `digest` that of the question. `said` has all messages of a request without a
    conversation (`alone`) that another one may follow. `created` is in seconds since the epoch.
    `conversation` and `previous` are the client's names. `formatted`: the answer is JSON. An
    unstored request is only kept for a repetition. Of a deleted one, only its existence is kept."""

    version: Literal[1] = 1
    key: str = ""
    chat: str = ""
    digest: str = ""
    created: int = 0
    alone: bool = False
    said: tuple[Said, ...] = ()
    answer: Answer | None = None
    conversation: str = ""
    previous: str = ""
    formatted: bool = False
    state: Literal["stored", "unstored", "deleted"] = "stored"


def record_id(chat: str, event_id: str) -> str:
    """Return the id of a request, 32 hexadecimal digits."""
    return sha256(f"{chat}\n{event_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def is_kept(event_id: str) -> bool:
    """Return True if a request of this event has a record."""
    return event_id.startswith((REPEATABLE, FOLLOWED))


class Records:
    """The records in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._records, self._files = folder / "records", folder / "files"
        self._changing, self._keeping = threading.Lock(), threading.Lock()

    def read(self, id: str) -> Record | None:
        """Return the record of a request, or None."""
        if not _ID.fullmatch(id):
            return None
        path, record = self._path(id), Record()
        with storage_errors(path):
            try:
                # After a power loss, zeros can follow a synced line.
                lines = path.read_bytes().replace(b"\0", b"\n").split(b"\n")
            except FileNotFoundError:
                return None
        for line in lines:
            with suppress(MsgspecError, ValueError):  # torn
                if not record.created:
                    record = decode(line, type=Record)
                elif record.answer is None:
                    record = replace(record, answer=decode(line, type=Answer))
        return record if record.created else None

    def begin(self, id: str, record: Record) -> Record:
        """Store a request, durably, and return its record. A repetition gets the record of the
        first one."""
        with self._changing:
            before = self.read(id)
            if before is not None:
                return before
            with storage_errors(self._records):
                make_folder(self._records)
                _append(self._path(id), record)
                sync_folder(self._records)
            return record

    def answer(self, id: str, answer: Answer) -> bool:
        """Store the first answer of a request with a record, durably. Return True if the request
        was deleted."""
        with self._changing:
            record = self.read(id)
            if record is not None and record.state == "deleted":
                return True
            if record is not None and record.answer is None:
                kept = replace(answer, before="") if record.formatted else answer
                _append(self._path(id), kept)
            return False

    def delete(self, id: str) -> None:
        """Delete a request, but keep its id, because a repetition must not run it again."""
        with self._changing:
            if (record := self.read(id)) is not None:
                bare = Record(1, record.key, "", record.digest, record.created, state="deleted")
                with storage_errors(self._records):
                    replace_file(self._path(id), _encode(bare))

    def keep_files(self, id: str, files: tuple[Attachment, ...]) -> tuple[Media, ...]:
        """Store the files of a message, durably, until it is answered."""
        kept = []
        for number, file in enumerate(files):
            with self._keeping, storage_errors(self._files):  # a repetition has the same files
                make_folder(self._files)
                replace_file(self._files / f"{id}-{number}", file.data)
            kept.append(Media(f"{id}-{number}", file.kind, file.mime, file.name, len(file.data)))
        return tuple(kept)

    def file(self, media: Media, limit: int) -> bytes:
        """Return the content of a file of a message. Raises `SendRefused`."""
        id, _, number = media.ref.partition("-")
        if not _ID.fullmatch(id) or not number.isdecimal():
            raise SendRefused("there is no such file")
        try:
            data = (self._files / f"{id}-{number}").read_bytes()
        except OSError as error:
            raise SendRefused(f"the file cannot be read: {error.strerror}") from error
        if len(data) > limit:
            raise SendRefused(f"the file is {len(data):,} bytes, but the limit is {limit:,}")
        return data

    def drop_files(self, id: str) -> None:
        """Delete the files of an answered message. Best effort."""
        with suppress(OSError):
            for path in self._files.glob(f"{id}-*"):
                path.unlink(missing_ok=True)

    def give_up(self, id: str) -> None:
        """Delete a request whose message was rejected, unless it has an answer. Best effort."""
        with self._changing, suppress(OSError, StorageError):
            record = self.read(id)
            if record is None or record.answer is None:
                self.drop_files(id)
                self._path(id).unlink(missing_ok=True)

    def sweep(self, now: float) -> None:
        """Delete old records and files. `now` is in seconds since the epoch. Best effort."""
        for folder, seconds in ((self._records, KEEP_SECONDS), (self._files, _FILE_SECONDS)):
            with suppress(OSError):
                for path in folder.iterdir():
                    if now - path.stat().st_mtime > seconds:
                        path.unlink(missing_ok=True)

    def _path(self, id: str) -> Path:
        return self._records / f"{id}.json"


def _append(path: Path, value: Record | Answer) -> None:
    """Append a line durably, or nothing. Raises `StorageError`."""
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    with storage_errors(path):
        descriptor = os.open(path, flags, 0o600)
        try:
            size = os.fstat(descriptor).st_size
            try:
                write_all(descriptor, (b"\n" if size else b"") + _encode(value), DISK)
                DISK.sync(descriptor)
            except BaseException:
                with suppress(OSError):
                    DISK.truncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)


def _encode(value: Record | Answer) -> bytes:
    return json.dumps(to_builtins(value), ensure_ascii=False).encode(errors="replace")
