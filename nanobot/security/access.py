"""Who may talk to this nanobot, on every channel: the owner's lists, and pairing beside them.

Ids decide, and are compared as they are; names never do. Nobody may talk unless something says so.
A stranger who writes in private gets a code, and so does a group in which somebody who may talk
addresses the agent; the owner lets them in with it.

Invariant: whether somebody may talk is decided in memory, from ids alone, and what was let in is
durable before anybody is told so. Of strangers only ids, name and time are kept. However many of
them write, the answers, the memory and the writes to disk stay within what `pairing` allows in an
hour.

One event loop of the process that owns the home changes it. Threads may ask who may talk at any
time: a state never changes, a new one takes its place.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from datetime import datetime
from typing import Literal

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.bus.events import account_of
from nanobot.bus.state import StateStore
from nanobot.channel import Chat, Sender
from nanobot.clock import Clock
from nanobot.errors import NanobotError
from nanobot.security.pairing import (
    CODE_SECONDS,
    KINDS,
    MOST_WRONG,
    REQUEST_SECONDS,
    AccessState,
    Grant,
    Key,
    Kind,
    PairingRequest,
    Peer,
    access_document,
    address,
    age,
    as_code,
    clean_name,
    label,
    new_code,
    shell_argument,
    usable_id,
)
from nanobot.text import printable

GroupMode = Literal["off", "mention", "open"]

EVERYONE = "*"


class AccessRules(Struct, frozen=True):
    """The rules of one channel.

    `allow_from` may talk, beside the owner and those let in by pairing; `*` is everyone. In groups
    nothing is answered (`off`), what is meant for the agent (`mention`), or everything (`open`),
    and only in `allow_groups` and those let in by pairing: it gives each group's id (`*` for any)
    the people who may talk there, `*` for everyone in it, empty for those who may talk anyway.
    With `everyone` the senders have been checked elsewhere, and nothing here is asked.
    """

    allow_from: frozenset[str] = frozenset()
    groups: GroupMode = "off"
    allow_groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    everyone: bool = False

    def people_of(self, group_id: str) -> frozenset[str] | None:
        """Who may talk in a group; None where it is not on the list."""
        return self.allow_groups.get(group_id, self.allow_groups.get(EVERYONE))


_NO_RULES = AccessRules()
"""Of a channel that the configuration does not mention: owners, and who is let in by pairing."""


class OpenRequest(Struct, frozen=True):
    """A request of the last hour, and how long its code still holds; 0 where it does not."""

    request: PairingRequest
    seconds_left: float


class Approved(Struct, frozen=True):
    """Who was let in. `news` is false where they had been already, and nothing changed; `chat_id`
    and `thread_id` are where they asked, empty where that is not known."""

    grant: Grant
    chat_id: str = ""
    thread_id: str = ""
    news: bool = True


class Revoked(Struct, frozen=True):
    """Who was shut out. `still_in`: the configuration lets them in all the same."""

    grant: Grant
    still_in: bool = False


class Access:
    """The document `access` of `store` is read when it is first needed.

    `rules` and `owners` (`*`: everyone) are what the configuration says, by channel. `new_code`
    makes the codes.
    """

    def __init__(
        self,
        store: StateStore,
        rules: Mapping[str, AccessRules],
        owners: Mapping[str, Collection[str]],
        clock: Clock,
        new_code: Callable[[], str] = new_code,
    ) -> None:
        self._rules = dict(rules)
        self._owners = {channel: tuple(ids) for channel, ids in owners.items()}
        self._document, self._clock, self._new_code = access_document(store), clock, new_code
        self._changing = asyncio.Lock()
        self._warned: datetime | None = None

    def load(self) -> str:
        """Read the document, if that was not done yet; only by the owner of the home. Gives what is
        wrong with it and what to do about that, empty where nothing is."""
        _ = self._document.known
        return self._document.problem

    def refresh(self) -> None:
        """Read the document again, since another worker of a team may have changed it. Blocks.
        Raises `StorageError`: what was known holds on."""
        self._document.load()

    def permits(self, channel: str, sender: Sender, chat: Chat, *, addressed: bool = True) -> bool:
        """Whether what this sender says here is answered; in a group `addressed` says that it was
        meant for the agent."""
        rules = self._rules.get(channel, _NO_RULES)
        if rules.everyone:
            return True
        if not chat.is_group:
            return self._may_talk(channel, sender)
        hears = rules.groups == "open" or (addressed and rules.groups == "mention")
        people = self._people_of(channel, chat.id) if hears else None
        if people is None:
            return False
        if not people:
            return self._may_talk(channel, sender)
        ids = frozenset(filter(None, (sender.id, *sender.also)))
        return _lists(people, ids) or any(self.is_owner_id(channel, id) for id in ids)

    def knows_group(self, channel: str, group_id: str) -> bool:
        """Whether anybody in this group may talk here."""
        rules = self._rules.get(channel, _NO_RULES)
        listed = self._people_of(channel, group_id) is not None
        return rules.everyone or (rules.groups != "off" and listed)

    def owners(self, channel: str) -> Sequence[str]:
        """The ids of the owner on a channel, as far as there are any by name: those configured, and
        those from pairing."""
        grants = self._state.grants.values()
        paired = (one.id for one in grants if one.owner and one.channel == channel)
        ids = dict.fromkeys((*self._owners.get(channel, ()), *paired))
        return tuple(id for id in ids if id != EVERYONE)

    def is_owner_id(self, channel: str, id: str) -> bool:
        channel, id = account_of(channel, id)
        owners = self._owners.get(channel, ())
        grant = self._state.grants.get((channel, "person", id))
        return EVERYONE in owners or id in owners or (grant is not None and grant.owner)

    def may_request_access(self, channel: str, sender: Sender, chat: Chat) -> bool:
        """Whether a message that is meant for the agent and not permitted asks to be let in, for
        the first time within the hour: a person's in a private chat, or for a group that of
        somebody there who may talk."""
        rules, now = self._rules.get(channel, _NO_RULES), self._clock.now()
        asks = not self._may_talk(channel, sender)
        if chat.is_group:
            asks = not asks and rules.groups != "off" and not self.knows_group(channel, chat.id)
        key, state = _key(channel, sender, chat), self._state.at(now)
        if rules.everyone or not asks or not usable_id(key[2]) or key in state.requests:
            return False
        if not state.has_room(key[1]):
            self._warn(channel, now)
            return False
        return True

    async def request_access(self, channel: str, sender: Sender, chat: Chat) -> str:
        """Note that somebody asks, durably, and give what to say to them; empty where they asked
        meanwhile. Raises `StorageError`; they have not asked then."""
        key, code = _key(channel, sender, chat), self._new_code()
        name = clean_name(chat.title if chat.is_group else sender.name)
        request = PairingRequest(*key, name, chat.id, code, self._clock.now(), chat.thread_id)

        def noted(state: AccessState) -> AccessState:
            if key in state.requests or not state.has_room(key[1]):
                return state
            return replace(state, requests={**state.requests, key: request})

        await self._change(noted)
        return _greeting(key[1], code) if self._state.requests.get(key) == request else ""

    def requests(self) -> Sequence[OpenRequest]:
        """Who asked within the hour and was not let in, the latest last."""
        now = self._clock.now()
        state = self._state.at(now)
        return [
            OpenRequest(one, one.code_seconds(now))
            for one in state.requests.values()
            if one.key not in state.grants
        ]

    def approved(self) -> Sequence[Grant]:
        return list(self._state.grants.values())

    async def approve(self, code_or_id: str, *, owner: bool = False) -> Approved:
        """Let somebody in, durably: by their code, or by `channel:id` as requests are shown. With
        `owner` they are the owner; that, somebody who was let in before can become as well.

        Raises `NanobotError` where no such request is open, or too many wrong codes were tried, and
        `StorageError`; nobody is let in then.
        """
        now, outcome = self._clock.now(), list[Approved | _WrongCode]()

        def let_in(state: AccessState) -> AccessState:
            try:
                key = _key_of(code_or_id, state, now)
            except _WrongCode as error:
                outcome.append(error)
                return replace(state, wrong=(*state.wrong, now))
            approved = _approved(key, state, now, owner)
            outcome.append(approved)
            return state.with_grant(approved.grant) if approved.news else state

        await self._change(let_in)  # where the disk refuses, a guess is told nothing
        if isinstance(outcome[-1], _WrongCode):
            raise outcome[-1]
        return outcome[-1]

    async def revoke(self, channel: str, id: str, *, owners_too: bool = True) -> Revoked:
        """Shut somebody out again, durably. Raises `NanobotError` where pairing has not let them
        in (or made them the owner, without `owners_too`), and `StorageError`."""
        text, revoked = f"{channel}:{id}", list[Grant]()

        def shut_out(state: AccessState) -> AccessState:
            key = _by_address(text, state.grants.values())
            if key is None:
                configured = any(self._configured((channel, kind, id)) for kind in KINDS)
                raise NanobotError(
                    f"{printable(text)} did not get access by pairing",
                    hint="Access is set in config.yaml. Change it there." if configured else "",
                )
            grant = state.grants[key]
            if grant.owner and not owners_too:
                command = f"nanobot pair revoke {shell_argument(grant)}"
                raise NanobotError(
                    f"{label(grant)} is the owner",
                    hint=f"Only the terminal can change this: `{command}`",
                )
            revoked.append(grant)
            return replace(state, grants={k: one for k, one in state.grants.items() if k != key})

        await self._change(shut_out)
        return Revoked(revoked[-1], self._configured(revoked[-1].key))

    @property
    def _state(self) -> AccessState:
        """As it is now; it may have requests and wrong codes that are too old."""
        return self._document.known

    async def _change(self, change: Callable[[AccessState], AccessState]) -> None:
        """Carry out a change; it holds once it is durable. Raises `StorageError` and what `change`
        raises; nothing has changed then."""
        now = self._clock.now()
        async with self._changing:
            await asyncio.to_thread(self._document.change, lambda stored: change(stored.at(now)))

    def _may_talk(self, given: str, sender: Sender) -> bool:
        channel, _ = account_of(given, sender.id)
        allowed, grants = self._rules.get(channel, _NO_RULES).allow_from, self._state.grants
        return EVERYONE in allowed or any(
            id in allowed or (channel, "person", id) in grants or self.is_owner_id(channel, id)
            for _, id in (account_of(given, id) for id in (sender.id, *sender.also))
            if id
        )

    def _people_of(self, channel: str, group_id: str) -> frozenset[str] | None:
        """Who may talk in a group; what the configuration says of it goes first."""
        people = self._rules.get(channel, _NO_RULES).people_of(group_id)
        if people is None and (channel, "group", group_id) in self._state.grants:
            return frozenset((EVERYONE,))
        return people

    def _configured(self, key: Key) -> bool:
        """Whether the configuration alone lets somebody in."""
        channel, kind, id = key
        rules = self._rules.get(channel, _NO_RULES)
        if kind == "group":
            return rules.people_of(id) is not None
        return _lists((*rules.allow_from, *self._owners.get(channel, ())), {id})

    def _warn(self, channel: str, now: datetime) -> None:
        if self._warned is None or age(self._warned, now) >= REQUEST_SECONDS:
            self._warned = now
            logger.warning(
                "many unknown people write on {}. For an hour, some of them get no pairing code",
                channel,
            )


class _WrongCode(NanobotError):
    """Somebody may be guessing codes."""


def _key_of(text: str, state: AccessState, now: datetime) -> Key:
    """Whose code or address this is. Raises `NanobotError`, and `_WrongCode` for a code that is
    nobody's."""
    if ":" in text:
        key = _by_address(text, (*state.requests.values(), *state.grants.values()))
        if key is None:
            raise NanobotError(
                f"there is no request from {printable(text)} in the last hour",
                hint=(
                    "They must write to me first. You can also add them to `allow_from` in "
                    "config.yaml."
                ),
            )
        return key
    if not (code := as_code(text)):
        raise NanobotError(
            "this is not a pairing code",
            hint="A code has eight letters and digits. An id is written as CHANNEL:ID.",
        )
    if len(state.wrong) >= MOST_WRONG:
        minutes = max(1, round((CODE_SECONDS - age(state.wrong[0], now)) / 60))
        raise NanobotError(
            "there were too many wrong codes, so codes are blocked for now",
            hint=f"Try again in {minutes} minutes, or approve the request by its id (CHANNEL:ID).",
        )
    # All are compared, so that it takes as long however much of the code is right.
    ones = [one for one in state.requests.values() if hmac.compare_digest(one.code, code)]
    if not ones:
        raise _WrongCode(
            "no pending request has this code",
            hint="Check the spelling. A code is valid for ten minutes and works once.",
        )
    request = ones[-1]
    if not request.code_seconds(now):
        raise NanobotError(
            f"the code of {label(request)} has expired",
            hint=(
                f"If you know who this is, approve `{address(request)}` instead of the code. They "
                "get a new code if they write an hour after the last one."
            ),
        )
    return request.key


