"""Meanings beside words, with an embedder that knows a few synonyms."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from nanobot.errors import ContextTooLong, ProviderRejected, ProviderUnavailable
from tests.memory.search.talk import Home, find, id_of, said

MEANINGS = [
    {"dog", "puppy", "hound"},
    {"doctor", "physician"},
    {"car", "automobile"},
    {"house", "home", "flat"},
    {"rain", "weather"},
]


class Synonyms:
    """One dimension for each meaning, and one for everything else."""

    def __init__(self, name: str = "synonyms") -> None:
        self.name = name
        self.seen: list[str] = []
        self.broken = False
        self.refuses = ""
        self.refusal: ProviderRejected = ContextTooLong("too long", status=500)
        self.calls = 0
        self.hurried = 0

    async def embed(self, texts: Sequence[str], *, patient: bool = True) -> list[list[float]]:
        self.calls += 1
        self.hurried += not patient
        if self.broken:
            raise ProviderUnavailable("nobody answers")
        if self.refuses and any(self.refuses in text for text in texts):
            raise self.refusal
        self.seen += texts
        words = [set(re.findall(r"\w+", text.lower())) for text in texts]
        return [[*(1.0 if held & meaning else -0.2 for meaning in MEANINGS), 0.1] for held in words]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.say(
        "cli:direct",
        *(said(n, f"a remark about rain {n}", day=n) for n in range(2, 12)),
        said(20, "our puppy is called Oscar", name="Ann", day=20),
        said(30, "the physician was kind", day=30),
    )
    made.say("telegram:7", said(1, "my hound sleeps"))
    return made


async def test_what_means_the_same_is_found_without_the_words(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await index.refresh()
    result = await find(index, "dog Oscar")
    assert result[0] == "m:cli:direct:20"
    assert await find(index, "the doctor physician") == ["m:cli:direct:30"]
    await index.close()


async def test_names_of_speakers_are_not_embedded(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await find(index, "What did Ann tell about the dog?")
    assert embedder.seen[-1] == "dog"
    assert "our puppy is called Oscar" in embedder.seen
    await index.close()


async def test_meaning_crosses_no_scope(home: Home) -> None:
    index = home.index(embedder=Synonyms())
    assert await find(index, "dog hound puppy", "people/telegram_7") == ["m:telegram:7:1"]
    await index.close()


async def test_each_passage_is_embedded_once_and_anew_for_another_embedder(home: Home) -> None:
    first = Synonyms()
    index = home.index(embedder=first)
    await index.refresh()
    await index.refresh()
    assert len(first.seen) == len(set(first.seen)) == (await index.stats()).vectors == 13
    await index.close()
    other = Synonyms("other")
    index = home.index(embedder=other)
    await index.refresh()
    assert len(other.seen) == 13
    await index.close()


async def test_what_is_added_to_a_note_or_document_leaves_the_rest_alone(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    note, document = home.memory / "2026-03-01.md", home.library / "house.md"
    note.write_text("# 2026-03-01\n\n- 09:00 a tiger\n")
    document.parent.mkdir()
    document.write_text(f"# House\n\n{'The roof is red. ' * 60}\n")
    await index.refresh()
    embedder.seen.clear()
    note.write_text(f"{note.read_text()}- 10:00 a horse\n")
    document.write_text(f"{document.read_text()}\n# Garden\n\nThe fence is green.\n")
    await index.refresh()
    assert [text.split()[-1] for text in sorted(embedder.seen)] == ["green.", "horse"]
    assert await find(index, "tiger") == [id_of("n:owner:2026-03-01", "- 09:00 a tiger")]
    await index.close()


async def test_while_nothing_changes_no_passage_is_looked_at_for_its_vector(home: Home) -> None:
    home.say("cli:direct", said(1, "a green dog"))
    index, asked = home.index(embedder=Synonyms()), list[str]()
    await index.refresh()
    assert index._opened
    index._opened[1].db.set_trace_callback(asked.append)
    await index.refresh()
    await find(index, "dog")
    assert not [statement for statement in asked if "NOT IN (SELECT hash" in statement]
    home.say("cli:direct", said(2, "a brown horse"))
    await index.refresh()
    assert [statement for statement in asked if "NOT IN (SELECT hash" in statement]
    await index.close()


async def test_a_search_beside_a_refresh_embeds_nothing_twice(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    async with asyncio.TaskGroup() as group:
        group.create_task(index.refresh())
        group.create_task(index.refresh())
        group.create_task(find(index, "the question"))
    passages = [text for text in embedder.seen if text != "question"]
    assert len(passages) == len(set(passages)) == 13
    await index.close()


async def test_without_its_embedder_search_goes_by_words(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await index.refresh()
    embedder.broken = True
    assert await find(index, "puppy") == ["m:cli:direct:20"]
    await index.close()


@pytest.mark.parametrize(
    "refusal",
    [ContextTooLong("too long", status=500), ProviderRejected("an odd character", status=400)],
)
async def test_a_passage_that_is_refused_is_passed_over_and_not_asked_about_again(
    home: Home, refusal: ProviderRejected
) -> None:
    embedder = Synonyms()
    embedder.refuses, embedder.refusal = "Oscar", refusal
    index = home.index(embedder=embedder)
    await index.refresh()
    assert (await index.stats()).vectors == 12
    calls = embedder.calls
    await index.refresh()
    assert embedder.calls == calls
    assert await find(index, "the doctor physician") == ["m:cli:direct:30"]
    assert await find(index, "puppy") == ["m:cli:direct:20"]
    await index.close()


async def test_a_server_that_refuses_everything_passes_over_nothing(home: Home) -> None:
    embedder = Synonyms()
    embedder.refuses = "e"  # as in the plain word that tells
    index = home.index(embedder=embedder)
    await index.refresh()
    assert embedder.calls < 5
    embedder.refuses = ""
    await index.refresh()
    assert (await index.stats()).vectors == 13
    await index.close()


async def test_in_a_search_nothing_waits_for_the_embedder_to_come_back(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await find(index, "dog")
    assert embedder.hurried == embedder.calls > 0
    await index.close()


async def test_a_retracted_message_loses_its_vector(home: Home) -> None:
    index = home.index(embedder=Synonyms())
    await index.refresh()
    home.retract("cli:direct", "", 20, 20)
    await index.refresh()
    assert (await index.stats()).vectors == 12
    assert await find(index, "dog puppy") == []
    await index.close()
