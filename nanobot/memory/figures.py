"""Numbers, dates, times, months, units and addresses in any notation, and their comparison. Pure.

`1,200` is `1.200` and `1200`, `3 pm` is `15:00`, `zwölf` is `12`, and `12. März` has the month and
the day of `2026-03-12`. A relative date ("tomorrow") counts from the day of its message."""

from __future__ import annotations

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from datetime import date, timedelta
from functools import lru_cache, partial
from itertools import filterfalse, product, starmap

from msgspec import Struct

from nanobot.memory.analysis import stem_word, vocabulary
from nanobot.memory.languages import LANGUAGES

_ISO = r"(?<!\d)(?P<y>\d{4})[-/.](?P<m>\d{1,2})[-/.](?P<d>\d{1,2})(?!\d)"
_CJK_DATE = r"(?:(?P<y2>\d{4})[年년]\s*)?(?P<m2>\d{1,2})[月월]\s*(?P<d2>\d{1,2})[日號号일]"
_DAY_FIRST = r"(?<!\d)(?P<d3>\d{1,2})[./](?P<m3>\d{1,2})[./](?P<y3>\d{4}|\d{2}(?!\d))?(?!\d)"
_TIME = r"(?<!\d)(?P<h>\d{1,2})[:h](?P<min>\d{2})(?!\d)"
_HOUR = r"(?<!\d)(?P<h2>\d{1,2})\s?(?P<half>[ap]\.?m\b\.?)"
_CODE = r"(?P<code>(?<![^\W_])[^\W\d_]*[A-Za-z]\d[^\W_]*)"
_NUMBER = r"(?P<n>\d+(?:[.,'’]\d+)*)"
_HOST = r"(?<![\w.-])(?-i:[a-z][a-z0-9-]*\.)+(?-i:[a-z]{2,12})(?![\w-]|\.\w)(?:/\S*)?"
_MAIL = r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]+(?:\.[\w-]+)+"
_LINK = rf"(?:https?://(?:www\.)?(?P<url>\S+)|(?P<at>{_MAIL}|{_HOST}))"
_FORMS = (_LINK, _CODE, _ISO, _CJK_DATE, _TIME, _HOUR, _DAY_FIRST, _NUMBER)
_FIGURE = re.compile("|".join(_FORMS), re.IGNORECASE)
_UNIT = re.compile(r"\s?([%€$£¥₹°]|[^\W\d_]+)")
_SYMBOL = re.compile(r"([€$£¥₹])\s?$")
_CJK_NUMBER = re.compile(r"[〇一二三四五六七八九十两兩]+")
_WORD = re.compile(r"\d+|[^\W\d_]+(?:['’-][^\W\d_]+)*")
_YEAR = r"(?:19|20)\d\d"
_NEAR_YEARS = 5
"""Years that are further off date something else (a birth), not a plan."""
_NAMES = "january february march april june july august september october november december"
MONTHS = frozenset(_NAMES.split())
_IN = frozenset({"in", "im", "en", "em", "au", "since", "seit"})
_LONGEST = 40
"""Digits of a number. Longer ones are data and compared unchanged."""
_SHORT_UNIT = 3
_LONG_UNITS = {"kilo": "kilogram", "kilos": "kilogram", "кило": "килограмм"}
_RUN_DIGITS = {sign: value for value, sign in enumerate("〇一二三四五六七八九")} | {
    "两": 2,
    "兩": 2,
}
"""Chinese and Japanese numerals below ten. `十` is ten."""
COUNTS = (*range(1, 13), *range(20, 101, 10))
"""The numbers that languages have words for."""

Day = tuple[int, int, int]
"""Year (0 if unknown), month, day."""


