"""Search by meaning together with words, with an embedder that knows a few synonyms."""

from __future__ import annotations

import asyncio
import re
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.errors import ContextTooLong, ProviderRejected, ProviderUnavailable
from nanobot.memory.search import Query
from nanobot.memory.search.index import MemoryIndex
from tests.memory.search.talk import START, Home, everything, find, id_of, ids, message

pytest.importorskip("numpy", reason="the vector worker needs the extra embeddings")

MEANINGS = [
    {"dog", "puppy", "hound"},
    {"doctor", "physician"},
    {"car", "automobile"},
    {"house", "home", "flat"},
    {"rain", "weather"},
]


class Synonyms:
    """One dimension for each meaning, and one for everything else."""

    def __init__(self, name: str = "synonyms", context: int = 0) -> None:
        self.name, self.context = name, context
        self.seen: list[str] = []
        self.broken = False
        self.refuses = ""
        self.refusal: ProviderRejected = ContextTooLong("too long", status=500)
        self.calls = self.questions = 0

    async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
        self.calls += 1
        self.questions += question
        if self.broken:
            raise ProviderUnavailable("nobody answers")
        if self.refuses and any(self.refuses in text for text in texts):
            raise self.refusal
        self.seen += texts
        words = [set(re.findall(r"\w+", text.lower())) for text in texts]
        return [[*(1.0 if held & meaning else -0.2 for meaning in MEANINGS), 0.1] for held in words]

    async def close(self) -> None:
        """Do nothing."""


async def up_to_date(index: MemoryIndex) -> None:
    await index.refresh()
    await index.embed()


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.say(
        "cli:direct",
        *(message(n, f"a remark about rain {n}", day=n) for n in range(2, 12)),
        message(20, "our puppy is called Oscar", name="Ann", day=20),
        message(30, "the physician was kind", day=30),
    )
    made.say("telegram:7", message(1, "my hound sleeps"))
    return made


