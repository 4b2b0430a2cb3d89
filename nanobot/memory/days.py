"""Days that a question names: dates in words and in figures, and days relative to today. Pure.

A question becomes symbols (see `daywords`), and `_PATTERNS` are their orders that name days: "vor
drei Tagen" is `ANU`, "three days ago" `NUG`. Words and numbers that only look like a day ("may",
2/3) need a word such as "on" or "in" before them, or a year.

`16/01/2024` and `1/16/2024` have one reading, `5/3/2024` has both: people also paste dates from
elsewhere, and a wrong reading only boosts a few messages.

(The library dateparser takes up to 2 s and 60 MB for its first question, takes the "May" of "May I"
and 2/3 for days, and misses "la semaine dernière".)"""

from __future__ import annotations

import re
from calendar import monthrange
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import date, timedelta
from functools import cache
from typing import NamedTuple, Self

from msgspec import Struct

from nanobot.memory.daywords import (
    FEW,
    UNITS,
    DayWords,
    Symbol,
    Values,
    fold,
    languages_shown,
    load_words,
    tokenise,
)
from nanobot.memory.languages import ENGLISH

_CERTAIN = 5
"""Letters that name days even in a language that the question is hardly in."""

_RECENT = 15
"""Maximum age in years of a date whose year has two digits."""

_MANY = 6
"""Units that are still "a few"."""

_BUDDHIST = 543
"""Years that the Thai calendar is ahead."""

# Dates in figures. One without a year needs a word before it, from this field of the languages.
_ALONE = r"(?<![\w.,/:+])(?<!(?<![\u05d0-\u05ea])-)"  # Hebrew has a hyphen before figures
_END = r"(?![\w/:-]|[.,]\d)"
_FIGURES = {
    rf"{_ALONE}(?P<y>(?:19|20)\d\d)(?P<s>[-./])(?P<m>\d\d?)(?P=s)(?P<d>\d\d?)(?!\d|[./:-]\d)": "",
    rf"{_ALONE}(?P<a>\d\d?)(?P<s>[-/]|\. ?)(?P<b>\d\d?)(?P=s)(?P<y>(?:19|20)\d\d|\d\d){_END}": "",
    rf"{_ALONE}(?P<a>\d\d?)(?P<s>\.) ?(?P<b>\d\d?)(?:\.(?!\w)|(?![\w.,/:-]))": "dotted",
    rf"{_ALONE}(?P<a>\d\d?)(?P<s>/)(?P<b>\d\d?){_END}": "on",
}
_VERSION = r"(?:version|release|ver|v|python)"
_NO_DAY = (  # 2/3 of the cake, am 16.5 km
    r"(?i:of|de|del|dei|der|des|von|van|av|af|di|do|da|km|m|cm|mm|kg|g|l|ml|h|uhr|euro|grad|prozent"
    r"|percent)\b|[%€$°\d]"
)
_VERBS = ("may", "march")
_COMMON = frozenset({"i", "o", "N", "Y"})  # symbols that show no language
_SPACELESS = "\u0e00"  # scripts from here on have few words in common
_OF = ("of", "de", "di", "des")
_BEFORE_VERB = ("in", "during", "since", "last", "this")


class Span(Struct, frozen=True):
    """Days from `first` to `last`, both included."""

    first: date
    last: date

    @classmethod
    def of(cls, year: int, month: int = 0, day: int = 0) -> Self:
        """Return a day, or all days of a month or a year. Raise ValueError if it does not exist."""
        last = monthrange(year, month)[1] if month else 31
        return cls(date(year, month or 1, day or 1), date(year, month or 12, day or last))

    def is_long(self) -> bool:
        return self.first < self.last

    @classmethod
    def day(cls, day: date) -> Self:
        return cls(day, day)


class NamedDays(NamedTuple):
    """Days that a part of a text names. `stays` if its words are also searched for, and `date` is
    the date in it, without the words before."""

    begin: int
    end: int
    spans: tuple[Span, ...]
    stays: bool = False
    date: str = ""


class ReadDays(NamedTuple):
    """The days that a question names, the `rest` of it, and the `dates` as they are written."""

    spans: tuple[Span, ...]
    rest: str
    dates: tuple[str, ...] = ()


def read_days(question: str, today: date, languages: Sequence[str] = (ENGLISH,)) -> ReadDays:
    """Return the days that `question` names, and the question without those words. A date that does
    not exist (2023-02-30) stays a word. `languages` are the likely ones of the question."""
    text = question
    if not text.isascii():  # figures of all scripts
        text = "".join(str(int(one)) if one.isdecimal() else one for one in text)
    found = _find_figures(text, today, languages)
    found += _find_words(_blank_out(text, found, "\n"), today, languages)
    found.sort()
    rest = _blank_out(question, [one for one in found if not one.stays], " ")
    spans = dict.fromkeys(span for one in found for span in one.spans)
    return ReadDays(tuple(spans), rest, tuple(one.date for one in found if one.date))


