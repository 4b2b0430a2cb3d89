"""Keys of programs: each stands for one person, and is stored as a hash only.

Two files of a channel's folder: `keys.json`, which the command line changes (under a lock, whether
or not a gateway runs), and `used.json`, which the gateway alone writes. A gateway sees a change at
the next request, so a revoked key is refused at once. A revoked key stays in the file without use:
its name is a name space of conversations, which nobody else may inherit.
"""

from __future__ import annotations

import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from hashlib import sha256
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import OWNER_ACCOUNT, account_of
from nanobot.channel.documents import StateFile
from nanobot.errors import NanobotError, StorageError
from nanobot.io import hold_lock, state_of

PREFIX = "nbk-"
"""How every key begins, so that people and scanners know one where they see it."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?", re.ASCII)
_USE_SECONDS = 60.0
"""The time of the last use is only so exact."""


class ApiKey(Struct, frozen=True):
    """One key. `person` is the account whose it is (`telegram:12345`), or `owner`; times are in ISO
    format. `writable`: it may propose memories. `own_words`: the program adds no text of others to
    what the person writes, so the last message of a request counts as theirs. `reads_system`: what
    it sends as system messages is read in conversations too, as untrusted content. Without a
    `digest` it was revoked."""

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
    """The keys in `folder`, which is made when a key is added. Blocks; raises `StorageError`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._path = folder / "keys.json"
        self._file = StateFile(self._path, _Stored)
        self._uses = StateFile(folder / "used.json", _Used)
        self._known: tuple[object, tuple[ApiKey, ...]] = (None, ())

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
        """Make a key and return it; only its hash is stored. Raises `NanobotError` for a name or a
        person that is not possible."""
        if not _NAME.fullmatch(name):
            raise NanobotError(
                "a key's name consists of up to 32 lower-case letters, digits, and hyphens",
                hint="Name it after the program that uses it, such as open-webui.",
            )
        person = _account(person)
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
                    f"the conversations of an earlier key {name!r} belong to {before.person}",
                    hint="Use another name.",
                )
            new = ApiKey(name, person, _digest(secret), moment, writable, own_words, reads_system)
            others = tuple(key for key in keys if key.name != name)
            self._file.write(_Stored(keys=(*others, new)))
        return secret

    def revoke(self, name: str) -> None:
        """Refuse a key from now on. Raises `NanobotError` where there is none of that name."""
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
        """Those that work, the oldest first."""
        return [key for key in self._current() if key.works]

    def last_used(self) -> Mapping[str, str]:
        """When each key was used last, by name, in ISO format."""
        return self._uses.read().last

    def find(self, secret: str) -> ApiKey | None:
        """The key that was given, None for none. It takes as long however much of it is right."""
        given = _digest(secret)
        found = [key for key in self.all() if hmac.compare_digest(key.digest, given)]
        return found[0] if found else None

    def note_use(self, name: str, now: datetime) -> None:
        """Remember that a key was used. Best effort."""
        try:
            last = self._uses.read().last
            before = last.get(name)
            if before and (now - datetime.fromisoformat(before)).total_seconds() < _USE_SECONDS:
                return
            used = {**last, name: now.isoformat(timespec="seconds")}
            self._uses.write(_Used(last=used), durable=False)
        except (StorageError, ValueError):
            return

    def _current(self) -> tuple[ApiKey, ...]:
        """The keys, read again where the file changed."""
        state = state_of(self._path)
        if state is None:
            return ()
        if self._known[0] != state:
            self._known = (state, self._file.read().keys)
        return self._known[1]


def _digest(secret: str) -> str:
    """Keys are 256 random bits, so a fast hash guards them."""
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def _account(person: str) -> str:
    """The sender that a key's messages come from. Raises `NanobotError` for what is no account."""
    person = person.strip() or OWNER_ACCOUNT
    if person != OWNER_ACCOUNT and account_of("api", person) == ("api", person):
        raise NanobotError(
            f"{person!r} is not an account on a channel",
            hint="Use the form in `nanobot pair list`, such as telegram:12345.",
        )
    return person
