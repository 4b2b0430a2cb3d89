"""Facts that consolidation wrote help to find the messages behind them."""

from __future__ import annotations

from datetime import date

from nanobot.memory.search import Query
from nanobot.memory.search.index import MemoryIndex
from tests.memory.search.talk import START, Home, everything, ids, message

KEY, OWNER = "cli:direct", ("owner",)
CLIMBING = "m:cli:direct:2"
TALK = (
    message(1, "what a week, the kids were ill"),
    message(2, "at least I got up the wall without a rope on Sunday"),
    message(3, "and we had soup"),
)
FACT = "The user likes bouldering: got up a wall without a rope"


async def found(
    index: MemoryIndex, text: str, *, scopes: tuple[str, ...] = OWNER, since: date | None = None
) -> list[str]:
    """Return the ids of the messages that are found, best first."""
    return ids(await index.search(Query(text, scopes, source="message", since=since)))


async def test_a_message_is_found_by_a_word_of_its_fact_and_shown_as_it_was_said(
    home: Home, index: MemoryIndex
) -> None:
    home.say(KEY, *TALK)
    assert await found(index, "bouldering") == []
    home.remember(1, "A week at home.", session=KEY, first=1, last=3, facts=[FACT])
    result = await index.search(Query("bouldering", OWNER, source="message"))
    best = result.hits[0].passage
    assert (best.id, best.text) == (CLIMBING, TALK[1].content)
    assert all(
        "bouldering" not in one.text for hit in result.hits for one in hit.before + hit.after
    )
    assert (await found(index, "bouldering", since=START.date()))[0] == CLIMBING
    assert [one.text for one in await index.around(CLIMBING, OWNER)] == [
        said.content for said in TALK
    ]


async def test_a_forgotten_fact_lends_no_word_and_leaves_no_byte(
    home: Home, index: MemoryIndex
) -> None:
    home.say(KEY, *TALK)
    home.remember(1, "A week at home.", session=KEY, first=1, last=3, facts=[FACT])
    assert await found(index, "bouldering")
    assert b"bouldering" in everything(home.database.parent)
    (home.memory / "history.jsonl").unlink()
    home.remember(1, "A week at home.", session=KEY, first=1, last=3)
    assert await found(index, "bouldering") == []
    await index.refresh()
    assert b"boulder" not in everything(home.database.parent)


async def test_a_fact_of_a_message_that_was_undone_finds_nothing(
    home: Home, index: MemoryIndex
) -> None:
    home.say(KEY, *TALK)
    home.remember(1, "A week at home.", session=KEY, first=1, last=3, facts=[FACT])
    assert await found(index, "bouldering")
    home.retract(KEY, "", 2, 2)
    assert CLIMBING not in await found(index, "bouldering")


async def test_a_fact_lends_to_no_message_that_its_reader_may_not_read(
    home: Home, index: MemoryIndex
) -> None:
    home.say(KEY, *TALK)
    home.say("telegram:7", message(1, "hello there"))
    folder = home.path / "people" / "memory"
    folder.mkdir(parents=True)
    home.people["people/telegram_7"] = folder
    home.remember(1, "A week at home.", session=KEY, first=1, last=3, facts=[FACT])
    (home.memory / "history.jsonl").rename(folder / "history.jsonl")
    assert await found(index, "bouldering", scopes=("people/telegram_7",)) == []
    assert await found(index, "bouldering") == []


async def test_facts_lend_to_replies_that_say_something_new_but_not_to_an_echo(
    home: Home, index: MemoryIndex
) -> None:
    home.say(
        KEY,
        message(1, "any dinner idea?"),
        message(2, "Fry tofu with ginger, spring onions and black vinegar.", "assistant"),
        message(3, "the rice burned and the pan is ruined"),
        message(4, "The rice burned and the pan is ruined.", "assistant"),
    )
    facts = ["A vegan recipe: tofu with ginger and vinegar", "A mishap: rice burned, pan is ruined"]
    home.remember(1, "Dinner.", session=KEY, first=1, last=4, facts=facts)
    assert (await found(index, "vegan recipe"))[0] == "m:cli:direct:2"
    assert (await found(index, "mishap"))[0] == "m:cli:direct:3"


async def test_a_rebuilt_index_lends_the_same(home: Home, index: MemoryIndex) -> None:
    home.say(KEY, *TALK)
    home.remember(1, "A week at home.", session=KEY, first=1, last=3, facts=[FACT])
    before = await found(index, "bouldering")
    await index.rebuild()
    assert before == await found(index, "bouldering") != []
