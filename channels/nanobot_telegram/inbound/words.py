"""What was said: the text of a message, and whether it was said to us.

Mentions and links are where Telegram's entities say, counted in UTF-16 code units; nothing is found
by searching. An entity that does not lie on whole characters is ignored. Commands are recognised as
the core does, by how a text begins. Words that somebody else wrote call nobody.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from telegram import MessageEntity

from nanobot.channel.text import valid_unicode
from nanobot_telegram.inbound.values import Me

_COMMAND = re.compile(r"\s*/([A-Za-z0-9_-]{1,64})(?:@([A-Za-z0-9_]{1,64}))?(?!\S)(.*)", re.DOTALL)
_START = "start"
"""What the app sends for the button that begins a chat, perhaps with where the person came from."""


@dataclass(frozen=True, slots=True)
class Heard:
    """The text as the agent gets it; `addressed`: it mentions or commands us."""

    text: str
    addressed: bool = False


@dataclass(frozen=True, slots=True)
class _Span:
    """An entity and where it lies, in characters."""

    entity: MessageEntity
    start: int
    end: int


def hear(text: str, entities: Sequence[MessageEntity], me: Me, *, own: bool) -> Heard | None:
    """What a text says; None where it is a command for another bot. `own`: its sender wrote it."""
    text = valid_unicode(text)
    spans = _spans(text, entities)
    if not own:
        return Heard(_written_out(text, spans))
    mentioned = [span for span in spans if _is_me(text, span, me)]
    begin = _after_mention(text, mentioned)
    words = _written_out(text, spans, begin)
    command = _COMMAND.fullmatch(words)
    if command is None:
        return Heard(words, bool(mentioned))
    return _commanded(words, command, me, mentioned=bool(mentioned))


def _commanded(words: str, command: re.Match[str], me: Me, *, mentioned: bool) -> Heard | None:
    name, bot, rest = command.groups()
    if bot and bot.casefold() != me.username.casefold():
        return None
    known = name.lower().replace("_", "-") in me.commands
    if name.lower() == _START:  # in a group, every bot has it
        return Heard("/help", mentioned or bool(bot))
    return Heard(f"/{name}{rest}" if bot else words, mentioned or bool(bot) or known)


def _is_me(text: str, span: _Span, me: Me) -> bool:
    if span.entity.type == MessageEntity.MENTION:
        return text[span.start : span.end].casefold() == f"@{me.username}".casefold()
    user = span.entity.user
    return span.entity.type == MessageEntity.TEXT_MENTION and user is not None and user.id == me.id


def _after_mention(text: str, mentioned: Sequence[_Span]) -> int:
    """Where the words begin behind a mention of us; 0 where none stands in front, or nothing else
    is said: a bare call is something said as well."""
    first = next((span for span in mentioned if not text[: span.start].strip()), None)
    if first is None:
        return 0
    rest = text[first.end :].lstrip()
    if rest[:1] in {",", ":"}:
        rest = rest[1:].lstrip()
    return len(text) - len(rest) if rest else 0


def _written_out(text: str, spans: Sequence[_Span], begin: int = 0) -> str:
    """The text from `begin` on, with the addresses of its links."""
    pieces, at = [], begin
    for span in spans:
        shown = text[span.start : span.end]
        url = valid_unicode(span.entity.url or "")
        if span.start < at or span.entity.type != MessageEntity.TEXT_LINK or not url:
            continue
        pieces.append(text[at : span.end])
        pieces.append("" if url.rstrip("/") == shown.rstrip("/") else f" ({url})")
        at = span.end
    return "".join([*pieces, text[at:]])


def _spans(text: str, entities: Sequence[MessageEntity]) -> list[_Span]:
    """The entities that lie on whole characters, in the order of the text."""
    if not entities:
        return []
    units = accumulate((1 + (ord(char) > 0xFFFF) for char in text), initial=0)
    index = {unit: at for at, unit in enumerate(units)}
    found = []
    for entity in entities:
        start, end = index.get(entity.offset), index.get(entity.offset + entity.length)
        if start is not None and end is not None and start < end:
            found.append(_Span(entity, start, end))
    return sorted(found, key=lambda span: span.start)