async def test_what_means_the_same_is_found_without_the_words(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await up_to_date(index)
    result = await find(index, "dog Oscar")
    assert result[0] == "m:cli:direct:20"
    assert await find(index, "the doctor physician") == ["m:cli:direct:30"]
    await index.close()


async def test_names_of_speakers_are_not_embedded(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await up_to_date(index)
    assert "our puppy is called Oscar" in embedder.seen
    await find(index, "What did Ann's friend tell about the dog?")
    assert (embedder.seen[-1], embedder.questions) == ("What did friend tell about the dog?", 1)
    await index.close()


async def test_meaning_crosses_no_scope(home: Home) -> None:
    index = home.index(embedder=Synonyms())
    await up_to_date(index)
    assert await find(index, "dog hound puppy", "people/telegram_7") == ["m:telegram:7:1"]
    await index.close()


async def test_in_some_days_meaning_looks_for_what_is_near_there(home: Home) -> None:
    home.say("cli:direct", *(message(n, f"a puppy barked {n}", day=40) for n in range(50, 300)))
    index = home.index(embedder=Synonyms())
    await up_to_date(index)
    day = (START + timedelta(days=20)).date()
    result = await index.search(Query("hound", ("owner",), since=day, until=day))
    assert ids(result) == ["m:cli:direct:20"]
    await index.close()


async def test_each_passage_is_embedded_once_and_anew_for_another_embedder(home: Home) -> None:
    first = Synonyms()
    index = home.index(embedder=first)
    await up_to_date(index)
    await up_to_date(index)
    assert len(first.seen) == len(set(first.seen)) == (await index.stats()).vectors == 13
    await index.close()
    other = Synonyms("other")
    index = home.index(embedder=other)
    await up_to_date(index)
    assert len(other.seen) == 13
    await index.close()


async def test_what_is_added_to_a_note_or_document_leaves_the_rest_alone(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    note, document = home.memory / "2026-03-01.md", home.library / "house.md"
    note.write_text("# 2026-03-01\n\n- 09:00 a tiger\n")
    document.parent.mkdir()
    document.write_text(f"# House\n\n{'The roof is red. ' * 60}\n")
    await up_to_date(index)
    embedder.seen.clear()
    note.write_text(f"{note.read_text()}- 10:00 a horse\n")
    document.write_text(f"{document.read_text()}\n# Garden\n\nThe fence is green.\n")
    await up_to_date(index)
    assert [text.split()[-1] for text in sorted(embedder.seen)] == ["green.", "horse"]
    assert await find(index, "tiger") == [id_of("n:owner:2026-03-01", "- 09:00 a tiger")]
    await index.close()


async def test_a_search_beside_a_refresh_embeds_nothing_twice(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    async with asyncio.TaskGroup() as group:
        group.create_task(up_to_date(index))
        group.create_task(up_to_date(index))
        group.create_task(find(index, "the question"))
    passages = [text for text in embedder.seen if text != "question"]
    assert len(passages) == len(set(passages)) == 13
    await index.close()


async def test_without_its_embedder_search_goes_by_words(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await up_to_date(index)
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
    await up_to_date(index)
    assert (await index.stats()).vectors == 12
    calls = embedder.calls
    await up_to_date(index)
    assert embedder.calls == calls
    assert await find(index, "the doctor physician") == ["m:cli:direct:30"]
    assert await find(index, "puppy") == ["m:cli:direct:20"]
    await index.close()


async def test_a_server_that_refuses_everything_passes_over_nothing(home: Home) -> None:
    embedder = Synonyms()
    embedder.refuses = "e"  # as in the plain word that tells
    index = home.index(embedder=embedder)
    await up_to_date(index)
    assert embedder.calls < 5
    embedder.refuses = ""
    await up_to_date(index)
    assert (await index.stats()).vectors == 13
    await index.close()


async def test_in_a_search_nothing_waits_for_the_embedder_to_come_back(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await up_to_date(index)
    calls = embedder.calls
    home.say("cli:direct", message(40, "a hound"))
    await find(index, "dog")
    assert (embedder.questions, embedder.calls) == (1, calls + 1)
    await index.close()


async def test_a_retracted_message_loses_its_vector(home: Home) -> None:
    index = home.index(embedder=Synonyms())
    await up_to_date(index)
    home.retract("cli:direct", "", 20, 20)
    await up_to_date(index)
    assert (await index.stats()).vectors == 12
    assert await find(index, "dog puppy") == []
    await index.close()


async def test_what_is_taken_out_while_the_question_is_embedded_is_not_found(home: Home) -> None:
    class Slow(Synonyms):
        async def embed(self, texts: Sequence[str], *, question: bool = False) -> list[list[float]]:
            if question:
                await index.stats()  # the words of the question are looked up next
                home.retract("cli:direct", "", 20, 20)
                await index.refresh()
            return await super().embed(texts, question=question)

    index = home.index(embedder=Slow())
    await up_to_date(index)
    assert "m:cli:direct:20" not in await find(index, "dog Oscar")
    await index.close()


def rows(home: Home) -> list[bytes]:
    """Return the vectors in the index, without the scale."""
    with closing(sqlite3.connect(home.database)) as db:
        return [numbers[4:] for (numbers,) in db.execute("SELECT numbers FROM vector")]


async def test_of_what_was_taken_out_no_vector_stays_on_the_disk(home: Home) -> None:
    index = home.index(embedder=Synonyms())
    await up_to_date(index)
    [dogs] = {row for row in rows(home) if row[0] == 127 and row[4] != 127}
    assert rows(home).count(dogs) == 2  # of two scopes
    home.retract("cli:direct", "", 20, 20)
    home.retract("telegram:7", "", 1, 1)
    await index.refresh()
    assert (len(rows(home)), dogs in everything(home.path / "state")) == (11, False)
    home.say("cli:direct", message(40, "it was a long drive by automobile"))
    await up_to_date(index)
    assert len(rows(home)) == 12
    assert await find(index, "car automobile") == ["m:cli:direct:40"]
    await index.rebuild()
    assert rows(home) == []
    await index.close()


async def test_a_message_also_means_the_one_before_it(home: Home) -> None:
    home.say(
        "cli:pets",
        message(1, "is it the puppy?"),
        message(2, "yes, asleep"),
        message(3, "how are you", day=3),
    )
    embedder = Synonyms(context=8)
    index = home.index(embedder=embedder)
    await up_to_date(index)
    assert [text for text in embedder.seen if "\n" in text] == ["e puppy?\nyes, asleep"]
    found = ids(await index.search(Query("dog", ("owner",), session="cli:pets")))
    assert set(found[:2]) == {"m:cli:pets:1", "m:cli:pets:2"}
    await index.close()


@pytest.mark.parametrize("is_erased", [True, False])
async def test_a_message_no_longer_means_one_that_was_taken_out(
    tmp_path: Path, is_erased: bool
) -> None:
    home = Home(tmp_path)
    texts = ("a secret puppy", "yes, asleep", "it may rain")
    home.say("cli:pets", *(message(n, text) for n, text in enumerate(texts, 1)))
    embedder = Synonyms(context=400)
    index = home.index(embedder=embedder)
    await up_to_date(index)
    before = set(rows(home))
    embedder.seen.clear()
    if is_erased:
        file = home.file("cli:pets")
        file.write_text(file.read_text().replace("a secret puppy", "[erased]"))
    else:
        home.retract("cli:pets", "", 1, 1)
    await index.refresh()
    [kept] = rows(home)
    gone = before - {kept}
    assert len(gone) == 2
    assert not any(row in everything(home.path / "state") for row in gone)
    await index.embed()
    again = {"[erased]", "yes, asleep", "[erased]\nyes, asleep"} if is_erased else {"yes, asleep"}
    assert set(embedder.seen) == again
    await index.close()


async def test_after_an_erasure_only_what_it_changed_is_embedded_again(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    home.say("cli:other", message(1, "the car is blue"))
    await up_to_date(index)
    [dogs] = {row for row in rows(home) if row[0] == 127 and row[4] != 127}
    embedder.seen.clear()
    file = home.file("cli:direct")
    file.write_text(file.read_text().replace("our puppy is", "our [erased] is"))
    home.file("telegram:7").unlink()
    await index.refresh()
    assert (rows(home).count(dogs), dogs in everything(home.path / "state")) == (0, False)
    assert b"pupp" not in everything(home.path / "state").lower()
    await index.embed()
    assert embedder.seen == ["our [erased] is called Oscar"]
    assert (await index.stats()).vectors == 13
    for question, answer in (("automobile", "m:cli:other:1"), ("doctor", "m:cli:direct:30")):
        assert ids(await index.search(Query(question, ("owner",))))[0] == answer
    await index.close()


async def test_vectors_of_another_length_are_made_again(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await up_to_date(index)
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("UPDATE vector SET numbers = zeroblob(9)")
    assert await find(index, "puppy") == ["m:cli:direct:20"]
    embedder.seen.clear()
    await index.embed()
    assert len(embedder.seen) == (await index.stats()).vectors == 13
    assert await find(index, "dog Oscar") == ["m:cli:direct:20"]
    await index.close()


async def test_damaged_vectors_are_made_again(home: Home) -> None:
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await up_to_date(index)
    await index.close()
    with closing(sqlite3.connect(home.database, isolation_level=None)) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        ((size,),) = db.execute("PRAGMA page_size")
        ((page,),) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'vector'")
    with home.database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xab" * size)
    index = home.index(embedder=embedder)
    assert await find(index, "puppy") == ["m:cli:direct:20"]
    await index.embed()
    assert (await index.stats()).vectors == 13
    assert await find(index, "dog Oscar") == ["m:cli:direct:20"]
    await index.close()


async def test_without_an_embedder_the_vectors_go(home: Home) -> None:
    index = home.index(embedder=Synonyms())
    await up_to_date(index)
    await index.close()
    index = home.index()
    assert await find(index, "puppy") == ["m:cli:direct:20"]
    assert (await index.stats()).vectors == 0
    assert rows(home) == []
    await index.close()


async def test_vectors_of_another_embedder_do_not_outlast_their_text(home: Home) -> None:
    index = home.index(embedder=Synonyms())
    await up_to_date(index)
    [dogs] = {row for row in rows(home) if row[0] == 127 and row[4] != 127}
    await index.close()
    other = Synonyms("other")
    other.broken = True
    index = home.index(embedder=other)
    await up_to_date(index)
    home.retract("cli:direct", "", 20, 20)
    home.retract("telegram:7", "", 1, 1)
    await up_to_date(index)
    await index.close()
    assert dogs not in everything(home.path / "state")


async def test_a_server_is_not_asked_where_vectors_cannot_be_kept(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "numpy", None)
    embedder = Synonyms()
    index = home.index(embedder=embedder)
    await up_to_date(index)
    assert await find(index, "puppy") == ["m:cli:direct:20"]
    assert "the extra embeddings" in (await index.stats()).trouble
    assert embedder.calls == 0
    await index.close()


async def test_two_processes_that_embed_keep_one_vector_for_each_passage(home: Home) -> None:
    first, second = home.index(embedder=Synonyms()), home.index(embedder=Synonyms())
    async with asyncio.TaskGroup() as group:
        group.create_task(up_to_date(first))
        group.create_task(up_to_date(second))
    for index in (first, second):
        assert (await index.stats()).vectors == len(rows(home)) == 13
        assert await find(index, "dog Oscar") == ["m:cli:direct:20"]
        await index.close()


async def test_what_one_process_adds_and_takes_out_another_knows(home: Home) -> None:
    first, second = home.index(embedder=Synonyms()), home.index(embedder=Synonyms())
    await up_to_date(first)
    assert "m:cli:direct:20" in await find(second, "hound puppy")
    home.say("cli:direct", message(40, "the dog sleeps"))
    home.retract("cli:direct", "", 20, 20)
    await up_to_date(first)
    assert await find(second, "dog hound puppy") == ["m:cli:direct:40"]
    await first.rebuild()
    await first.embed()
    await second.close()
    assert await find(first, "dog hound puppy") == ["m:cli:direct:40"]
    await first.close()
