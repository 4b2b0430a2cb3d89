"""API keys of programs. Each belongs to one person, and only its hash is stored.

A channel's folder has two files: `keys.json`, which the command line changes (under a lock, even
while a gateway runs), and `used.json`, which only the gateway writes. A gateway reads changes at
the next request, so a revoked key is rejected at once. A revoked key stays in the file: its name is
a namespace of conversations that no other person may inherit."""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import OWNER_ACCOUNT
from nanobot.channel import account_of
from nanobot.channel.documents import StateFile
from nanobot.errors import NanobotError, StorageError
from nanobot.io import hold_lock, state_of

PREFIX = "nbk-"
"""The prefix of every key, so that people and secret scanners recognize it."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)
_USE_SECONDS = 60.0  # the precision of the last-use time


class ApiKey(Struct, frozen=True):
    """One key. `person` is the account it belongs to (`telegram:12345`), or `owner`. Times are in
    ISO format. `writable`: it may propose memories. `own_words`: the program adds no text of others
    to the person's messages, so the last message of a request counts as theirs. `reads_system`: its
    system messages are also read in conversations, as untrusted content. A revoked key has no
    `digest`."""

    name: str
    person: str
    digest: str
    created_at: str
    writable: bool = False
    own_words: bool = False
    reads_system: bool = False

    @property
    def works(self) -> bool:
        return bool(self.digest)


class _Stored(Struct, frozen=True):
    version: Literal[1] = 1
    keys: tuple[ApiKey, ...] = ()


class _Used(Struct, frozen=True):
    version: Literal[1] = 1
    last: dict[str, str] = {}


class ApiKeys:
    """The keys in `folder`, which is created with the first key. Blocks. Raises `StorageError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "keys.json"
        self._file = StateFile(self._path, _Stored)
        self._uses = StateFile(folder / "used.json", _Used)
        self._known: tuple[object, tuple[ApiKey, ...]] = (None, ())
        self._noted: dict[str, datetime] = {}

    def add(
        self,
        name: str,
        person: str,
        now: datetime,
        *,
        writable: bool = False,
        own_words: bool = False,
        reads_system: bool = False,
    ) -> str:
        """Create a key and return it. Only its hash is stored. Raises `NanobotError` if the name or
        person is invalid or taken."""
        if not _NAME.fullmatch(name):
            raise NanobotError(
                "a key's name can have up to 32 lower-case letters, digits, and hyphens",
                hint="Name it after the program that uses it, such as open-webui.",
            )
        person = check_account(person)
        secret = PREFIX + secrets.token_urlsafe(32)
        moment = now.isoformat(timespec="seconds")
        with hold_lock(self._folder / "keys.lock", wait=True):
            keys = self._file.read().keys
            before = next((key for key in keys if key.name == name), None)
            if before is not None and before.works:
                raise NanobotError(
                    f"the key {name!r} already exists",
                    hint=f"Run `nanobot api keys revoke {name}` first, or use another name.",
                )
            if before is not None and before.person != person:
                raise NanobotError(
                    f"an earlier key named {name!r} has conversations that belong to "
                    f"{before.person}",
                    hint="Use another name.",
                )
            new = ApiKey(name, person, hash_key(secret), moment, writable, own_words, reads_system)
            others = tuple(key for key in keys if key.name != name)
            self._file.write(_Stored(keys=(*others, new)))
        return secret

    def revoke(self, name: str) -> None:
        """Reject a key from now on. Raises `NanobotError` if there is no active key with this
        name."""
        with hold_lock(self._folder / "keys.lock", wait=True):
            keys = self._file.read().keys
            if not any(key.name == name and key.works for key in keys):
                raise NanobotError(
                    f"there is no key {name!r}",
                    hint="List the keys with `nanobot api keys list`.",
                )
            changed = (replace(key, digest="") if key.name == name else key for key in keys)
            self._file.write(_Stored(keys=tuple(changed)))

    def all(self) -> Sequence[ApiKey]:
        """Return the active keys, oldest first."""
        return [key for key in self._current() if key.works]

    def last_used(self) -> Mapping[str, str]:
        """Return the time of each key's last use, by name, in ISO format."""
        return self._uses.read().last

    def find(self, secret: str) -> ApiKey | None:
        """Return the active key for a secret, or None. Each comparison takes constant time."""
        given = hash_key(secret)
        # Compare with all keys, so that the time does not depend on the match.
        found = [key for key in self.all() if hmac.compare_digest(key.digest, given)]
        return found[0] if found else None

    def is_use_new(self, name: str, now: datetime) -> bool:
        """Return True if a key's last use is not noted to the minute. Doesn't block."""
        before = self._noted.get(name)
        return before is None or (now - before).total_seconds() >= _USE_SECONDS

    def note_use(self, name: str, now: datetime) -> None:
        """Store the time of a key's use, if `is_use_new`. Best effort."""
        if not self.is_use_new(name, now):
            return
        self._noted[name] = now
        with suppress(StorageError):
            used = {**self._uses.read().last, name: now.isoformat(timespec="seconds")}
            self._uses.write(_Used(last=used))

    def _current(self) -> tuple[ApiKey, ...]:
        """Return all keys. Reads the file again if it changed."""
        state = state_of(self._path)
        if state is None:
            return ()
        if self._known[0] != state:
            self._known = (state, self._file.read().keys)
        return self._known[1]


def hash_key(secret: str) -> str:
    """Hash a key. A fast hash is enough, because keys have 256 random bits."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def check_account(person: str) -> str:
    """Return the sender id for a key's messages. Raises `NanobotError` if it is not an account."""
    person = person.strip() or OWNER_ACCOUNT
    if person != OWNER_ACCOUNT and account_of("api", person) == ("api", person):
        raise NanobotError(
            f"{person!r} is not an account on a channel",
            hint="Write it as in `nanobot pair list`, such as telegram:12345.",
        )
    return person
