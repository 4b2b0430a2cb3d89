"""Words as the index stores them, and what a question asks for apart from them: who said it, and
when. Pure.

SQLite's `porter unicode61` finds words where a language separates them: it folds case, drops
diacritics and takes off English endings. It finds next to nothing in Chinese, Japanese and Korean,
where a run of characters without a space counts as one word. So `prepared` spells such a run out
before it is stored, as single characters and as pairs: `東京都` becomes `東 東京 京 京都 都`. A
question of one character then matches it, one of two matches the pair, and a longer one matches by
the pairs that it shares. Korean words carry their particles (`서울에서`), so they go the same way.
Width and compatibility forms are unified (NFKC): `ＡＢＣ１２３` is `ABC123`. ASCII is stored as it
is, which also makes this cheap.

Two rules for questions, each measured: a speaker's name makes that speaker's messages likelier and
is then left out of the words, since people rarely say their own name; a date of the calendar ("8
May 2023", "last May", "in 2022") does the same for messages of that time. A part of a date that is
missing is taken from the past: in March 2026, "in May" is May 2025. What no calendar has
(2023-02-30) stays a word.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator
from datetime import date, timedelta

from msgspec import Struct

_CJK = (
    "\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c\u3040-\u30fa\u30fc-\u30ff"
    "\u3100-\u312f\u3131-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
# Compiled at their first use, which `re` remembers: that takes time which a start does not have.
_RUN = f"[{_CJK}]+"
_PIECE = f"[{_CJK}]+|(?:(?![{_CJK}])[^\\W_])+"
_KANA = re.compile(r"[\u3040-\u309f]+\Z")

_STOP_WORDS = """
    a about above after again against all am an and any are aren as at be because been before
    being below between both but by can cannot could couldn d did didn do does doesn doing don
    down during each few for from further had hadn has hasn have haven having he her here hers
    herself him himself his how i if in into is isn it its itself just ll m me might more most
    must my myself need no nor not now of off on once only or other our ours ourselves out over
    own re s same shall shan she should shouldn so some such t than that the their theirs them
    themselves then there these they this those through to too under until up us ve very was
    wasn we were weren what when where which while who whom whose why will with won would wouldn
    you your yours yourself yourselves also y say says said saying tell tells told mention
    mentions mentioned talk talks talked know knows got get gets
"""
STOP = frozenset(_STOP_WORDS.split())
"""Words that say nothing about what is looked for: English function words, and the words in which a
question speaks of the conversation itself."""


def prepared(text: str) -> str:
    """`text` as it is given to the full-text table."""
    if text.isascii():
        return text
    return re.sub(_RUN, _spelled_out, unicodedata.normalize("NFKC", text))


def words_of(text: str) -> list[str]:
    """The words of a question in order, lower case, CJK runs as the keys that find them."""
    found: list[str] = []
    for piece in re.findall(_PIECE, unicodedata.normalize("NFKC", text).lower()):
        found.extend(_keys(piece) if re.match(_RUN, piece) else [piece])
    return found


def content_words(words: list[str]) -> list[str]:
    """`words` without stop words and repetitions; all of them where nothing else would be left."""
    distinct = list(dict.fromkeys(words))
    content = [word for word in distinct if word not in STOP]
    return content or distinct


def _spelled_out(match: re.Match[str]) -> str:
    return f" {' '.join(_singles_and_pairs(match[0]))} "


def _singles_and_pairs(run: str) -> Iterator[str]:
    for at, character in enumerate(run):
        yield character
        if at + 1 < len(run):
            yield run[at : at + 2]


def _keys(run: str) -> list[str]:
    """A character alone, or pairs; pairs of grammar only (hiragana) where there is nothing else."""
    if len(run) == 1:
        return [run]
    pairs = [run[at : at + 2] for at in range(len(run) - 1)]
    return [pair for pair in pairs if not _KANA.match(pair)] or pairs


# fmt: off
_MONTHS = [
    "january", "february", "march", "april", "may", "june",
    "july", "august", "september", "october", "november", "december",
]
# fmt: on
_MONTH = (
    r"(?P<month>jan|feb|mar|apr|may|jun|jul|aug|sep|sept|oct|nov|dec|" + "|".join(_MONTHS) + ")"
)
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
    r"\b(?:you|assistant|agent|bot)\b(?: \w+){0,2}? (?:advi[sc]e|answer|explain|mention|promis"
    r"|propos|recommend|repl[iy]|sa(?:id|y)|suggest|t(?:ell|old)|think|thought|warn|wr[io]te)"
    r"|\byour (?:\w+ )?(?:advice|answer|explanation|idea|opinion|proposal|recommend|reply|suggest)"
)
"""A question about what the agent said: "what did you recommend", "your advice"."""


class Span(Struct, frozen=True):
    """Days from `first` to `last`, both included."""

    first: date
    last: date


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
    year, day = int(named.get("year") or 0), named.get("day")
    month = _month_number(named.get("month"))
    if not month:
        return Span(date(year, 1, 1), date(year, 12, 31))
    if not year:
        this = (today.year, today.month)
        begun = date(today.year, month, int(day or 1)) <= today
        is_last = bool(named.get("last")) and (today.year, month) == this
        year = today.year if begun and not is_last else today.year - 1
    if day:
        return Span(date(year, month, int(day)), date(year, month, int(day)))
    following = date(year + month // 12, month % 12 + 1, 1)
    return Span(date(year, month, 1), following - timedelta(days=1))


def _month_number(name: str | None) -> int:
    if not name or name.isdecimal():
        return int(name or 0)
    return next(n for n, full in enumerate(_MONTHS, 1) if full.startswith(name.lower()[:3]))


class ParsedQuestion(Struct, frozen=True):
    """`words` to look for; `speakers` are names of one person, whose messages are likelier.
    `is_about_agent`: it asks what the agent said."""

    words: tuple[str, ...]
    speakers: frozenset[str] = frozenset()
    spans: tuple[Span, ...] = ()
    is_about_agent: bool = False


def parse(text: str, names: Collection[str], today: date, role: str = "") -> ParsedQuestion:
    """Read a question; `names` are the speakers in what may be searched, `role` the only role that
    is asked for."""
    found, rest = spans(text, today)
    words = words_of(rest)
    named = {name: words_of(name) for name in names}
    # One called Will is not meant by every "will".
    called = set(words) - STOP
    asked = [name for name, parts in named.items() if parts and parts[0] in called]
    spoken_for = {part for name in asked for part in named[name]}
    others = [word for word in content_words(words) if word not in spoken_for]
    return ParsedQuestion(
        words=tuple(others or content_words(words) or content_words(words_of(text))),
        speakers=frozenset(asked) if len({name.casefold() for name in asked}) == 1 else frozenset(),
        spans=found,
        is_about_agent=role == "assistant" or bool(re.search(_OF_AGENT, text, re.IGNORECASE)),
    )
