"""A question finds its message in 27 languages, with other forms of its words."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from bench.languages import DATA, find_missed, languages
from nanobot.memory.analysis import (
    content_words,
    expressions,
    language_of,
    prepare_text,
    stem_word,
    words_of,
)
from nanobot.memory.search import Query
from tests.memory.search.talk import Home, everything, ids, message

PROBES = languages()
NEAR = languages(DATA.with_name("languages_near.txt"))
"""Eight languages again, with additional messages that share a word with a question."""


def test_there_are_ten_questions_in_more_than_twenty_languages_among_thirty_other_messages() -> (
    None
):
    assert len(PROBES) > 20
    assert {len(one.probes) for one in PROBES.values()} == {10}
    assert all(len(one.probes) - 1 + len(one.others) >= 30 for one in PROBES.values())


@pytest.mark.parametrize("language", PROBES)
async def test_nine_of_ten_questions_find_their_message_among_the_first_three(
    language: str,
) -> None:
    misses = (await find_missed({language: PROBES[language]}))[language]
    assert len(misses) <= 1, misses


@pytest.mark.parametrize("language", NEAR)
async def test_so_they_do_among_messages_with_some_of_their_words(language: str) -> None:
    misses = (await find_missed({language: NEAR[language]}))[language]
    assert len(misses) <= 1, misses


async def test_conversations_in_many_languages_can_share_a_home() -> None:
    misses = await find_missed(PROBES)
    assert {name: found for name, found in misses.items() if len(found) > 2} == {}
    assert sum(map(len, misses.values())) <= 10


@pytest.mark.parametrize(
    "language", sorted(PROBES.keys() - {"chinese", "japanese", "korean", "thai"})
)
def test_a_conversation_shows_its_language(language: str) -> None:
    likely, found = "", Counter[str]()
    for probe, _ in PROBES[language].probes:
        likely = language_of(probe, likely)
        found[likely] += 1
    assert found[language] >= 8, found


def test_short_messages_are_taken_to_be_in_the_language_of_those_before() -> None:
    assert language_of("Zahnarzttermin Dienstag", "german") == "german"
    assert language_of("Take care!", "english") == "english"
    assert language_of("La casa de papel on Friday with all of us", "english") == "english"
    assert language_of("I have to go to the bank tomorrow", "german") == "english"
    assert language_of("東京", "german") == "german"


def test_who_changes_the_language_at_every_message_is_followed() -> None:
    likely, found = "", list[tuple[str, str]]()
    for pair in zip(PROBES["german"].others, PROBES["english"].others, strict=True):
        for name, text in zip(("german", "english"), pair, strict=True):
            likely = language_of(text, likely)
            found.append((name, likely))
    assert sum(name != taken for name, taken in found) <= 2


async def test_the_language_of_the_agent_does_not_tell_that_of_the_person(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say(
        "cli:direct",
        message(1, "Ich war heute mit dem Hund beim Tierarzt."),
        message(2, "Okay, I have that for this conversation.", "assistant"),
        message(3, "Zahnarzttermin Dienstag"),
    )
    index = home.index()
    result = await index.search(Query("Wann ist mein Termin?", ("owner",), limit=1))
    assert ids(result) == ["m:cli:direct:3"]
    await index.close()


def test_english_in_ascii_is_stored_as_it_is_and_asked_for_by_its_words() -> None:
    text = "We moved the appointments, didn't we?\n"
    assert prepare_text(text, "english") == text
    assert [*expressions("appointments", ["english"], ["english"])] == [('"appointments"', False)]


@pytest.mark.parametrize(
    ("language", "forms"),
    [
        ("german", ("Schlüssel", "schlüsseln")),
        ("turkish", ("Isparta", "ısparta", "ISPARTA")),
        ("turkish", ("İzmir", "izmir", "İZMİR")),
        ("arabic", ("المفتاح", "مفتاح", "مفاتيح", "بالمفتاح", "والمفاتيح", "مِفْتَاح", "مفتـاح")),
        ("hebrew", ("מפתח", "המפתח", "במפתח", "מַפְתֵּחַ")),
        ("ukrainian", ("горіх", "горіхи", "горіхами")),
        ("russian", ("ёлка", "елка", "ёлки")),
        ("hindi", ("चाबी", "चाबियाँ")),
        ("greek", ("κλειδί", "κλειδιά")),
    ],
)
def test_forms_of_a_word_have_a_stem_in_common(language: str, forms: tuple[str, ...]) -> None:
    assert len({stem_word(form, language) for form in forms}) == 1


def test_questions_are_searched_without_the_function_words_of_their_language() -> None:
    asked = words_of("¿Cuándo es la cita con el dentista?", "spanish")
    assert content_words(asked, "spanish") == ["cita", "dentista"]
    asked = words_of("Wann war das?", "german")
    assert content_words(asked, "german") == ["wann", "war", "das"]


async def test_nothing_of_a_retracted_message_is_left_in_the_index(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say("cli:direct", *(message(n, f"Der Tiger {n} ist im Zoo.") for n in range(1, 40)))
    home.say("cli:direct", message(40, "Das ist der Schlüssel zum Qwertzuiopschrank."))
    index = home.index()
    await index.refresh()
    stored = [form.encode()[:18] for form in prepare_text("Qwertzuiopschrank", "german").split()]
    assert len(stored) == 2
    assert all(form in everything(home.database.parent) for form in stored)
    home.retract("cli:direct", "", 40, 40)
    await index.refresh()
    assert not any(form in everything(home.database.parent) for form in (*stored, b"qwertz"))
    await index.close()


async def test_a_compound_is_found_by_its_parts_and_finds_them(tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.say(
        "cli:direct",
        message(1, "Der Zahnarzttermin ist am Dienstag um neun."),
        message(2, "Ich habe heute mit der Werkstatt gesprochen.", day=1),
        message(3, "Die Rechnung der Werkstatt ist gekommen.", day=2),
        message(4, "Meine Hand tut weh, ich war beim Arzt.", day=3),
        message(5, "Das Handy ist im Büro.", day=4),
        message(6, "Mi hermana es alérgica a las nueces.", day=5),
    )
    index = home.index()

    async def first(question: str) -> list[str]:
        return ids(await index.search(Query(question, ("owner",), limit=1)))

    assert await first("Wann ist mein Termin?") == ["m:cli:direct:1"]
    assert await first("Termin") == ["m:cli:direct:1"]
    assert await first("Wie heißt der Zahnarzt?") == ["m:cli:direct:1"]
    assert await first("Wo ist die Werkstattrechnung?") == ["m:cli:direct:3"]
    assert await first("Was ist mit der Hand?") == ["m:cli:direct:4"]
    await index.close()
