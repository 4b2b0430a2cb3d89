"""What the configuration says about who may talk, and the decision made from it and from pairing.

Ids decide, and are compared as they are; names never do. Nobody may talk unless something says so.

Pairing codes: eight characters that are hard to mistake for each other and hard to guess.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal

from nanobot.channel import Chat, Sender
from nanobot.security.access.book import Book, Key, Kind

GroupMode = Literal["off", "mention", "open"]

EVERYONE = "*"


@dataclass(frozen=True, slots=True)
class AccessRules:
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

    def hears(self, *, addressed: bool) -> bool:
        """Whether what is said in a group is listened to."""
        return self.groups == "open" or (addressed and self.groups == "mention")


_NO_RULES = AccessRules()


class Policy:
    """Decides for all channels, from the configured `rules` and `owners` and a book.

    A channel without rules has the defaults: its owners, and who is let in by pairing.
    """

    def __init__(
        self, rules: Mapping[str, AccessRules], owners: Mapping[str, Collection[str]]
    ) -> None:
        self._rules = dict(rules)
        self._owners = {channel: tuple(ids) for channel, ids in owners.items()}

    def permits(
        self, book: Book, channel: str, sender: Sender, chat: Chat, *, addressed: bool
    ) -> bool:
        """Whether what this sender says here is answered."""
        rules = self._of(channel)
        if rules.everyone:
            return True
        if not chat.is_group:
            return self._may_talk(book, channel, sender)
        people = (
            self._people_of(book, channel, chat.id) if rules.hears(addressed=addressed) else None
        )
        if people is None:
            return False
        if not people:
            return self._may_talk(book, channel, sender)
        return _lists(people, _ids(sender)) or self._any_owner(book, channel, sender)

    def knows_group(self, book: Book, channel: str, group_id: str) -> bool:
        """Whether anybody in this group is answered."""
        rules = self._of(channel)
        listed = self._people_of(book, channel, group_id) is not None
        return rules.everyone or (rules.groups != "off" and listed)

    def may_ask(self, book: Book, channel: str, sender: Sender, chat: Chat) -> Kind | None:
        """What a message that is meant for the agent and not permitted may ask to be let in: the
        person in a private chat, the group where somebody speaks who may talk; None for nothing."""
        rules = self._of(channel)
        if rules.everyone:
            return None
        known = self._may_talk(book, channel, sender)
        if not chat.is_group:
            return None if known else "person"
        closed = rules.groups != "off" and self._people_of(book, channel, chat.id) is None
        return "group" if known and closed else None

    def configured(self, key: Key) -> bool:
        """Whether the configuration alone lets somebody in."""
        channel, kind, id = key
        rules = self._of(channel)
        if kind == "group":
            return rules.people_of(id) is not None
        return _lists((*rules.allow_from, *self._owners.get(channel, ())), {id})

    def owners(self, book: Book, channel: str) -> Sequence[str]:
        """The owner's ids on a channel, as far as there are any by name."""
        paired = (one.id for one in book.known.values() if one.owner and one.channel == channel)
        ids = dict.fromkeys((*self._owners.get(channel, ()), *paired))
        return tuple(id for id in ids if id != EVERYONE)

    def is_owner(self, book: Book, channel: str, id: str) -> bool:
        """Whether this sender is the owner."""
        known = book.known.get((channel, "person", id))
        return _lists(self._owners.get(channel, ()), {id}) or (known is not None and known.owner)

    def _of(self, channel: str) -> AccessRules:
        return self._rules.get(channel, _NO_RULES)

    def _may_talk(self, book: Book, channel: str, sender: Sender) -> bool:
        ids = _ids(sender)
        return (
            _lists(self._of(channel).allow_from, ids)
            or any((channel, "person", id) in book.known for id in ids)
            or self._any_owner(book, channel, sender)
        )

    def _any_owner(self, book: Book, channel: str, sender: Sender) -> bool:
        return any(self.is_owner(book, channel, id) for id in _ids(sender))

    def _people_of(self, book: Book, channel: str, group_id: str) -> frozenset[str] | None:
        """Who may talk in a group; what the configuration says of it goes first."""
        people = self._of(channel).people_of(group_id)
        if people is None and (channel, "group", group_id) in book.known:
            return frozenset((EVERYONE,))
        return people


def _ids(sender: Sender) -> frozenset[str]:
    return frozenset(filter(None, (sender.id, *sender.also)))


def _lists(people: Collection[str], ids: Set[str]) -> bool:
    return EVERYONE in people or not ids.isdisjoint(people)


ALPHABET = "23456789BCDFGHJKMNPQRSTVWXYZ"
"""No 0 and O, no 1, I and L, and no vowels, so that no code is a word."""

LENGTH = 8
"""Characters of a code: 38 bits, of which a guesser gets to try ten codes in ten minutes."""


def new_code() -> str:
    """A code that nobody can foresee."""
    return "".join(secrets.choice(ALPHABET) for _ in range(LENGTH))


def as_code(text: str) -> str:
    """`text` as a code, as people write it: in small letters, with spaces or dashes. Empty where it
    cannot be one."""
    code = "".join(text.replace("-", " ").split()).upper()
    return code if len(code) == LENGTH and set(code) <= set(ALPHABET) else ""


def matching(code: str, codes: Iterable[str]) -> int:
    """The position of `code` in `codes`, -1 where it is not among them.

    Takes as long wherever it stands and however much of it is right.
    """
    found = -1
    for index, known in enumerate(codes):
        if hmac.compare_digest(known.encode(), code.encode()):
            found = index
    return found