class Figures(Struct, frozen=True):
    """The counts and dates of a text. `units` are the words after each number, `said` are all
    numbers in words and dates, `years` are the years near `said_on`."""

    numbers: frozenset[str] = frozenset()
    days: frozenset[Day] = frozenset()
    months: frozenset[int] = frozenset()
    times: frozenset[tuple[int, int]] = frozenset()
    units: Mapping[str, frozenset[str]] = {}
    said: frozenset[str] = frozenset()
    years: frozenset[int] = frozenset()
    said_on: date | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.numbers or self.days or self.months or self.times)

    def missing_in(self, sources: Sequence[Figures]) -> list[str]:
        """Return the figures that no source has, formatted for people."""
        days, times = set(self.days), set(self.times)
        months, numbers = set(self.months), set(self.numbers)
        for one in sources:
            days = set(filterfalse(one.holds_day, days))
            times = set(filterfalse(one.holds_time, times))
            months = set(filterfalse(one.holds_month, months))
            numbers = set(filterfalse(partial(one.holds_number, units=self.units), numbers))
        clock = (f"{hour}:{minute:02}" for hour, minute in times)
        return sorted(
            (*map(format_day, days), *clock, *numbers, *(f"month {one}" for one in months))
        )

    def holds_number(self, number: str, units: Mapping[str, frozenset[str]]) -> bool:
        """Return True if this number occurs, with a matching unit if both have a short one."""
        if number not in self.said:
            is_year = re.fullmatch(_YEAR, number) is not None
            return is_year and not self.years and self._is_near_year(int(number))
        if any(map(begins_with_month, units.get(number, ()))) and not self._may_be_day(number):
            return False
        named = units.get(number, frozenset()) - _function_words()
        wanted = {unit for unit in named if len(unit) <= _SHORT_UNIT}
        pairs = list(product(wanted, self.units.get(number, ())))
        return not pairs or any(starmap(is_same_unit, pairs))

    def holds_day(self, day: Day) -> bool:
        """Return True if this day occurs, or is possible for a word such as "tomorrow"."""
        year, month, number = day
        if year and self.years and year not in self.years:
            return False
        near = not year or year in self.years or self._is_near_year(year)
        if near and self._may_be_day(str(number)) and self.holds_month(month):
            return True
        return self._may_mean(day)

    def holds_month(self, month: int) -> bool:
        """Return True if this month occurs, or if none does and it is near that of the message."""
        named = self.months | {day[1] for day in self.days}
        if named or self.said_on is None:
            return month in named
        return (month - self.said_on.month) % 12 in (0, 1, 11)

    def holds_time(self, time: tuple[int, int]) -> bool:
        """Return True if this time occurs, by a clock of twelve or twenty-four hours."""
        hour, minute = time
        if any(h % 12 == hour % 12 and m == minute for h, m in self.times):
            return True
        hours = {int(n) % 12 for n in self.numbers if n.isdecimal() and len(n) < 3}
        return hour % 12 in hours and (minute == 0 or str(minute) in self.numbers)

    def _may_be_day(self, number: str) -> bool:
        """Return True if this number occurs and counts nothing ("21 degrees")."""
        units = self.units.get(number, frozenset())
        return number in self.said and (
            not units
            or any(len(u) < _SHORT_UNIT or begins_with_month(u) for u in units)
            or not units.isdisjoint(_function_words())
        )

    def _is_near_year(self, year: int) -> bool:
        return self.said_on is not None and abs(year - self.said_on.year) <= 1

    def _may_mean(self, day: Day) -> bool:
        """Return True if no day occurs and this one is near the day of the message."""
        named = any(n.isdecimal() and 8 <= int(n[:9]) <= 31 for n in self.numbers)
        if named or self.days or self.months or self.said_on is None:
            return False
        try:
            there = date(day[0] or self.said_on.year, day[1], day[2])
        except ValueError:
            return False
        return -8 <= (there - self.said_on).days <= 40


def figures_of(text: str, languages: Iterable[str] = (), said_on: date | None = None) -> Figures:
    """Read the figures of `text`, whose words may be of these `languages`."""
    text = unicodedata.normalize("NFKC", text)
    numbers, days, times = set[str](), set[Day](), set[tuple[int, int]]()
    units = defaultdict[str, set[str]](set)
    for match in _FIGURE.finditer(text):
        if match["n"]:
            numbers.add(number := canonical(match["n"]))
            units[number].update(_units_at(match))
        elif match["h"] or match["h2"]:
            times.add(parse_time(match))
        elif day := parse_day(match):
            days.add(day)
        else:
            numbers.update(read_codes(match))
    counts, months = _in_words(text, tuple(languages))
    for count, unit in counts:
        units[count].update(unit)
    # "One" is also an article in many languages.
    numbers |= {count for count, _ in counts} - {"1"}
    said = numbers.union(_numbers_in(days, times))
    return Figures(
        frozenset(numbers),
        frozenset(days),
        frozenset(months),
        frozenset(times),
        {number: frozenset(units) for number, units in units.items()},
        frozenset(said.union(units)),
        _years_in(said, said_on),
        said_on,
    )


def _years_in(numbers: Iterable[str], said_on: date | None) -> frozenset[int]:
    years = (int(number) for number in numbers if re.fullmatch(_YEAR, number))
    return frozenset(y for y in years if not said_on or abs(y - said_on.year) <= _NEAR_YEARS)


def read_codes(match: re.Match[str]) -> list[str]:
    """Return the link or code, or the numbers of an impossible date."""
    if link := match["url"] or match["at"]:
        return [link.casefold().rstrip("./,;:!?)>]")]
    return [match["code"].casefold()] if match["code"] else re.findall(r"\d+", match[0])