def _blank_out(text: str, found: Sequence[NamedDays], by: str) -> str:
    for one in found:
        text = text[: one.begin] + by * (one.end - one.begin) + text[one.end :]
    return text


def _find_figures(text: str, today: date, languages: Sequence[str]) -> list[NamedDays]:
    """Return the dates in figures, and what only looks so, without days."""
    found = list[NamedDays]()
    for pattern, cues in _FIGURES.items() if re.search(r"\d[-./]", text) else ():
        for match in re.finditer(pattern, _blank_out(text, found, "\n")):
            begin = re.search(r"[^\W\d_]* *\Z", text[: match.start()]).start()  # type: ignore[union-attr]
            before = fold(text[begin : match.start()].rstrip())
            is_cued = _is_cue(before, cues or "on", languages)
            if cues and (not is_cued or re.match(_NO_DAY, text[match.end() :].lstrip())):
                continue
            days = tuple(_read_figures(match.groupdict(""), today, is_cued=is_cued))
            days *= not re.fullmatch(_VERSION, before)
            begin = begin if is_cued else match.start()
            found.append(NamedDays(begin, match.end(), days, not days, match[0] if days else ""))
    return found


def _is_cue(word: str, field: str, languages: Sequence[str]) -> bool:
    """Return True if dates in figures follow this word in one of the languages."""
    every = load_words()
    fields = (every[name].fields for name in languages if name in every)
    return any(word in one.get("on", ()) for one in fields if field in one)


def _read_figures(named: Mapping[str, str], today: date, *, is_cued: bool) -> Iterator[Span]:
    """Yield the readings of a date: the day first and the month first, if each is possible."""
    year, one, other = int(named.get("y") or 0), named.get("a", ""), named.get("b", "")
    orders = [(other, one), (one, other)]
    if "m" in named:
        orders = [(named["m"], named["d"])]
    elif "." in named["s"]:
        orders.pop()  # nobody writes 1.16.2024
    if 0 < year < 100:
        year += 2000
        is_padded = len(one) == len(other) == 2
        if not (is_cued or is_padded) or not -_RECENT <= year - today.year <= 1:
            return
    for month, day in orders:
        with suppress(ValueError):
            yield _resolve_date(today, year, int(month), int(day))


def _resolve_date(
    today: date, year: int, month: int, day: int = 0, *, is_last: bool = False
) -> Span:
    """Return a day or a month. Without a year it is the latest that has begun: in March 2026, "in
    May" is May 2025. Raise ValueError if it does not exist."""
    if year:
        return Span.of(year - _BUDDHIST if year > 2400 else year, month, day)
    for back in range(9):  # there may be no 29 February for so long
        with suppress(ValueError):
            found = Span.of(today.year - back, month, day)
            is_this = found.first <= today <= found.last
            if found.first <= today and not (is_last and is_this):
                return found
    raise ValueError(month, day)


Resolve = Callable[[Values, date, DayWords], Iterator[Span]]
"""Returns the readings of a pattern, by the values of its symbols. May raise ValueError or
OverflowError."""


def _find_words(text: str, today: date, languages: Sequence[str]) -> list[NamedDays]:
    """Return the days in words, also of a language that is not likely if they are long enough."""
    tokens, found, every = list(tokenise(text)), list[NamedDays](), load_words()
    shown = languages_shown(tokens)
    if any("Y" in token.values for token in tokens):
        shown.update(languages)
    for name in sorted(every.keys() & shown, key=lambda one: (one not in languages, one)):
        free = [one for one in tokens if not any(d.begin <= one.begin < d.end for d in found)]
        sentence = _Sentence(text, every[name], free, is_sure=name in languages)
        found += sentence.find(today)
    return found


