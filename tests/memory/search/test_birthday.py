"""A question about the person's own birthday finds the messages of that day."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.memory.search import Query
from nanobot.memory.search.index import MemoryIndex
from nanobot.testing.clock import FakeClock
from tests.memory.search.talk import START, Home, message

# The talk begins on 2 March 2026, and today is the last day of it.
SAID = ("Pasta with mushrooms", "Fish from the market", "A soup of leeks", "Rice with beans")


@pytest.fixture
def talk(home: Home) -> Home:
    """Four meals, a month apart: 2 March, 1 April, 1 May, 31 May."""
    for month, meal in enumerate(SAID):
        home.say("cli:direct", message(month + 1, f"We ate: {meal}", day=30 * month))
    return home


def know(home: Home, *facts: str) -> None:
    (home.memory.parent / "USER.md").write_text("\n".join(["# Person", "", *facts, ""]))


async def ask(index: MemoryIndex, question: str) -> str:
    """Return the text of the best message, if any."""
    found = await index.search(Query(question, ("owner",), source="message"))
    return "".join(hit.passage.text for hit in found.hits[:1])


@pytest.mark.parametrize(
    ("fact", "question"),
    [
        ("- Birthday: 1 April 1985", "what did we eat on my birthday?"),
        ("- Born on 1 April 1985 in Faro", "What did we eat on my last birthday"),
        ("- My birthday is April 1", "my birthday: what was there to eat?"),
        ("- Geburtstag: 1.4.1985", "Was gab es an meinem Geburtstag zu essen?"),
        ("- Né le 1 avril 1985", "on a mangé quoi pour mon anniversaire ?"),
        ("- Su cumpleaños es el 1 de abril", "¿qué comimos en mi cumpleaños?"),
        ("- День рождения: 1 апреля", "что мы ели в мой день рождения?"),
        ("- 生日:4月1日", "我生日那天吃了什么?"),
        ("- 誕生日は4月1日", "私の誕生日に何を食べた?"),
    ],
)
async def test_the_day_comes_from_memory(talk: Home, fact: str, question: str) -> None:
    know(talk, fact)
    index = talk.index(FakeClock(START + timedelta(days=95)))
    assert SAID[1] in await ask(index, question)
    await index.close()


@pytest.mark.parametrize(
    ("fact", "question"),
    [
        ("- Anna's birthday is 1 April", "what did we eat on my birthday?"),
        ("- Birthday: 1 April 1985", "what did we eat on my friend's birthday?"),
        ("- Birthday: 1 April 1985", "what did we eat in the end?"),
        ("- Birthday: some time in spring", "what did we eat on my birthday?"),
    ],
)
async def test_another_persons_birthday_and_an_unknown_one_name_no_day(
    talk: Home, fact: str, question: str
) -> None:
    know(talk, fact)
    index = talk.index(FakeClock(START + timedelta(days=95)))
    assert SAID[1] not in await ask(index, question)
    await index.close()


async def test_the_birthday_of_another_scope_is_not_used(talk: Home, tmp_path: Path) -> None:
    other = tmp_path / "workspace" / "people" / "ann"
    (other / "memory").mkdir(parents=True)
    (other / "USER.md").write_text("# Person\n\n- Birthday: 1 April 1985\n")
    talk.people["ann"] = other / "memory"
    index = talk.index(FakeClock(START + timedelta(days=95)))
    assert SAID[1] not in await ask(index, "what did we eat on my birthday?")
    await index.close()
