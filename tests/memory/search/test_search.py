"""The results of a search, their display, and hidden texts."""

from __future__ import annotations

import asyncio
from datetime import date

import pytest

from nanobot.memory.search import Query
from nanobot.memory.search.index import MemoryIndex
from tests.memory.search.talk import START, Home, find, id_of, ids, message

OWNER = ("owner",)


async def test_a_hit_says_who_when_where_and_what_stood_around_it(
    home: Home, index: MemoryIndex
) -> None:
    home.say(
        "cli:direct",
        message(1, "hello"),
        message(2, "Hi! What is new?", "assistant"),
        message(3, "We got a dog called Oscar", name="Ann"),
        message(4, "How lovely", "assistant"),
    )
    hit = (await index.search(Query("dog", OWNER))).hits[0]
    passage = hit.passage
    assert passage.id == "m:cli:direct:3"
    assert (passage.speaker, passage.role, passage.seq) == ("Ann", "user", 3)
    assert (passage.session, passage.place) == ("cli:direct", "cli:direct #3")
    assert passage.when == message(3, "").timestamp
    assert [near.seq for near in hit.before] == [1, 2]
    assert [near.text for near in hit.after] == ["How lovely"]


async def test_history_notes_and_documents_are_found_with_their_place(
    home: Home, index: MemoryIndex
) -> None:
    home.remember(7, "They planned a trip.", session="cli:direct", first=1, last=9,
                  facts=["The hotel is the Astoria"])  # fmt: skip
    (home.memory / "2026-03-01.md").write_text(
        "# 2026-03-01\n\n- 09:15 bought a kettle\n  at the market\n- 10:00 rain\n"
    )
    home.library.mkdir()
    (home.library / "manual.md").write_text("# Boiler\n\nPress the valve twice.\n")
    history, note, document = [
        (await index.search(Query(text, OWNER))).hits[0].passage
        for text in ("Astoria", "kettle", "valve")
    ]
    assert (history.id, history.source) == ("h:owner:7", "history")
    assert history.place == "history 7 (cli:direct #1-9)"
    assert note.id == id_of("n:owner:2026-03-01", "- 09:15 bought a kettle\n  at the market")
    assert note.place == "2026-03-01.md:3"
    assert note.when == START.replace(day=1, minute=15)
    assert "at the market" in note.text
    assert document.id == id_of("l:manual.md", document.text)
    assert document.place == "library/manual.md:1"


async def test_a_digest_is_found_by_line_and_by_the_days_it_names(
    home: Home, index: MemoryIndex
) -> None:
    (home.memory / "2026-02.md").write_text("# 2026-02\n\n- Ran in the park (02-03, 02-17)\n")
    (hit,) = (await index.search(Query("park", OWNER, source="note"))).hits
    assert hit.passage.id == id_of("n:owner:2026-02", hit.passage.text)
    assert hit.passage.place == "2026-02.md:3"
    assert hit.passage.when == START.replace(month=2, day=3, hour=0)
    assert hit.passage.text == "- Ran in the park (02-03, 02-17)"


async def test_nothing_outside_the_scopes_is_found_shown_beside_or_read_on(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", message(1, "the safe code is 4711"), message(2, "noted", "assistant"))
    home.say("telegram:7", message(1, "is there a safe?"), message(2, "no code here", "assistant"))
    home.remember(1, "The safe code was told.", session="cli:direct", first=1, last=2)
    (home.memory / "2026-03-01.md").write_text("# 2026-03-01\n\n- 09:15 safe code changed\n")
    guest = ("people/telegram_7",)
    result = await index.search(Query("safe code", guest, limit=50))
    shown = [p for hit in result.hits for p in (*hit.before, hit.passage, *hit.after)]
    assert {passage.session for passage in shown} == {"telegram:7"}
    note = id_of("n:owner:2026-03-01", "- 09:15 safe code changed")
    for id in ("m:cli:direct:1", "h:owner:1", note):
        assert await index.around(id, guest) == []
        assert await index.around(id, OWNER) != []


async def test_the_scope_of_a_session_is_asked_at_each_search(
    home: Home, index: MemoryIndex
) -> None:
    home.say("telegram:group", message(1, "a purple elephant"), metadata={"sender": "1"})
    assert await find(index, "elephant", "people/telegram_1") == ["m:telegram:group:1"]
    home.say("telegram:group", metadata={"sender": "2"})
    assert await find(index, "elephant", "people/telegram_1") == []
    assert await find(index, "elephant", "people/telegram_2") == ["m:telegram:group:1"]


async def test_in_a_group_it_is_known_who_speaks(home: Home, index: MemoryIndex) -> None:
    said_by = [
        message(seq, f"[from {name}]\nmy boat is {colour}", origin=origin)
        for seq, name, colour, origin in ((1, "Ann", "red", ""), (2, "Ben", "blue", "person:7"))
    ]
    home.say("telegram:-100", *said_by, metadata={"group": True})
    result = await index.search(Query("which boat has Ben", ("people/telegram_-100",)))
    assert [hit.passage.speaker for hit in result.hits] == ["Ben", "Ann"]


async def test_no_scope_at_all_finds_nothing(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "a purple elephant"))
    assert (await index.search(Query("elephant", ()))).hits == ()


