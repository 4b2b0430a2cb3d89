"""What a question asks for, apart from its words: who said it, and when.

Three rules, each measured: a speaker's name makes that speaker's messages likelier and is then left
out of the words, since people rarely say their own name; a date does the same for messages of that
time; and what asks for a time ("when did …") favours passages that name one. For a personal agent
"did I say" points at the person and "did you suggest" at the agent.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass
from datetime import date

from nanobot.memory.index.dates import Span, asks_when, spans
from nanobot.memory.index.tokenise import STOP, content_words, words_of
from nanobot.memory.text.patterns import late

_VERBS = (
    "say|said|tell|told|mention|mentioned|ask|asked|write|wrote|want|wanted|suggest|suggested"
    "|recommend|recommended|promise|promised|explain|explained|propose|proposed|answer|answered"
)
_BY_ME = late(rf"\b(?:did|have|had|what|when|where)?\s*i (?:ever )?(?:{_VERBS})\b", re.I)
_BY_YOU = late(rf"\b(?:did|have|had|what|when|where)?\s*you (?:ever )?(?:{_VERBS})\b", re.I)


@dataclass(frozen=True, slots=True)
class Question:
    """`words` to look for; `speakers`, names of one person, and `role`: whose messages are
    likelier, empty where nobody's are."""

    words: tuple[str, ...]
    speakers: frozenset[str] = frozenset()
    role: str = ""
    spans: tuple[Span, ...] = ()
    asks_when: bool = False

    @property
    def text(self) -> str:
        """What is left of the question to be embedded."""
        return " ".join(self.words)


def parse(text: str, names: Collection[str], today: date) -> Question:
    """Read a question; `names` are the speakers in what may be searched."""
    found, rest = spans(text, today)
    words = words_of(rest)
    named = {name: words_of(name) for name in names}
    asked = [name for name, parts in named.items() if parts and _called(parts[0], words)]
    spoken_for = {part for name in asked for part in named[name]}
    people = {name.casefold() for name in asked}
    telling = [word for word in content_words(words) if word not in spoken_for]
    return Question(
        words=tuple(telling or content_words(words) or content_words(words_of(text))),
        speakers=frozenset(asked) if len(people) == 1 else frozenset(),
        role="user" if _BY_ME().search(text) else "assistant" if _BY_YOU().search(text) else "",
        spans=found,
        asks_when=asks_when(text),
    )


def _called(name: str, words: list[str]) -> bool:
    """Whether `words` call someone by `name`; one called Will is not meant by every "will"."""
    return name in words and name not in STOP
