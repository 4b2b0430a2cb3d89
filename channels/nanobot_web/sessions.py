"""Visitors of the page: one-time links, the browsers that used one, and the ids of new chats.

A link is 32 random bytes, works once and for a limited time, and is only in memory. It becomes a
session: another 32 bytes, in a cookie that no script can read. Only SHA-256 hashes of both are
kept. The sessions' hashes are in a small file, so that a copy of it is useless for signing in. The
form token, which a page sends with each change, is derived from the session and known only to its
pages."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from nanobot.bus.events import OWNER_ACCOUNT
from nanobot.channel.documents import StateFile
from nanobot.clock import Clock
from nanobot.io import FENCE
from nanobot_web.settings import SESSIONS_FILE

LINK_SECONDS = 600.0
SETUP_SECONDS = 1_800.0
"""Validity of a link for the set-up, and of the permission that it gives to its browser."""
SESSION_DAYS = 30
"""Days without a visit after which a browser needs a new link."""
_MOST_LINKS, _MOST_SESSIONS = 20, 100
_CHAT = 32  # characters of a chat id: half of them are random, the others authenticate its scope
_SEEN = timedelta(hours=1)  # precision of the stored time of the last visit


class Visitor(Struct, frozen=True):
    """A person who signed in: their account (`owner`, `telegram:12345`), and the session by its
    short id."""

    account: str
    session: str
    token: str
    """The form token, which a page sends with each change."""

    @property
    def is_owner(self) -> bool:
        """True for the owner, who sees everything."""
        return self.account == OWNER_ACCOUNT


class Session(Struct, frozen=True):
    """A signed-in browser. `hash` is the hash of its secret, `browser` its User-Agent."""

    hash: str
    account: str
    created_at: datetime
    seen_at: datetime
    browser: str = ""

    @property
    def id(self) -> str:
        """A short id, to revoke it."""
        return self.hash[:8]


class _Stored(Struct, frozen=True):
    """`chats` is the key that authenticates the ids of chats."""

    version: Literal[1] = 1
    sessions: tuple[Session, ...] = ()
    chats: str = ""


class _Link(Struct, frozen=True):
    """`until` is a time of the monotonic clock."""

    account: str
    until: float
    sets_up: bool = False


class Sessions:
    """The sessions in the existing `folder`. They end after `SESSION_DAYS` without use. All methods
    block for a small file, and raise `StorageError`."""

    def __init__(self, folder: Path, clock: Clock) -> None:
        self._file = StateFile(folder / SESSIONS_FILE, _Stored)
        self._clock, self._days = clock, timedelta(days=SESSION_DAYS)
        self._links: dict[str, _Link] = {}
        self._setting_up: dict[str, float] = {}
        """The sessions that may set nanobot up, each with the end of its permission."""
        stored = self._file.read()
        self._sessions = {one.hash: one for one in stored.sessions}
        self._chats = stored.chats or secrets.token_hex(32)

    def new_chat(self, scope: str) -> str:
        """Return the id of a chat that only visitors of this scope can begin."""
        name = secrets.token_hex(_CHAT // 4)
        return f"{name}{self._mark(name, scope)}"

    def is_chat_of(self, id: str, scope: str) -> bool:
        """Return True if `new_chat` made this id for this scope."""
        name, mark = id[: _CHAT // 2], id[_CHAT // 2 :]
        return hmac.compare_digest(mark.encode(), self._mark(name, scope).encode())

    def _mark(self, name: str, scope: str) -> str:
        text = f"chat {name} {scope}".encode(errors="replace")
        return hmac.new(self._chats.encode(), text, hashlib.sha256).hexdigest()[: _CHAT // 2]

    def new_link(self, account: str, *, sets_up: bool = False) -> str:
        """Return a secret that signs in once as that account. With `sets_up`, its browser may also
        set nanobot up, until the link would end."""
        now, seconds = self._clock.monotonic(), SETUP_SECONDS if sets_up else LINK_SECONDS
        live = {key: link for key, link in self._links.items() if link.until > now}
        self._links = dict(list(live.items())[1 - _MOST_LINKS :])
        secret = secrets.token_urlsafe(32)
        self._links[_hash(secret)] = _Link(account, now + seconds, sets_up)
        return secret

    def may_set_up(self, session_id: str) -> bool:
        """Return True if a link has permitted this session to set nanobot up."""
        return self._clock.monotonic() < self._setting_up.get(session_id, 0.0)

    def end_setup(self, session_id: str) -> None:
        """Take the permission back, because it was used."""
        self._setting_up.pop(session_id, None)

    def enter(self, link: str, browser: str) -> str:
        """Use a link up and return the secret of a new session, or an empty text if it is
        invalid."""
        found = self._links.pop(_hash(link), None)
        if found is None or found.until <= self._clock.monotonic():
            return ""
        secret, now = secrets.token_urlsafe(32), self._clock.now()
        session = Session(_hash(secret), found.account, now, now, browser[:120])
        self._keep([session, *self.list_active()[: _MOST_SESSIONS - 1]])
        if found.sets_up:
            self._setting_up[session.id] = found.until
        return secret

    def visitor(self, secret: str) -> Visitor | None:
        """Return the visitor for a session secret, or None."""
        session, now = self._sessions.get(_hash(secret)) if secret else None, self._clock.now()
        if session is None or now - session.seen_at > self._days:
            return None
        if now - session.seen_at > _SEEN and FENCE.is_open():
            others = [one for one in self.list_active() if one is not session]
            self._keep([*others, replace(session, seen_at=now)])
        token = hmac.new(secret.encode(), b"form token", hashlib.sha256).hexdigest()
        return Visitor(session.account, session.id, token)

    def list_active(self) -> Sequence[Session]:
        """Return the signed-in sessions, last used first."""
        now = self._clock.now()
        found = [one for one in self._sessions.values() if now - one.seen_at <= self._days]
        return sorted(found, key=lambda one: one.seen_at, reverse=True)

    def revoke(self, session_id: str) -> bool:
        """End a session by its short id, or all sessions and unused links of an account
        (`telegram:12345`) or of `all`. Return True if there was a session."""
        self._links = {
            key: one for key, one in self._links.items() if session_id not in (one.account, "all")
        }
        gone = [
            one for one in self._sessions.values() if session_id in (one.id, one.account, "all")
        ]
        if gone:
            self._keep([one for one in self._sessions.values() if one not in gone])
        return bool(gone)

    def _keep(self, sessions: Sequence[Session]) -> None:
        self._file.write(_Stored(sessions=tuple(sessions), chats=self._chats))
        self._sessions = {one.hash: one for one in sessions}


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()
