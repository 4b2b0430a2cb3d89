"""Access control on every channel: the owner's lists and pairing.

Ids decide, in exact comparison; names never do. By default no one has access. A stranger who writes
in private gets a pairing code, and so does a group in which a permitted person addresses the agent.
The owner grants access with the code.

Invariant: access is decided in memory, from ids only, and a grant is durable before it is
announced. Of strangers only id, name and time are stored. Answers, memory and disk writes for
strangers are limited per hour.

One event loop of the process that owns the home changes the state. Any thread may check access,
because a state is immutable and replaced as a whole."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from datetime import datetime
from typing import Literal

from loguru import logger
from msgspec import Struct, field
from msgspec.structs import replace

from nanobot.bus.state import StateStore
from nanobot.channel import Chat, Sender, account_of
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
    is_usable_id,
    label,
    new_code,
    shell_argument,
)
from nanobot.text import pluralize, printable

GroupMode = Literal["off", "mention", "open"]

EVERYONE = "*"


class AccessRules(Struct, frozen=True):
    """The rules of one channel.

    `allow_from` lists people with access, in addition to the owner and grants; `*` is everyone. In
    groups the agent answers nothing (`off`), messages addressed to it (`mention`), or everything
    (`open`), and only in `allow_groups` and groups with a grant. `allow_groups` maps each group's
    id (`*` for any) to its people: `*` for all members, empty for people with access anyway.
    `everyone`: the channel has checked the senders itself, so nothing is checked here."""

    allow_from: frozenset[str] = frozenset()
    groups: GroupMode = "off"
    allow_groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    everyone: bool = False

    def people_of(self, group_id: str) -> frozenset[str] | None:
        """Return the people with access in a group, or None if it is not listed."""
        return self.allow_groups.get(group_id, self.allow_groups.get(EVERYONE))


_NO_RULES = AccessRules()
"""For a channel without configuration: only owners and grants."""


class OpenRequest(Struct, frozen=True):
    """A request of the last hour, and the remaining seconds of its code."""

    request: PairingRequest
    seconds_left: float


class PairingApproval(Struct, frozen=True):
    """The result of an approval. `news` is False if nothing changed. `chat_id` and `thread_id` are
    the chat of the request, empty if unknown."""

    grant: Grant
    chat_id: str = ""
    thread_id: str = ""
    news: bool = True


class Revocation(Struct, frozen=True):
    """The result of a revocation. `still_in`: the configuration still gives access."""

    grant: Grant
    still_in: bool = False


class Access:
    """Decides on access. The document `access` of `store` is read on first use.

    `rules` and `owners` (`*`: everyone) are the configuration, by channel. `new_code` makes the
    codes."""

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
        """Read the document once, for the owner of the home. Return its fault with advice, or an
        empty text."""
        _ = self._document.value
        return self._document.problem

    def refresh(self) -> None:
        """Read the document again, in case another worker of a team changed it. Blocks. Raise
        `StorageError` and keep the known state."""
        self._document.load()

    def permits(self, channel: str, sender: Sender, chat: Chat, *, addressed: bool = True) -> bool:
        """Check whether the agent may answer this sender here. `addressed`: the message is meant
        for the agent (in a group)."""
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
        return contains_any(people, ids) or any(self.is_owner_id(channel, id) for id in ids)

    def knows_group(self, channel: str, group_id: str) -> bool:
        """Check whether anyone in this group has access here."""
        rules = self._rules.get(channel, _NO_RULES)
        listed = self._people_of(channel, group_id) is not None
        return rules.everyone or (rules.groups != "off" and listed)

    def owners(self, channel: str) -> Sequence[str]:
        """Return the known ids of the owner on a channel, configured or paired."""
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
        """Check whether a rejected message, addressed to the agent, is the first request of the
        hour: from a person in private, or for a group from a person with access."""
        rules, now = self._rules.get(channel, _NO_RULES), self._clock.now()
        asks = not self._may_talk(channel, sender)
        if chat.is_group:
            asks = not asks and rules.groups != "off" and not self.knows_group(channel, chat.id)
        key, state = key_of_requester(channel, sender, chat), self._state.at(now)
        if rules.everyone or not asks or not is_usable_id(key[2]) or key in state.requests:
            return False
        if not state.has_room(key[1]):
            self._warn(channel, now)
            return False
        return True

    async def request_access(self, channel: str, sender: Sender, chat: Chat) -> str:
        """Store a request durably and return the reply for its sender, or an empty text for a
        repeated request. Raise `StorageError` if nothing was stored."""
        key, code = key_of_requester(channel, sender, chat), self._new_code()
        name = clean_name(chat.title if chat.is_group else sender.name)
        request = PairingRequest(*key, name, chat.id, code, self._clock.now(), chat.thread_id)

        def add_request(state: AccessState) -> AccessState:
            if key in state.requests or not state.has_room(key[1]):
                return state
            return replace(state, requests={**state.requests, key: request})

        await self._change(add_request)
        return write_greeting(key[1], code) if self._state.requests.get(key) == request else ""

    def requests(self) -> Sequence[OpenRequest]:
        """Return the open requests of the last hour, the latest last."""
        now = self._clock.now()
        state = self._state.at(now)
        return [
            OpenRequest(one, one.code_seconds(now))
            for one in state.requests.values()
            if one.key not in state.grants
        ]

    def grants(self) -> Sequence[Grant]:
        return list(self._state.grants.values())

    async def approve(self, code_or_id: str, *, owner: bool = False) -> PairingApproval:
        """Grant access durably, by code or by `channel:id`. `owner` makes the person an owner, even
        if they already have access.

        Raise `NanobotError` if there is no such request or too many wrong codes, and
        `StorageError`. Then nothing is granted."""
        now, outcome = self._clock.now(), list[PairingApproval | _WrongCode]()

        def grant_access(state: AccessState) -> AccessState:
            try:
                key = find_key(code_or_id, state, now)
            except _WrongCode as error:
                outcome.append(error)
                return replace(state, wrong=(*state.wrong, now))
            approved = build_approval(key, state, now, owner)
            outcome.append(approved)
            return state.with_grant(approved.grant) if approved.news else state

        await self._change(grant_access)  # if the disk fails, a guesser learns nothing
        if isinstance(outcome[-1], _WrongCode):
            raise outcome[-1]
        return outcome[-1]

    async def revoke(self, channel: str, id: str, *, owners_too: bool = True) -> Revocation:
        """Revoke a grant durably. Raise `NanobotError` if there is no such grant (or it is an
        owner's, without `owners_too`), and `StorageError`."""
        text, revoked = f"{channel}:{id}", list[Grant]()

        def shut_out(state: AccessState) -> AccessState:
            key = find_by_address(text, state.grants.values())
            if key is None:
                configured = any(self._is_configured((channel, kind, id)) for kind in KINDS)
                raise NanobotError(
                    f"{printable(text)} did not get access through pairing",
                    hint="Access is set in config.yaml. Change it there." if configured else "",
                )
            grant = state.grants[key]
            if grant.owner and not owners_too:
                command = f"nanobot pair revoke {shell_argument(grant)}"
                raise NanobotError(
                    f"{label(grant)} is the owner",
                    hint=f"You can change this only in the terminal: `{command}`",
                )
            revoked.append(grant)
            return replace(state, grants={k: one for k, one in state.grants.items() if k != key})

        await self._change(shut_out)
        return Revocation(revoked[-1], self._is_configured(revoked[-1].key))

    @property
    def _state(self) -> AccessState:
        """The current state, possibly with expired entries."""
        return self._document.value

    async def _change(self, change: Callable[[AccessState], AccessState]) -> None:
        """Apply a change and store it durably. Raise `StorageError` or any error of `change` if
        nothing has changed."""
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
        """Return the people with access in a group. The configuration takes precedence."""
        people = self._rules.get(channel, _NO_RULES).people_of(group_id)
        if people is None and (channel, "group", group_id) in self._state.grants:
            return frozenset((EVERYONE,))
        return people

    def _is_configured(self, key: Key) -> bool:
        """Check whether the configuration by itself gives access."""
        channel, kind, id = key
        rules = self._rules.get(channel, _NO_RULES)
        if kind == "group":
            return rules.people_of(id) is not None
        return contains_any((*rules.allow_from, *self._owners.get(channel, ())), {id})

    def _warn(self, channel: str, now: datetime) -> None:
        if self._warned is None or age(self._warned, now) >= REQUEST_SECONDS:
            self._warned = now
            logger.warning(
                "many unknown people are writing on {}. For an hour, some of them will not "
                "get a pairing code",
                channel,
            )


class _WrongCode(NanobotError):
    """An unknown code, possibly a guess."""


def find_key(text: str, state: AccessState, now: datetime) -> Key:
    """Return the key for a code or address. Raise `NanobotError`, or `_WrongCode` for an unknown
    code."""
    if ":" in text:
        key = find_by_address(text, (*state.requests.values(), *state.grants.values()))
        if key is None:
            raise NanobotError(
                f"there was no request from {printable(text)} in the last hour",
                hint=(
                    "They have to send me a message first. You can also add them to `allow_from` "
                    "in "
                    "config.yaml."
                ),
            )
        return key
    if not (code := as_code(text)):
        raise NanobotError(
            "this is not a pairing code",
            hint="A code consists of eight letters and digits. An id has the form CHANNEL:ID.",
        )
    if len(state.wrong) >= MOST_WRONG:
        minutes = max(1, round((CODE_SECONDS - age(state.wrong[0], now)) / 60))
        raise NanobotError(
            "there were too many wrong codes, so codes are blocked for now",
            hint=(
                f"Try again in {pluralize(minutes, 'minute')}, or approve the request by its id "
                "(CHANNEL:ID)."
            ),
        )
    # Compare all, so that the time does not depend on the correct part of a code.
    ones = [one for one in state.requests.values() if hmac.compare_digest(one.code, code)]
    if not ones:
        raise _WrongCode(
            "no pending request has this code",
            hint="Check the spelling. A code is valid for ten minutes and works once.",
        )
    request = ones[-1]
    if not request.code_seconds(now):
        raise NanobotError(
            f"the code for {label(request)} has expired",
            hint=(
                f"If you know who this is, approve `{address(request)}` instead of the code. "
                "They get a new code if they write again an hour or more after the last one."
            ),
        )
    return request.key


def build_approval(key: Key, state: AccessState, now: datetime, owner: bool) -> PairingApproval:
    """Return the result of approving a requester or an existing grant."""
    request, before = state.requests.get(key), state.grants.get(key)
    shown = request or before
    assert shown is not None
    if owner and shown.kind == "group":
        raise NanobotError(f"{label(shown)} is a group, and only a person can be the owner")
    place = (request.chat_id, request.thread_id) if request else ("", "")
    if before is not None and before.owner >= owner:
        return PairingApproval(before, *place, news=False)
    return PairingApproval(Grant(*key, shown.name, now.replace(microsecond=0), owner), *place)


def contains_any(people: Collection[str], ids: Set[str]) -> bool:
    return EVERYONE in people or not ids.isdisjoint(people)


def key_of_requester(channel: str, sender: Sender, chat: Chat) -> Key:
    """Return the requester: in a group, the group."""
    return (channel, "group", chat.id) if chat.is_group else (channel, "person", sender.id)


def find_by_address(text: str, ones: Collection[Peer]) -> Key | None:
    """Return the key of an address, in its exact or displayed form."""
    exact = (one.key for one in ones if f"{one.channel}:{one.id}" == text)
    shown = (one.key for one in ones if address(one) == text)
    return next(exact, None) or next(shown, None)


def write_greeting(kind: Kind, code: str) -> str:
    """Return the reply to a stranger or group. It reveals only that this nanobot is private."""
    if kind == "group":
        return (
            "This nanobot is private, and this group has no access. To give everyone in "
            f"this group access, the owner can send me `/pair {code}` in a private chat, or run "
            f"`nanobot pair approve {code}`, within ten minutes."
        )
    return (
        f"This nanobot is private. Your pairing code: `{code}` (valid for ten minutes).\n"
        f"The owner can give you access with `nanobot pair approve {code}` (add `--owner` if "
        "you are the owner)."
    )
