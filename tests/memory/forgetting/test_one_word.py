"""Search, `/memory why` and `/forget` agree on whether a text has a word."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from bench.languages import languages
from nanobot.memory.analysis import content_words, language_of, languages_of, words_of
from nanobot.memory.search import Query
from nanobot.memory.similarity import Request
from tests.memory.homes import RealHome

Requests = Mapping[str, list[str]]
KEY = "telegram:1"


def _requests() -> dict[str, Requests]:
    """Return facts by language, each with the words by which people name it."""
    text = (Path(__file__).parent / "one_word.txt").read_text(encoding="utf-8")
    found = dict[str, Requests]()
    for block in text.split("# ")[1:]:
        name, *lines = filter(None, block.split("\n"))
        pairs = (line.split(" | ") for line in lines)
        found[name] = {fact: asked.split(", ") for fact, asked in pairs}
    return found


REQUESTS = _requests()


def test_there_are_many_requests_in_many_languages() -> None:
    assert len(REQUESTS) > 25
    assert sum(len(asked) for facts in REQUESTS.values() for asked in facts.values()) > 120


@pytest.mark.parametrize("facts", REQUESTS.values(), ids=REQUESTS)
async def test_what_search_finds_by_a_word_is_explained_and_forgotten_by_it(
    home: RealHome, facts: Requests
) -> None:
    await home.learn(*(f"- {fact}" for fact in facts))
    said = {fact: (await home.say(KEY, fact))[0] for fact in facts}
    missed = list[tuple[str, str]]()
    for fact, asked in facts.items():
        for word in asked:
            found = await home.finds(word)
            why = (await home.explainer.why(word, "owner")).found
            plan = await home.forgetter.plan(word, "owner")
            missed += [
                (word, way)
                for way, is_found in {
                    "search": any(fact in text for text in found),
                    "why": any(fact in one.text for one in why),
                    "forget": any(fact in line.text for line in plan.lines),
                    "messages": said[fact] in {message.seq for message in plan.messages},
                    "only it": all(fact in line.text for line in plan.lines),
                }.items()
                if not is_found
            ]
    assert not missed


@pytest.mark.parametrize("name", languages())
async def test_a_text_says_a_word_exactly_where_search_finds_it_by_that_word(
    home: RealHome, name: str
) -> None:
    talk = languages()[name]
    texts = [*(message for message, _ in talk.probes), *talk.others]
    for at, text in enumerate(texts):  # each by itself: next to a hit, search finds others as well
        await home.say(f"telegram:1:{at}", text)
    spoken = languages_of(texts)
    for _, question in talk.probes[:3]:
        language = language_of(question)
        for word in content_words(words_of(question, language), language):
            hits = (await home.index.search(Query(word, ("owner",), role="user", limit=100))).hits
            request = Request.of(word, spoken)
            said = {text for text in texts if request.closeness(text)}
            # Without a match, search tries the halves of a compound (Hüttenpasswort) and words that
            # differ by a typing error.
            if request.groups and said:
                assert {hit.passage.text for hit in hits} == said, word


@pytest.mark.parametrize(
    ("request_", "fact"),
    [
        ("meine Blutdrucktabletten", "Die Blutdrucktabletten liegen im Schrank"),
        ("mijn fiets", "De fiets staat niet in de kelder"),
        ("minha senha", "A senha do banco está no cofre"),
    ],
)
async def test_my_counts_for_nothing_in_the_language_of_any_fact(
    home: RealHome, request_: str, fact: str
) -> None:
    others = (
        "Le médecin est à Lyon avec la voiture",
        "Parle espagnol avec sa belle-mère",
        "La porte de la maison est verte",
        "Il habite dans une rue de Lille",
    )
    await home.learn(*(f"- {one}" for one in (fact, *others)))
    plan = await home.forgetter.plan(request_, "owner")
    assert [line.text for line in plan.lines] == [f"- {fact}"]