class _Sentence:
    """A text in one language, as a line of symbols: `N;U;G;` is "three days ago"."""

    def __init__(
        self, text: str, known: DayWords, tokens: Sequence[Symbol], *, is_sure: bool
    ) -> None:
        self._text, self._known, self._is_sure = text, known, is_sure
        self._symbols = known.read(tokens)
        self._line = "".join(f"{''.join(one.values)};" for one in self._symbols)

    def find(self, today: date) -> Iterator[NamedDays]:
        """Yield the days, longer patterns first."""
        for pattern, kinds, resolve in _patterns(is_free="-" in self._known.fields.get("in", "-")):
            begin = 0
            while match := pattern.search(self._line, begin):
                begin = match.start() + 1
                part, after, values = self._read(match, kinds)
                if self._is_doubtful(part, after, values):
                    continue
                days = tuple[Span, ...]()
                with suppress(ValueError, OverflowError):  # no such day
                    days = tuple(resolve(values, today, self._known))
                if days:
                    used = re.sub("[^;]+", "#", match[0])
                    self._line = self._line[: match.start()] + used + self._line[match.end() :]
                    written = (
                        self._date_in(part)
                        if resolve in (_date, _month_first) and "N" in values
                        else ""
                    )
                    stays = resolve in (_weekday, _lone_weekday) or (
                        resolve in _ALSO_SAID and any(map(Span.is_long, days))
                    )
                    yield NamedDays(part[0].begin, part[-1].end, days, stays, written)

    def _date_in(self, part: Sequence[Symbol]) -> str:
        """Return the date without the words before it."""
        begin = next(one.begin for one in part if not one.values.keys().isdisjoint("Nm"))
        return self._text[begin : part[-1].end]

    def _read(
        self, match: re.Match[str], kinds: Sequence[str]
    ) -> tuple[Sequence[Symbol], Sequence[Symbol], Values]:
        """Return the matched symbols, the one after them, and the values by kind."""
        count = self._line.count
        first, end = (count(";", 0, place) for place in match.span())
        groups = ((kind, match.start(group)) for group, kind in enumerate(kinds, 1))
        at = {kind: count(";", 0, place) for kind, place in groups if place >= 0}
        values = {kind: self._symbols[place].values[kind] for kind, place in at.items()}
        return self._symbols[first:end], self._symbols[end : end + 1], values

    def _is_doubtful(self, part: Sequence[Symbol], after: Sequence[Symbol], values: Values) -> bool:
        """Return True if the symbols only look like a day."""
        if "N" not in values:
            if "L" in values and any(one.word in _OF for one in after):
                return True  # the last week of June
        elif self._is_in_figure(part):
            return True
        if "Y" in values:
            return not self._is_shown(part)
        return not self._is_shown(part) or self._is_verb(part, values)

    def _is_shown(self, part: Sequence[Symbol]) -> bool:
        """Return True if these words can hardly be of another language."""
        letters = "".join(one.word for one in part if not one.values.keys() <= _COMMON)
        return self._is_sure or len(letters) >= _CERTAIN or max(letters, default="") >= _SPACELESS

    def _is_in_figure(self, part: Sequence[Symbol]) -> bool:
        """Return True if the number continues before or after: "1.5 mar", "mar 5:30"."""
        before, after = self._text[: part[0].begin], self._text[part[-1].end :]
        return bool(re.search(r"\d[.,:/]\Z", before) or re.match(r"[:%/]|[.,]\d", after))

    def _is_verb(self, part: Sequence[Symbol], values: Values) -> bool:
        """Return True for "may 5 people", "the 12 may be right" or "I will march on"."""
        months = [one for one in part if one.word in _VERBS]
        return bool(months) and self._is_verb_here(months[0], part, values)

    def _is_verb_here(self, month: Symbol, part: Sequence[Symbol], values: Values) -> bool:
        is_capital, is_first = self._text[month.begin].isupper(), month.begin == 0
        if "N" not in values:
            return (is_first or not is_capital) and part[0].word not in _BEFORE_VERB
        is_name = is_capital and not (is_first and month.word == "may")
        follows = self._text[part[-1].end :].lstrip(" ")[:1]
        return follows.isalnum() and not is_name and values.keys().isdisjoint("is")


