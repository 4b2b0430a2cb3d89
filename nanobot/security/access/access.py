"""Who may talk to this nanobot, on every channel: the owner's lists, and pairing beside them.

A stranger who writes in private gets a code, and so does a group in which somebody who may talk
addresses the agent; the owner lets them in with it. What always holds: whether somebody may talk is
decided in memory, from ids alone, and what was let in is durable before anybody is told so. Of
strangers only ids, name and time are kept. However many of them write, the answers, the memory and
the writes to disk stay within what `book` allows in an hour.

One event loop of the process that owns the home changes it. Threads may ask who may talk at any
time: a book never changes, a new one takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from loguru import logger

from nanobot.channel import Chat, Sender
from nanobot.clock import Clock
from nanobot.security.access.book import (
    CODE_SECONDS,
    REQUEST_SECONDS,
    Asked,
    Book,
    Key,
    Kind,
    Known,
    Moment,
    address,
    alike,
    expired,
    greeting,
    locked,
    no_owner,
    nobody_asked,
    not_a_code,
    not_paired,
    owner_stays,
    tidy_name,
    usable_id,
    used,
    wrong_code,
)
from nanobot.security.access.file import Keeper
from nanobot.security.access.rules import AccessRules, Policy, as_code, matching, new_code

_TRIES = 20
"""How often a code that is taken is replaced by another one."""


@dataclass(frozen=True, slots=True)
class Request:
    """Somebody who asked within the hour. `seconds_left` is how long the code still holds, 0 where
    it does not; `namesakes` are the addresses of others whose name looks the same."""

    asked: Asked
    seconds_left: float
    namesakes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Approved:
    """Who was let in. `news` is false where they had been already, and nothing changed; `chat_id`
    and `thread_id` are where they asked, empty where that is not known; `namesakes` as in
    `Request`."""

    known: Known
    chat_id: str = ""
    news: bool = True
    namesakes: tuple[str, ...] = ()
    thread_id: str = ""


@dataclass(frozen=True, slots=True)
class Revoked:
    """Who was shut out. `still_in`: the configuration lets them in all the same."""

    known: Known
    still_in: bool = False


class Access:
    """`path` is the file, in an existing folder; it is read when it is first needed.

    `rules` and `owners` (`*`: everyone) are what the configuration says, by channel. `new_code`
    makes the codes.
    """

    def __init__(
        self,
        path: Path,
        rules: Mapping[str, AccessRules],
        owners: Mapping[str, Collection[str]],
        clock: Clock,
        new_code: Callable[[], str] = new_code,
    ) -> None:
        self._policy, self._keeper = Policy(rules, owners), Keeper(path, clock)
        self._new_code = new_code
        self._warned: Moment | None = None

    def load(self) -> str:
        """Read the file, if that was not done yet; only by the owner of the home. Gives what is
        wrong with it and what to do about that, empty where nothing is."""
        _ = self._keeper.book
        return self._keeper.trouble

    def permits(self, channel: str, sender: Sender, chat: Chat, *, addressed: bool = True) -> bool:
        """Whether what this sender says here is answered; in a group `addressed` says that it was
        meant for the agent."""
        return self._policy.permits(self._keeper.book, channel, sender, chat, addressed=addressed)

    def knows_group(self, channel: str, group_id: str) -> bool:
        """Whether anybody in this group may talk here."""
        return self._policy.knows_group(self._keeper.book, channel, group_id)

    def stranger(self, channel: str, sender: Sender, chat: Chat) -> str | None:
        """What to say to somebody who was not permitted and means the agent; None for nothing.

        `keep` makes the code durable, and comes before it is said; where that, or saying it, fails,
        `withdraw` makes them somebody who has not asked.
        """
        now, book = self._keeper.now(), self._keeper.book
        kind = self._policy.may_ask(book, channel, sender, chat)
        if kind is None:
            return None
        key, name = _key(channel, sender, chat), chat.title if chat.is_group else sender.name
        book = book.at(now)
        if not usable_id(key[2]) or key in book.asked:
            return None
        if not book.has_room(kind):
            self._warn(channel, now)
            return None
        code = self._unused_code(book)
        self._keeper.note(Asked(*key, tidy_name(name), chat.id, code, now, chat.thread_id))
        return greeting(kind, code) if code else None

    def withdraw(self, channel: str, sender: Sender, chat: Chat) -> None:
        """Forget what `stranger` has noted, since it could not be said."""
        self._keeper.forget(_key(channel, sender, chat))

    async def keep(self) -> None:
        """Write down who asked since the last time, if anybody did. Raises `StorageError`."""
        await self._keeper.keep()

    def requests(self) -> Sequence[Request]:
        """Who asked within the hour and was not let in, the latest last."""
        now = self._keeper.now()
        book = self._keeper.book.at(now)
        return [
            Request(one, one.code_seconds(now), tuple(_namesakes(book, one)))
            for one in book.asked.values()
            if one.key not in book.known
        ]

    def approved(self) -> Sequence[Known]:
        """Who was let in by pairing."""
        return list(self._keeper.book.known.values())

    async def approve(self, code_or_id: str, *, owner: bool = False) -> Approved:
        """Let somebody in, durably: by their code, or by `channel:id` as requests are shown. With
        `owner` they are the owner; that, somebody who was let in before can become as well.

        Raises `NanobotError` where no such request is open, or too many wrong codes were tried, and
        `StorageError`; nobody is let in then.
        """
        async with self._keeper.changing():
            now = self._keeper.now()
            book = self._keeper.book.at(now)
            if ":" in code_or_id:
                key = _by_address(code_or_id, (*book.asked.values(), *book.known.values()))
                if key is None:
                    raise nobody_asked(code_or_id)
            else:
                key = await self._by_code(code_or_id, book, now)
            return await self._let_in(key, book, now, owner=owner)

    async def revoke(self, channel: str, id: str, *, owners_too: bool = True) -> Revoked:
        """Shut somebody out again, durably. Raises `NanobotError` where pairing has not let them
        in (or made them the owner, without `owners_too`), and `StorageError`."""
        async with self._keeper.changing():
            book, address = self._keeper.book, f"{channel}:{id}"
            key = _by_address(address, book.known.values())
            if key is None:
                kinds: tuple[Kind, ...] = ("person", "group")
                configured = any(self._policy.configured((channel, kind, id)) for kind in kinds)
                raise not_paired(address, configured=configured)
            if book.known[key].owner and not owners_too:
                raise owner_stays(book.known[key])
            await self._keeper.change(lambda book: book.without(key))
            return Revoked(book.known[key], self._policy.configured(key))

    def owners(self, channel: str) -> Sequence[str]:
        """The ids of the owner on a channel: those configured, and those from pairing."""
        return self._policy.owners(self._keeper.book, channel)

    def is_owner_id(self, channel: str, id: str) -> bool:
        """Whether this sender is the owner."""
        return self._policy.is_owner(self._keeper.book, channel, id)

    def _unused_code(self, book: Book) -> str:
        taken = {one.code for one in book.asked.values()}
        codes = (self._new_code() for _ in range(_TRIES))
        return next((code for code in codes if code not in taken), "")

    def _warn(self, channel: str, now: Moment) -> None:
        if self._warned is None or self._warned.age(now) >= REQUEST_SECONDS:
            self._warned = now
            logger.warning(
                "many strangers write on {}; for an hour, some of them get no pairing code", channel
            )

    async def _by_code(self, text: str, book: Book, now: Moment) -> Key:
        if not (code := as_code(text)):
            raise not_a_code()
        if book.locked:
            raise locked(CODE_SECONDS - book.wrong[0].age(now))
        requests = list(book.asked.values())
        position = matching(code, [one.code for one in requests])
        if position < 0:
            await self._keeper.note_wrong_code(now)
            raise wrong_code()
        asked = requests[position]
        if asked.used:
            raise used(asked)
        if not asked.code_seconds(now):
            raise expired(asked)
        return asked.key

    async def _let_in(self, key: Key, book: Book, now: Moment, *, owner: bool) -> Approved:
        asked, before = book.asked.get(key), book.known.get(key)
        shown = asked or before
        assert shown is not None
        if owner and shown.kind == "group":
            raise no_owner(shown)
        chat_id, thread_id = (asked.chat_id, asked.thread_id) if asked else ("", "")
        if before is not None and before.owner >= owner:
            return Approved(before, chat_id, news=False, thread_id=thread_id)
        known = Known(*key, shown.name, now.civil, owner)
        await self._keeper.change(lambda book: book.letting_in(known))
        return Approved(known, chat_id, True, tuple(_namesakes(book, known)), thread_id)


def _key(channel: str, sender: Sender, chat: Chat) -> Key:
    """Who asks: in a group that is the group."""
    return (channel, "group", chat.id) if chat.is_group else (channel, "person", sender.id)


def _by_address(text: str, ones: Collection[Asked | Known]) -> Key | None:
    """The one whose address `text` is, exactly or as it is shown."""
    exact = (one.key for one in ones if f"{one.channel}:{one.id}" == text)
    shown = (one.key for one in ones if address(one) == text)
    return next(exact, None) or next(shown, None)


def _namesakes(book: Book, one: Asked | Known) -> Iterator[str]:
    others: dict[Key, Asked | Known] = {**book.asked, **book.known}
    name = alike(one.name)
    for key, other in others.items():
        if name and key != one.key and alike(other.name) == name:
            yield address(other)