def _approved(key: Key, state: AccessState, now: datetime, owner: bool) -> Approved:
    """What comes of letting somebody in who asked or was let in before."""
    request, before = state.requests.get(key), state.grants.get(key)
    shown = request or before
    assert shown is not None
    if owner and shown.kind == "group":
        raise NanobotError(f"{label(shown)} is a group, and only a person can be the owner")
    place = (request.chat_id, request.thread_id) if request else ("", "")
    if before is not None and before.owner >= owner:
        return Approved(before, *place, news=False)
    return Approved(Grant(*key, shown.name, now.replace(microsecond=0), owner), *place)


def _lists(people: Collection[str], ids: Set[str]) -> bool:
    return EVERYONE in people or not ids.isdisjoint(people)


def _key(channel: str, sender: Sender, chat: Chat) -> Key:
    """Who asks: in a group that is the group."""
    return (channel, "group", chat.id) if chat.is_group else (channel, "person", sender.id)


def _by_address(text: str, ones: Collection[Peer]) -> Key | None:
    """The one whose address `text` is, exactly or as it is shown."""
    exact = (one.key for one in ones if f"{one.channel}:{one.id}" == text)
    shown = (one.key for one in ones if address(one) == text)
    return next(exact, None) or next(shown, None)


def _greeting(kind: Kind, code: str) -> str:
    """For a stranger or a group, who learn that this is a private nanobot, and no more."""
    if kind == "group":
        return (
            "This nanobot is private, and this group has no access. The owner can give "
            f"access to everyone in this group within ten minutes: send me `/pair {code}` in "
            f"private, or run `nanobot pair approve {code}`."
        )
    return (
        f"This nanobot is private. Your pairing code: `{code}` (valid for ten minutes).\n"
        f"The owner can give you access with `nanobot pair approve {code}` (add `--owner` if "
        "you are the owner)."
    )
