"""Standing approvals: what the owner has allowed for longer than one call.

Invariants:

- One covers exactly what its `fingerprint` stands for: an MCP tool as its server describes it, with
  the server's program. Any change ends it, also one that is taken back. There are none for
  commands: the files that one will read cannot be known.
- It is the owner's and serves the owner's own conversations alone (`may_repeat`): no guest, no run
  without a person, and no conversation with untrusted content, what this very tool answered aside
  where the tool says so.
- "For this chat today" holds in one conversation, until midnight of the owner's time zone.
- A document that cannot be read in every detail allows nothing.
- Each one that is given, used, ended or revoked is in the audit log, with who did it.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from datetime import date, datetime

from loguru import logger
from msgspec import Struct, convert, to_builtins

from nanobot.bus.events import ApprovalAnswer
from nanobot.bus.state import Document, InvalidDocument, StateStore, versioned_object
from nanobot.clock import Clock
from nanobot.errors import NanobotError, StorageError
from nanobot.security.audit import AuditLog
from nanobot.tooling import Ask, Repeatable, TurnContext

MOST = 200
"""Standing approvals that are kept."""

VERSION = 1
_ADVICE = "What was allowed for good is asked for again."


class Standing(Struct, frozen=True, forbid_unknown_fields=True):
    """One of them. `key` names what it is for, `fingerprint` how that is; `subject` says both to
    people. `session` is the conversation that it holds in (empty: all of the owner's), `day` the
    only one on which it does, in the owner's time zone. `given_at` is aware."""

    id: str
    key: str
    fingerprint: str
    subject: str
    given_by: str
    given_at: datetime
    session: str = ""
    day: date | None = None

    def holds(self, session: str, now: datetime) -> bool:
        """Whether it does, in this conversation. A clock that was set back ends it as well."""
        is_here = self.session in ("", session)
        return is_here and self.given_at <= now and self.day in (None, now.date())


Entries = tuple[Standing, ...]


class StandingApprovals:
    """The document `approvals`. All but `allowing` block; `new_id` gives ids that are not taken."""

    def __init__(
        self, store: StateStore, audit: AuditLog, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._audit, self._clock, self._new_id = audit, clock, new_id
        self._document: Document[Entries] = Document(
            store, "approvals", _decoded, _encoded, (), _ADVICE
        )

    @property
    def problem(self) -> str:
        """What is wrong with the document; empty where nothing is."""
        return self._document.problem

    def entries(self) -> Entries:
        """Those that have not ended, the oldest first. Raises `StorageError`."""
        now = self._clock.now()
        return tuple(one for one in self._document.load() if one.holds(one.session, now))

    def give(
        self, what: Repeatable, caller: TurnContext, answer: ApprovalAnswer, by: str
    ) -> Standing:
        """Allow something from now on, in this conversation today or always. Raises `NanobotError`;
        nothing is allowed then."""
        if answer not in {"chat_today", "always"}:
            raise ValueError(f"{answer} allows nothing for longer")
        now, today = self._clock.now(), answer == "chat_today"
        given = Standing(
            *(self._new_id(), what.key, what.fingerprint, what.subject, by, now),
            session=caller.session_key if today else "",
            day=now.date() if today else None,
        )

        def changed(entries: Entries) -> Entries:
            kept = [
                one
                for one in entries
                if one.holds(one.session, now)
                and (one.key, one.session) != (given.key, given.session)
            ]
            if len(kept) >= MOST:
                raise NanobotError(
                    f"there are {MOST} standing approvals already",
                    hint="/approvals lists them; revoke some.",
                )
            return (*kept, given)

        self._document.change(changed)
        self._record("given", given, by, caller)
        return given

    async def allowing(self, question: Ask, caller: TurnContext) -> Standing | None:
        """What allows the call that this is about, if anything does, and a note of its use. Those
        for something that has changed since are ended. Where they cannot be read, nothing is
        allowed."""
        what = question.repeatable
        if what is None:
            return None
        try:
            mine = await asyncio.to_thread(self._current, what, caller)
        except StorageError as error:
            logger.warning("standing approvals cannot be used: {}", error)
            return None
        now = self._clock.now()
        found = next((one for one in mine if one.holds(caller.session_key, now)), None)
        if found is not None:
            self._record("used", found, found.given_by, caller)
        return found

    def _current(self, what: Repeatable, caller: TurnContext) -> Sequence[Standing]:
        """Those for this, once those for what it was before are ended."""
        stale: list[Standing] = []

        def without_stale(entries: Entries) -> Entries:
            mine = (one for one in entries if one.key == what.key)
            stale[:] = (one for one in mine if one.fingerprint != what.fingerprint)
            return tuple(one for one in entries if one not in stale)

        entries = self._document.change(without_stale)
        for one in stale:
            self._record("ended", one, "it has changed", caller)
        return [one for one in entries if one.key == what.key]

    def revoke(self, id: str, by: str) -> Standing:
        """Take one back. Raises `NanobotError` where there is none of this id."""
        found = next((one for one in self._document.load() if one.id == id), None)
        if found is None:
            raise NanobotError(
                f"there is no standing approval {id!r:.40}", hint="/approvals lists them."
            )
        self._document.change(lambda entries: tuple(one for one in entries if one.id != id))
        self._record("revoked", found, by)
        return found

    def _record(
        self, outcome: str, standing: Standing, by: str, caller: TurnContext | None = None
    ) -> None:
        place = {"session": caller.session_key, "turn": caller.turn_id} if caller else {}
        lasts = f"on {standing.day}" if standing.day else "always"
        self._audit.write(
            {
                "event": "standing approval",
                "outcome": outcome,
                "id": standing.id,
                "subject": standing.subject,
                "lasts": lasts,
                "by": by,
                **place,
            }
        )


class _File(Struct, forbid_unknown_fields=True):
    version: int
    approvals: list[Standing]


def _encoded(entries: Entries) -> bytes:
    content = to_builtins(_File(VERSION, list(entries)))
    return json.dumps(content, indent=1).encode("ascii") + b"\n"


def _decoded(content: bytes) -> Entries:
    entries = convert(versioned_object(content, VERSION), _File).approvals
    for one in entries:
        if one.given_at.tzinfo is None:
            raise InvalidDocument("a moment has no time zone")
        if not (one.id and one.key and one.fingerprint):
            raise InvalidDocument("an entry does not say what it is for")
        if bool(one.session) != (one.day is not None):
            raise InvalidDocument(
                "an entry holds in one chat and for ever, or everywhere for a day"
            )
    if len({one.id for one in entries}) < len(entries):
        raise InvalidDocument("two entries have the same id")
    return tuple(entries)
