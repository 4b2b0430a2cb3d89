"""A question that names a day finds its message among those of other days, which say the same."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from nanobot.memory.languages import LANGUAGES
from nanobot.memory.search import Query, SearchResult
from nanobot.memory.search.ranking import parse
from nanobot.testing.clock import FakeClock
from tests.memory.search.talk import START, Home, message

TODAY = date(2026, 3, 11)
BEGIN = date(2026, 1, 1)
DAYS = (TODAY - BEGIN).days + 1


class Asked(NamedTuple):
    """A question with the first and the last day that it names."""

    text: str
    first: date
    last: date


def _sections() -> dict[str, list[str]]:
    text = Path(__file__).with_name("days.txt").read_text("utf-8")
    parts = [part.splitlines() for part in text.split("\n\n") if part.startswith("[")]
    return {lines[0].strip("[]"): lines[1:] for lines in parts}


def _asked(line: str) -> Asked:
    text, _, day = line.rpartition(" = ")
    if day == "w-1":
        return Asked(text, date(2026, 3, 2), date(2026, 3, 8))
    named = TODAY + timedelta(int(day)) if day.startswith("-") else date.fromisoformat(day)
    return Asked(text, named, named)


SECTIONS = _sections()
NO_DAY = SECTIONS.pop("no day")
DISHES = [f"{one}{other}" for one in "BDFGKLMNPR" for other in ("ado", "eli", "ibu", "ona", "usa",
          "ame", "oti", "uva", "ira")][:DAYS]  # fmt: skip


def _talk(template: str) -> Iterator[tuple[date, str]]:
    for at, dish in enumerate(DISHES):
        yield BEGIN + timedelta(at), template.format(dish)


async def _search(home: Home, template: str, texts: list[str]) -> list[SearchResult]:
    messages = [
        message(at, text, day=(day - START.date()).days)
        for at, (day, text) in enumerate(_talk(template), 1)
    ]
    home.say("cli:direct", *messages)
    index = home.index(FakeClock(datetime(2026, 3, 11, 12, tzinfo=UTC)))
    found = [await index.search(Query(text, ("owner",), limit=3)) for text in texts]
    await index.close()
    return found


def test_there_are_ten_days_in_more_than_twelve_languages_and_sixty_questions_without() -> None:
    assert len(SECTIONS) > 12
    assert {len(lines) for lines in SECTIONS.values()} == {11}
    assert len(NO_DAY) >= 59


@pytest.mark.parametrize("language", SECTIONS)
async def test_nine_of_ten_questions_find_their_day(language: str, tmp_path: Path) -> None:
    template, *lines = SECTIONS[language]
    asked = [_asked(line) for line in lines]
    results = await _search(Home(tmp_path), template, [one.text for one in asked])
    found = [(one, _days(result)) for one, result in zip(asked, results, strict=True)]
    misses = [one for one in found if not any(one[0].first <= day <= one[0].last for day in one[1])]
    assert len(misses) <= 1, misses


def _days(result: SearchResult) -> list[date]:
    return [hit.passage.when.date() for hit in result.hits if hit.passage.when]


@pytest.mark.parametrize("question", NO_DAY)
def test_what_only_looks_like_a_day_stays_in_the_question(question: str) -> None:
    assert parse(question, (), TODAY, languages=tuple(LANGUAGES)).spans == ()


async def test_a_question_of_idle_words_lists_the_day(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say(
        "cli:direct",
        *(message(at, f"We discussed plan {at}.", day=at % 9) for at in range(1, 60)),
        message(61, "The roof leaks", day=8),
        message(62, "Tell me what you did yesterday", day=1),
    )
    index = home.index(FakeClock(START + timedelta(days=9)))
    found = await index.search(Query("What did I do yesterday?", ("owner",), limit=5))
    assert _days(found) == [(START + timedelta(days=8)).date()] * 5
    await index.close()


async def test_a_message_of_the_day_needs_no_word_of_the_question(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say(
        "cli:direct",
        *(message(at, f"Lunch was soup number {at}", day=at) for at in range(1, 40)),
        message(41, "The roof leaks", day=20),
    )
    index = home.index(FakeClock(START + timedelta(days=60)))
    found = await index.search(Query("What broke on 22.03.2026?", ("owner",), limit=3))
    assert "The roof leaks" in [hit.passage.text for hit in found.hits]
    await index.close()


async def test_a_message_with_the_same_date_is_found_as_well(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say(
        "cli:direct",
        *(message(at, f"Visit number {at} was fine", day=at) for at in range(1, 40)),
        message(41, "Dentist: 16.06.2026, half past nine", day=1),
    )
    index = home.index(FakeClock(START + timedelta(days=60)))
    found = await index.search(Query("Which visit is on 16.06.2026?", ("owner",), limit=3))
    assert "Dentist" in found.hits[0].passage.text
    await index.close()


async def test_days_of_other_scopes_stay_there(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say("telegram:7", message(1, "The roof leaks"))
    index = home.index(FakeClock(START + timedelta(days=1)))
    assert not (await index.search(Query("What did I do yesterday?", ("owner",)))).hits
    found = await index.search(Query("What did I do yesterday?", ("people/telegram_7",)))
    assert [hit.passage.text for hit in found.hits] == ["The roof leaks"]
    await index.close()
