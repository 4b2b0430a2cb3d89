"""The person's own birthday in a question ("what did we eat on my birthday?"). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import date

from nanobot.memory.days import Span, read_days

_BIRTHDAY = (
    r"(?:birthday|geburtstag|anniversaire|cumpleaños|compleanno|aniversário|verjaardag|födelsedag"
    r"|fødselsdag|bursdag|syntymäpäivä|urodzin|narozenin|рожден|народжен|doğum gün|生日|誕生日|생일"
    r"|생신)"
)
_BORN = (
    r"(?:born|geboren|née?|nacid[oa]|nat[oa]|nascid[oa]|född|født|рожд[её]н|родил|doğdu|出生"
    r"|生まれ)"
)
_MINE = (
    r"(?:\b(?:my|our|meine?[mnrs]?|mon|mi|mio|meu|mijn|min|minun|moje|moich|mých|мой|моего|мо[её]м"
    r"|мій|benim)\b|我|私|僕|俺|내|제|우리)"
)
_TURKISH = r"doğum günüm"  # the ending says "my"
_PERSON = (
    r"(?:my|the|his|her|their|user|person|owner|mein|mon|mi|il|mio|meu|mijn|min|su|son|день|data"
    r"|date|s)"
)
# "my last birthday", but not "my friend's birthday"
_QUESTION = rf"{_MINE}(?:の|的|\W*(?:\w+\W+)?){_BIRTHDAY}|{_TURKISH}"
_FACT = rf"\W*(?:{_PERSON}\W+){{0,3}}(?:(?:is|was|wurde)\W+)?(?:{_BIRTHDAY}|{_BORN})"


def names_birthday(question: str) -> bool:
    """Return True if a question names the asking person's birthday."""
    return bool(re.search(_QUESTION, question, re.IGNORECASE))


def find_birthdays(facts: Iterable[str], today: date, languages: Sequence[str]) -> tuple[Span, ...]:
    """Return the latest birthday, with both readings of a date like 5/3/1985, by the first of the
    facts about the person that states it. () if none does."""
    for fact in facts:
        if re.match(_FACT, fact, re.IGNORECASE):
            spans = read_days(fact, today, languages).spans
            if days := tuple(_latest(span.first, today) for span in spans if not span.is_long()):
                return days
    return ()


def _latest(born: date, today: date) -> Span:
    return next(day for day in _anniversaries(born, today) if day.first <= today)


def _anniversaries(born: date, today: date) -> Iterator[Span]:
    for year in range(today.year, today.year - 9, -1):  # there may be no 29 February for so long
        with suppress(ValueError):
            yield Span.day(born.replace(year=year))
