"""What was said: the first message, the last one, or all of them, from the conversation itself."""

from __future__ import annotations

from itertools import islice

from nanobot.providers.offline.intents import TellSaid
from nanobot.providers.offline.prompt import View
from nanobot.providers.offline.texts import say

_MOST = 12
_SHOWN = 200


def tell_said(view: View, wish: TellSaid, chinese: bool) -> str:
    """Quote what the person said before this turn."""
    said = [item.content for item in islice(view.before(), 5_000) if item.content]
    if not said:
        return say("nothing_said_before", chinese)
    if wish.which == "last":
        return say("said_last", chinese, text=said[0])
    if wish.which == "first":
        return say("said_first", chinese, text=said[-1])
    lines = [_short(text) for text in reversed(said[:_MOST])]
    key = "said_all" if len(said) <= _MOST else "said_lately"
    return say(key, chinese, lines="\n".join(f"- {line}" for line in lines))


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _SHOWN else f"{line[:_SHOWN]}…"
