"""A home with people who request access, and helpers for tests of access."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count

from nanobot.channel import Chat, Sender
from nanobot.security.access import Access, AccessRules
from nanobot.testing import FakeClock
from tests.doubles.state import MemoryState

PRIVATE, GROUP = Chat("7"), Chat("-100", is_group=True, title="Family")
ANNA, BOB = Sender("7", "Anna"), Sender("8", "Bob")
MENTION = AccessRules(frozenset({"7"}), "mention")


def number_codes() -> Callable[[], str]:
    """Return a source of consecutive codes: 22222222, 22222223, 22222232 and so on."""
    codes = (f"{number:08b}".replace("0", "2").replace("1", "3") for number in count())
    return lambda: next(codes)


@dataclass
class AccessHome:
    """A home whose nanobot can be restarted. `rules` and `owners` are for `telegram`."""

    state: MemoryState = field(default_factory=MemoryState)
    rules: AccessRules = field(default_factory=AccessRules)
    owners: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    clock: FakeClock = field(default_factory=FakeClock)
    codes: Callable[[], str] = field(default_factory=number_codes)

    def start(self) -> Access:
        """Open the stored state, as after a restart."""
        rules = {"telegram": self.rules}
        return Access(self.state, rules, self.owners, self.clock, self.codes)


def code_in(text: str) -> str:
    """Return the code in a reply to a stranger."""
    return text.split("`")[1].removeprefix("/pair ")


async def answer_to(access: Access, sender: Sender = ANNA, chat: Chat = PRIVATE) -> str:
    """Return the reply to a stranger, or an empty text."""
    if not access.may_request_access("telegram", sender, chat):
        return ""
    return await access.request_access("telegram", sender, chat)


async def asks(access: Access, sender: Sender = ANNA) -> str:
    """Return the code that a stranger gets in their private chat."""
    return code_in(await answer_to(access, sender, Chat(sender.id)))


def lets_in(access: Access, sender: Sender = ANNA) -> bool:
    """Check whether a person has access in their private chat."""
    return access.permits("telegram", sender, Chat(sender.id))
