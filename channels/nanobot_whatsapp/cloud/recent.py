"""What was said lately, by message id. WhatsApp names a quoted message by its id alone, so what it
said is only known from here; after a restart, or too late, it is not."""

from __future__ import annotations

from collections import OrderedDict

from nanobot.bus.events import Quote

_MOST = 2_000
_EXCERPT = 300


class Recent:
    """The last messages of all chats."""

    def __init__(self) -> None:
        self._said: OrderedDict[str, tuple[str, str]] = OrderedDict()

    def remember(self, id: str, sender: str, text: str) -> None:
        """`sender` is a name, or `OURS`."""
        self._said[id] = (sender, text[:_EXCERPT])
        self._said.move_to_end(id)
        if len(self._said) > _MOST:
            self._said.popitem(last=False)

    def filled(self, quote: Quote) -> Quote:
        """The same quote with what it quotes, as far as that is known."""
        sender, text = self._said.get(quote.message_id, ("", ""))
        return Quote(quote.message_id, quote.sender or sender, quote.text or text)
