"""Whether a text is nothing but what its person said, to the letter. Pure.

Stricter than `Grounds`, for what leaves the conversation: nothing may be added, whoever it came
from, because a word, a full stop or a second space that the person did not write could tell what
they said in confidence.
"""

from __future__ import annotations

from collections.abc import Iterable

from nanobot.messages import Message
from nanobot.security.names import visible

_FEWEST_WORDS = 2


def is_quoted(text: str, messages: Iterable[Message]) -> bool:
    """Whether `text` stands in one of the person's own messages, from word to word.

    It is all of the message, or two words and more. Punctuation and symbols are part of it; only
    the case of its first letter and the spaces of the message do not count. What cannot be seen is
    in no quotation.
    """
    wanted = text.strip()
    if not wanted or visible(wanted) != wanted:
        return False
    return any(_holds(message.own_words, wanted) for message in messages)


def _holds(said: str, wanted: str) -> bool:
    if _stands_in(said.strip(), wanted):
        return True
    return wanted == _spaced(wanted) and _stands_in(_spaced(said), wanted)


def _stands_in(said: str, wanted: str) -> bool:
    if len(wanted.split()) < _FEWEST_WORDS:
        return _is_same(said, wanted)
    at = said.find(wanted[1:], 1)
    while at > 0:
        before, after = said[: at - 1], said[at + len(wanted) - 1 :]
        if _is_same(said[at - 1], wanted[0]) and not _parts_word(before, wanted, after):
            return True
        at = said.find(wanted[1:], at + 1)
    return False


def _is_same(said: str, wanted: str) -> bool:
    """Whether they are equal but for the case of their first letter."""
    return said[1:] == wanted[1:] and said[:1].casefold() == wanted[:1].casefold()


def _parts_word(before: str, inside: str, after: str) -> bool:
    """Whether `inside` begins or ends in the middle of a word."""
    begins = before[-1:].isalnum() and inside[0].isalnum()
    return begins or (inside[-1].isalnum() and after[:1].isalnum())


def _spaced(text: str) -> str:
    return " ".join(text.split())
