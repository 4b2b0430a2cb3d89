"""What a question asks for: words, and apart from them who said it, and when. Pure.

Two rules for questions, each measured: a speaker's name makes that speaker's messages likelier and
is then left out of the words, since people rarely say their own name; a date of the calendar ("8
May 2023", "last May", "in 2022") does the same for messages of that time. A part of a date that is
missing is taken from the past: in March 2026, "in May" is May 2025. What no calendar has
(2023-02-30) stays a word.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Collection, Sequence
from datetime import date
from itertools import chain
from typing import Self

from msgspec import Struct

from nanobot.memory.analysis import content_words, is_stop_word, language_of, words_of

_LONGEST = 4_000
"""Characters of a question that are looked at: the work grows with its words, and who searches for
more searches for everything."""

_MONTHS = "january|february|march|april|may|june|july|august|september|october|november|december"
_BEGINNINGS = [month[:3] for month in _MONTHS.split("|")]
_MONTH = rf"(?P<month>{_MONTHS}|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DATES = (
    rf"\b(?:on )?{_YEAR}-(?P<month>\d\d?)-(?P<day>\d\d?)\b",
    rf"{_YEAR}年(?P<month>\d\d?)月(?:(?P<day>\d\d?)[日号號])?",
    rf"\b(?:on )?(?:the )?{_DAY} (?:of )?{_MONTH}\b\.?(?:,? {_YEAR}\b)?",
    rf"\b(?:on )?{_MONTH}\.? {_DAY}\b(?:,? {_YEAR}\b)?",
    rf"\b(?:in |during |of )?{_MONTH},? (?:of )?{_YEAR}\b",
    rf"\b(?:(?P<last>last)|in|during|since|this past) {_MONTH}\b",
    rf"\b(?:in |during |of |since ){_YEAR}\b",
)
"""The ways to name days, longer ones first: what one takes, the next does not see."""


_OF_AGENT = (
    r"\b(?:you|assistant|agent|bot)\b(?: \w+)?? (?:advi[sc]e|answer|explain|mention|promis"
    r"|propos|recommend|repl[iy]|sa(?:id|y)|suggest|t(?:ell|old)|think|thought|warn|wr[io]te)"
    r"|\byour (?:\w+ )?(?:advice|answer|explanation|idea|opinion|proposal|recommend|reply|suggest)"
)
"""A question about what the agent said: "what did you recommend", "your advice"."""


class Span(Struct, frozen=True):
    """Days from `first` to `last`, both included."""

    first: date
    last: date

    @classmethod
    def of(cls, year: int, month: int = 0, day: int = 0) -> Self:
        """A day, or all days of a month or a year. Raises ValueError where there are none."""
        last = monthrange(year, month)[1] if month else 31
        return cls(date(year, month or 1, day or 1), date(year, month or 12, day or last))


def spans(question: str, today: date) -> tuple[tuple[Span, ...], str]:
    """The days that `question` names, and the question without the words that name them."""
    found: list[Span] = []

    def taken(match: re.Match[str]) -> str:
        try:
            found.append(_span(match.groupdict(), today))
        except ValueError:  # no such day
            return match[0]
        return " "

    for pattern in _DATES:
        question = re.sub(pattern, taken, question, flags=re.IGNORECASE)
    return tuple(found), question


def _span(named: dict[str, str | None], today: date) -> Span:
    """The day, month or year that is named; without a year, the latest that has begun."""
    year, day = (int(named.get(part) or 0) for part in ("year", "day"))
    name = named.get("month") or "0"
    month = int(name) if name.isdecimal() else 1 + _BEGINNINGS.index(name.lower()[:3])
    if not year:
        begun = date(today.year, month, day or 1) <= today
        is_last = named.get("last") and today.month == month
        year = today.year if begun and not is_last else today.year - 1
    return Span.of(year, month, day)


class ParsedQuestion(Struct, frozen=True):
    """`words` to look for; `languages` are those of what is searched, `asked_in` is that of the
    question, or any of them. `speakers` are names of one person, whose messages are likelier.
    `is_about_agent`: it asks what the agent said. `plain` is the question in its own words without
    the names of people who speak."""

    words: tuple[str, ...]
    speakers: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()
    is_about_agent: bool = False
    plain: str = ""
    asked_in: tuple[str, ...] = ()
    languages: tuple[str, ...] = ()


def parse(
    text: str, names: Collection[str], today: date, role: str = "", languages: Sequence[str] = ()
) -> ParsedQuestion:
    """Read a question; `names` are the speakers in what may be searched, `languages` those of it,
    `role` the only role that is asked for."""
    text = text[:_LONGEST]
    found, rest = spans(text, today)
    language = language_of(text, next(iter(languages), ""))
    words = words_of(rest, language)
    content = content_words(words, language)
    asked = _named_in(words, names, language)
    spoken_for = set(chain.from_iterable(asked.values()))
    others = [word for word in content if word not in spoken_for]
    return ParsedQuestion(
        words=tuple(others or content or content_words(words_of(text, language), language)),
        asked_in=(language,) if language_of(text) else tuple(languages),
        languages=tuple(languages),
        plain=_without(spoken_for, text) or text,
        speakers=frozenset(asked) if len({name.casefold() for name in asked}) == 1 else frozenset(),
        spans=found,
        is_about_agent=role == "assistant" or bool(re.search(_OF_AGENT, text, re.IGNORECASE)),
    )


def _named_in(
    words: Sequence[str], names: Collection[str], language: str
) -> dict[str, Sequence[str]]:
    """The names that a question calls, with their words."""
    # One called Will is not meant by every "will".
    called = {word for word in words if not is_stop_word(word, language)}
    parts = {name: words_of(name, language) for name in names}
    return {name: own for name, own in parts.items() if own and own[0] in called}


def _without(names: Collection[str], text: str) -> str:
    """`text` without these words."""
    if not names:
        return text
    pattern = rf"\b(?:{'|'.join(map(re.escape, names))})(?:['’]s)?\b"
    return " ".join(re.sub(pattern, " ", text, flags=re.IGNORECASE).split())
