"""The state of Meta: people, the messages between them and the business, and files.

Nothing here checks a request. That has been done before."""

from __future__ import annotations

import base64
import hmac
from dataclasses import dataclass
from itertools import count

from nanobot.clock import Clock
from tests.doubles.graph.media import URL_SECONDS, StoredFile
from tests.doubles.graph.values import Json, Sent, Upload
from tests.doubles.server import Changes

PERSON = "15550002222"
"""The default person of a test."""

WINDOW_SECONDS = 24 * 3600
"""Time after a person's message in which the business may write to them."""


@dataclass(slots=True)
class Person:
    """A person. Either id may be "": the number if it is hidden, and the user id in old versions.
    `wrote` is the time of their last message (seconds since 1970). `gone`: no message reaches
    them."""

    number: str
    user_id: str
    name: str
    wrote: int | None = None
    gone: bool = False

    @property
    def key(self) -> str:
        """The name in tests: the number, otherwise the user id."""
        return self.number or self.user_id

    @property
    def sender(self) -> Json:
        """Return the sender fields of a message."""
        fields: Json = {"from": self.number} if self.number else {}
        return fields | ({"from_user_id": self.user_id} if self.user_id else {})

    @property
    def contact(self) -> Json:
        """Return the entry in `contacts`."""
        fields: Json = {"profile": {"name": self.name}}
        if self.number:
            fields["wa_id"] = self.number
        return fields | ({"user_id": self.user_id} if self.user_id else {})


class World:
    """Holds the state, and gives out ids and dates."""

    def __init__(self, clock: Clock, changes: Changes) -> None:
        self.changes = changes
        self._clock = clock
        self._numbers = count(1)
        self.people: list[Person] = []
        self.files: dict[str, StoredFile] = {}
        self.sent: dict[str, Sent] = {}
        self.heard: dict[str, str] = {}
        """The sender of each message, by its id."""
        self.reads: list[str] = []
        self.typing: list[str] = []
        self.base_url = ""

    @property
    def date(self) -> int:
        """Return the time in seconds since 1970."""
        return int(self._clock.now().timestamp())

    def message_id(self) -> str:
        """Return the id of the next message."""
        mark = f"message number {next(self._numbers):06}".encode()
        return f"wamid.{base64.b64encode(mark).decode()}"

    def find(self, key: str) -> Person | None:
        """Return the person with this number or user id, or None."""
        return next((one for one in self.people if key in (one.number, one.user_id)), None)

    def meet(self, key: str) -> Person:
        """Return the person with this key, who is known from now on."""
        found = self.find(key)
        if found is None:
            hidden = "." in key
            found = Person("" if hidden else key, key if hidden else "", f"Person {key[-4:]}")
            self.people.append(found)
        return found

    def note_message(self, person: Person, message_id: str) -> None:
        """Record a person's message."""
        person.wrote = self.date
        self.heard[message_id] = person.key

    def open_to(self, person: Person) -> bool:
        """Check whether the business may write to them now."""
        return person.wrote is not None and self.date - person.wrote <= WINDOW_SECONDS

    def show(self, sent: Sent) -> None:
        """Show a message to a person."""
        self.sent[sent.id] = sent
        self.changes.tell()

    def store(self, upload: Upload, size: int | None = None) -> StoredFile:
        """Store a file. `size` (bytes) is the reported size if it differs."""
        file_id = str(2_000_000_000_000_000 + next(self._numbers))
        stored = StoredFile(file_id, len(upload.content) if size is None else size, upload)
        self.files[file_id] = stored
        return stored

    def url_of(self, file: StoredFile) -> str:
        """Return a temporary address of the file."""
        expires = str(self.date + URL_SECONDS)
        signed = f"mid={file.id}&ext={expires}&hash={_mark(file.id, expires)}"
        return f"{self.base_url}/whatsapp_business/attachments/?{signed}"

    def file_at(self, query: Json) -> StoredFile | None:
        """Return the file at such an address, or None if it has expired."""
        file_id, expires = str(query.get("mid")), str(query.get("ext"))
        if query.get("hash") != _mark(file_id, expires) or int(expires) < self.date:
            return None
        return self.files.get(file_id)


def _mark(file_id: str, expires: str) -> str:
    return hmac.digest(b"addresses", f"{file_id} {expires}".encode(), "sha256").hex()[:16]