def _date(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    year = today.year - values["R"] // 10 if "R" in values else values.get("Y", values.get("Z", 0))
    month, day = (next((values[one] for one in of if one in values), 0) for of in ("mMX", "ND"))
    if "L" in values and "y" in values:
        year = today.year - 1
    yield _resolve_date(today, year, month, day, is_last="L" in values)


def _month_first(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    if known.fields.get("monthfirst"):  # elsewhere the number is of something else
        yield from _date(values, today, known)


def _year(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    year = values.get("Y", values.get("Z", 0))
    yield Span.of(year - _BUDDHIST if year > 2400 else year)


def _day_of_week(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    """A weekday of last week."""
    monday = today - timedelta(days=today.weekday() + 7 * (values.get("Q", 10) // 10))
    yield Span.day(monday + timedelta(days=values["W"]))


def _last_weekday(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    """The latest one, and if that is of this week, last week's as well. In some languages only
    last week's."""
    back = (today.weekday() - values["W"]) % 7 or 7
    if back <= today.weekday() and not known.fields.get("lastweek"):
        yield Span.day(today - timedelta(days=back))
        back += 7
    elif back <= today.weekday():
        back += 7
    yield Span.day(today - timedelta(days=back))


def _lone_weekday(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    if known.fields.get("weekday"):
        yield from _weekday(values, today, known)


def _weekday(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    back = (today.weekday() - values["W"]) % 7
    yield Span.day(today - timedelta(days=back))
    if not back:
        yield Span.day(today - timedelta(days=7))


def _ago(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    count, unit = values.get("N", values.get("D", 1)), UNITS[values.get("U", 0)]
    if not values.keys() & {"N", "D", "V"} and not known.fields.get("bare"):
        return  # "years ago"
    if "V" in values:
        count, unit = values["V"] // 10, UNITS[values["V"] % 10]
    if count == FEW:
        yield Span(_ago_by(_MANY, unit, today)[-1].first, _ago_by(2, unit, today)[-1].last)
    else:
        yield from _ago_by(count, unit, today)


def _ago_by(count: int, unit: str, today: date) -> list[Span]:
    """Return the time so many units ago, for weeks also the days around it."""
    if unit != "w":
        return [_span_by_name(unit, count, today)]
    day = today - timedelta(weeks=count)
    return [Span.day(day), Span(day - timedelta(days=3), day + timedelta(days=3))]


def _recent(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    """The last three weeks, until today."""
    for ago in _ago(values, today, known):
        yield Span(ago.first, today)
        return


def _unit(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    yield _span_by_name(UNITS[values["u"]], int("L" in values), today)


def _named(values: Values, today: date, known: DayWords) -> Iterator[Span]:
    yield _span_by_name(UNITS[values["P"] % 10], values["P"] // 10, today)


def _span_by_name(unit: str, back: int, today: date) -> Span:
    """Return this (0), the last (1) or an earlier day, week, month, year or weekend."""
    match unit:
        case "d":
            return Span.day(today - timedelta(days=back))
        case "w":
            monday = today - timedelta(days=today.weekday() + 7 * back)
            return Span(monday, monday + timedelta(days=6))
        case "n":
            months = today.year * 12 + today.month - 1 - back
            return Span.of(months // 12, months % 12 + 1)
        case "y":
            return Span.of(today.year - back)
    saturday = today + timedelta(days=5 - today.weekday() - 7 * back)
    return Span(saturday, saturday + timedelta(days=1))


_ALSO_SAID = (_unit, _ago, _recent)
"""People say these in their messages as well, of longer times."""

# `?` may be missing, `!` is `i` unless the language needs none. Longer patterns come first.
_PATTERNS: tuple[tuple[str, Resolve], ...] = (
    ("Y?mD", _date), ("Ro?mD", _date), ("Ro?m", _date), ("Zm", _date),
    ("Y.?o?m.?N.?-?s?", _date), ("i?o?N.?-?s?.?o?o?m.?,?o?o?Y?", _date),
    ("i?o?m.?o?N.?-?s?,?o?Y?", _month_first), ("i?o?m.?,?o?o?Y", _date),
    ("wLi?o?W", _day_of_week), ("Lwi?o?o?W", _day_of_week), ("Qo?i?o?W", _day_of_week),
    ("Wo?i?o?o?Lw", _day_of_week), ("Wo?o?wL", _day_of_week), ("Wo?i?Q", _day_of_week),
    ("i?o?LW", _last_weekday), ("i?o?WL", _last_weekday),
    ("i?o?o?LNU", _recent), ("i?o?LV", _recent),
    ("Ao?NUG?", _ago), ("NUG", _ago), ("AVG?", _ago), ("VG", _ago), ("DG", _ago),
    ("!Mo?o?Ly", _date), ("!MyL", _date), ("i?o?LM", _date), ("i?o?ML", _date), ("i?o?TM", _date),
    ("i?o?o?Lu", _unit), ("i?o?uL", _unit), ("i?o?Tu", _unit), ("i?uT", _unit),
    ("Ao?U", _ago), ("UG", _ago),
    ("!o?M", _date), ("X", _date),
    ("iy?o?o?Yy?", _year), ("Yy", _year), ("yY", _year), ("Z", _year),
    ("P", _named), ("iW", _weekday), ("W", _lone_weekday),
)  # fmt: skip


@cache
def _patterns(*, is_free: bool) -> Sequence[tuple[re.Pattern[str], Sequence[str], Resolve]]:
    found = []
    for pattern, resolve in _PATTERNS:
        steps = re.findall(r"(\S)(\??)", pattern.replace("!", "i?" if is_free else "i"))
        line = "".join(f"([^;]*{re.escape(kind)}[^;]*;){often}" for kind, often in steps)
        found.append((re.compile(f"(?<![^;]){line}"), [kind for kind, _ in steps], resolve))
    return found