def _numbers_in(days: Iterable[Day], times: Iterable[tuple[int, int]]) -> set[str]:
    of_days = {str(part) for day in days for part in day if part}
    return of_days | {str(part) for h, m in times for part in (h, h % 12, m)}


def canonical(number: str) -> str:
    """Return a number without separators of thousands and final zeros: `1,200.50` is `1200.5`."""
    digits = "".join(str(unicodedata.digit(one)) if one.isdigit() else one for one in number)
    if len(digits) > _LONGEST:
        return digits
    parts = re.split(r"[.,'’]", digits)
    whole, rest = parts[0], parts[1:]
    while rest and len(rest[0]) == 3 and whole != "0":
        whole += rest.pop(0)
    whole = whole.lstrip("0") or "0"
    fraction = "".join(rest).rstrip("0")
    return f"{whole}.{fraction}" if fraction else whole


def parse_day(match: re.Match[str]) -> Day | None:
    for year, month, day in (("y", "m", "d"), ("y2", "m2", "d2"), ("y3", "m3", "d3")):
        if match[month]:
            named = int(match[year] or 0)
            named += 2000 if 0 < named < 100 else 0
            found = named, int(match[month]), int(match[day])
            with suppress(ValueError):  # no such day
                date(named or 2000, *found[1:])
                return found
    return None


def parse_time(match: re.Match[str]) -> tuple[int, int]:
    hour = int(match["h"] or match["h2"])
    if match["half"] and match["half"][0] in "pP" and hour < 12:
        hour += 12
    return hour, int(match["min"] or 0)


def _units_at(match: re.Match[str]) -> Iterator[str]:
    if after := _UNIT.match(match.string, match.end()):
        yield fold_word(after[1])
    if before := _SYMBOL.search(match.string, max(0, match.start() - 2), match.start()):
        yield before[1]


def is_same_unit(one: str, other: str) -> bool:
    """Match `km` and `kilometres`, `%` and `percent`, `€` and `euros`."""
    if one == other:
        return True
    short, long = sorted((one, other), key=len)
    if len(long) <= _SHORT_UNIT:
        return False
    if not short.isalpha():
        return {"%": "cent", "€": "eur", "$": "dol", "£": "p", "°": "d"}.get(short, "") in long
    letters = iter(_LONG_UNITS.get(long, long))
    return short[0] == long[0] and all(letter in letters for letter in short)


def _in_words(
    text: str, languages: tuple[str, ...]
) -> tuple[list[tuple[str, list[str]]], set[int]]:
    """Return numbers written as words, each with the word after it, and the months."""
    words = [fold_word(word) for word in _WORD.findall(text)]
    known, months = vocabulary("numbers", languages), vocabulary("months", languages)
    counts, dated = list[tuple[str, list[str]]](), set[int]()
    for at, word in enumerate(words):
        if word in known:
            counts.append((str(COUNTS[known[word]]), words[at + 1 : at + 2]))
        named = {months[word[:n]] + 1 for n in range(3, 7) if word[:n] in months}
        if named and _is_dated(words, at):
            dated |= named
    runs = filter(None, map(parse_cjk_number, _CJK_NUMBER.findall(text)))
    return [*counts, *((str(value), list[str]()) for value in runs)], dated


def _is_dated(words: list[str], at: int) -> bool:
    """Return True if a word is a month: it has its full name, or a number or "in" near it."""
    near = words[max(0, at - 2) : at + 2]
    return words[at] in MONTHS or any(one[0].isdigit() for one in near) or words[at - 1] in _IN


def _function_words() -> Set[str]:
    return vocabulary("words", tuple(LANGUAGES)).keys()


@lru_cache(maxsize=1 << 14)
def fold_word(word: str) -> str:
    return stem_word(word, "")


def parse_cjk_number(run: str) -> int:
    tens, ten, ones = run.rpartition("十")
    first = _RUN_DIGITS.get(tens, 1) if ten else 0
    return first * 10 + _RUN_DIGITS.get(ones, 0) if len(run) <= 3 else 0


def format_day(day: Day) -> str:
    year, month, number = day
    return f"{year}-{month:02}-{number:02}" if year else f"{number}.{month}."


def has_passed(line: str, today: date, age: int) -> bool:
    """Return True if all days with a year on `line` were in the future when it was written, `age`
    days ago, and are past now."""
    days = [date(*day) for day in figures_of(line).days if day[0]]
    written = today - timedelta(days=age)
    return bool(days) and all(written <= day < today for day in days)


def begins_with_month(text: str) -> bool:
    """Return True if the first word of a text may be a month in any language."""
    first = next(iter(_WORD.findall(text)), "")
    months = vocabulary("months", tuple(LANGUAGES))
    return any(fold_word(first)[:length] in months for length in range(3, 7))