async def test_filters_hold_for_neighbours_as_well(home: Home, index: MemoryIndex) -> None:
    home.say(
        "cli:direct",
        message(1, "which elephant?"),
        message(2, "the purple elephant", "assistant"),
        message(3, "an elephant again", day=3),
    )
    home.say("cli:other", message(1, "an elephant elsewhere"))
    home.remember(1, "An elephant was seen.")

    async def find_filtered(**fields: object) -> set[str]:
        return set(ids(await index.search(Query("elephant", OWNER, **fields))))  # type: ignore[arg-type]

    assert await find_filtered(role="assistant") == {"m:cli:direct:2"}
    assert await find_filtered(source="history") == {"h:owner:1"}
    assert await find_filtered(session="cli:other") == {"m:cli:other:1"}
    assert await find_filtered(since=date(2026, 3, 5)) == {"m:cli:direct:3"}
    assert await find_filtered(until=date(2026, 3, 2), session="cli:direct") == {
        "m:cli:direct:1",
        "m:cli:direct:2",
    }
    assert len(await find_filtered(limit=2)) == 2


async def test_the_output_of_a_tool_is_found_shortened_and_marked(
    home: Home, index: MemoryIndex
) -> None:
    page = "The lighthouse opens at nine. " + "filler " * 2000
    home.say(
        "cli:direct",
        message(1, "When can we visit?"),
        message(2, page, "tool", name="web_fetch", origin="tool:web_fetch"),
        message(3, page, "tool", name="search_memory"),
        message(3, "In the morning", "assistant"),
    )
    hit = (await index.search(Query("lighthouse opens", OWNER))).hits[0]
    assert hit.passage.origin == "tool:web_fetch"
    assert hit.passage.role == "tool"
    assert len(hit.passage.text) == 2000
    assert [near.seq for near in (*hit.before, *hit.after)] == [1, 3]


async def test_around_reads_on_in_order_with_the_output_of_tools(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", *(message(n, f"remark {n}", "tool" if n == 4 else "user")
                             for n in range(1, 9)))  # fmt: skip
    found = await index.around("m:cli:direct:5", OWNER, before=2, after=2)
    assert [passage.seq for passage in found] == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "id", ["", "m", "m:cli:direct:99", "m:cli:direct:x", "x:cli:direct:1", "m:nobody:1"]
)
async def test_an_unknown_id_has_nothing_around_it(home: Home, index: MemoryIndex, id: str) -> None:
    home.say("cli:direct", message(1, "hello"))
    assert await index.around(id, OWNER) == []


@pytest.mark.parametrize(
    "text", ["", "   ", "?!", '"', "AND OR NOT (", "*", "a" * 5000, "\x00\ud800"]
)
async def test_no_question_is_too_odd(home: Home, index: MemoryIndex, text: str) -> None:
    home.say("cli:direct", message(1, "hello"))
    assert (await index.search(Query(text, OWNER))).hits == ()


async def test_the_words_of_a_miss_are_told(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", message(1, "we painted the kitchen"))
    result = await index.search(Query("What about the kitten?", OWNER))
    assert (result.hits, result.terms) == ((), ("kitten",))


async def test_searches_and_refreshes_at_once_all_come_back(home: Home, index: MemoryIndex) -> None:
    home.say("cli:direct", *(message(n, f"elephant {n}") for n in range(1, 30)))
    async with asyncio.TaskGroup() as group:
        searches = [group.create_task(find(index, "elephant")) for _ in range(10)]
        group.create_task(index.refresh())
        group.create_task(index.rebuild())
    assert all(len(search.result()) == 29 for search in searches)


async def test_a_persons_turns_are_neighbours_whatever_the_agent_says_between_them(
    home: Home, index: MemoryIndex
) -> None:
    home.say(
        "cli:direct",
        message(1, "what did we name the elephant?"),
        *(message(n, "let me see", "assistant") for n in range(2, 12)),
        message(12, "Oscar!"),
        message(13, "Noted.", "assistant"),
    )
    result = await index.search(Query("name of the elephant", OWNER, limit=2))
    assert set(ids(result)) == {"m:cli:direct:1", "m:cli:direct:12"}


async def test_more_replies_than_a_turn_has_places_for_are_found(
    home: Home, index: MemoryIndex
) -> None:
    home.say("cli:direct", message(1, "go on"))
    home.say("cli:direct", *(message(n, f"step number{n}", "assistant") for n in range(2, 100)))
    for number in (2, 16, 17, 99):
        assert (await find(index, f"number{number}"))[0] == f"m:cli:direct:{number}"


async def test_the_agents_reply_is_found_by_what_was_asked_and_by_what_only_it_says(
    home: Home, index: MemoryIndex
) -> None:
    home.say(
        "cli:direct",
        message(1, "where should I have dinner in Lisbon?"),
        message(2, "Try Ramiro, its seafood is famous.", "assistant"),
        message(3, "and for lunch in Lisbon?"),
        message(4, "You said lunch in Lisbon; any place will do.", "assistant"),
    )

    async def first(text: str, role: str = "") -> str:
        return ids(await index.search(Query(text, OWNER, role=role)))[0]

    assert await first("what did you recommend for dinner in Lisbon?") == "m:cli:direct:2"
    assert await first("dinner in Lisbon", role="assistant") == "m:cli:direct:2"
    assert await first("famous seafood") == "m:cli:direct:2"
    assert await first("dinner in Lisbon") == "m:cli:direct:1"
    assert await first("lunch in Lisbon") == "m:cli:direct:3"
