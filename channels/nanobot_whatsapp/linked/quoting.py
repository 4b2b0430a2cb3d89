"""What a reply may quote: WhatsApp wants the words and their author again, not only an id."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from nanobot_whatsapp.linked.events import Spoken

_REMEMBERED = 1000
_MOST_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Quotable:
    """A message that came in: its author's JID as it was sent from, and how it begins."""

    id: str
    sender: str
    text: str


class Quotables:
    """The messages that came last, in memory: a reply to an older one goes without the quote."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, str], Quotable] = OrderedDict()

    def heard(self, spoken: Spoken) -> None:
        """One came in. Another one under its id does not take its place: senders choose them."""
        heard = spoken.heard
        quotable = Quotable(heard.id, spoken.sender, heard.text[:_MOST_CHARACTERS])
        self._known.setdefault((spoken.chat, heard.id), quotable)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)

    def find(self, chat: str, id: str) -> Quotable | None:
        """The message with this id in the chat with this JID."""
        return self._known.get((chat, id))
