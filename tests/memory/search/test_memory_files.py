"""Everything in a memory file is found: facts, pending or retired facts, and a person's own
files."""

from __future__ import annotations

from nanobot.memory.search import Passage, Query
from nanobot.memory.search.index import MemoryIndex
from tests.memory.search.talk import Home, id_of, message

OWNER = ("owner",)
GROUP = ("groups/telegram_-5", "owner")


async def find(index: MemoryIndex, text: str, scopes: tuple[str, ...] = OWNER) -> list[Passage]:
    result = await index.search(Query(text, scopes, source="memory"))
    return [hit.passage for hit in result.hits]


async def test_a_fact_is_found_by_its_heading_as_well(home: Home, index: MemoryIndex) -> None:
    (home.memory / "MEMORY.md").write_text("# Memory\n\n## Boat\n\n- Moored in Faro\n- Is green\n")
    assert [one.text for one in await find(index, "where is my boat moored")] == [
        "Boat\n- Moored in Faro",
        "Boat\n- Is green",
    ]


async def test_a_fact_that_is_wrapped_over_several_lines_is_found_as_one(
    home: Home, index: MemoryIndex
) -> None:
    (home.memory / "MEMORY.md").write_text(
        "## Boat\n\n- Is moored in Faro,\n  next to the green\nlighthouse\n- Has an engine\n"
        "  - of 40 horses\n\nand a story of its own\n"
    )
    assert [one.text for one in await find(index, "moored lighthouse")] == [
        "Boat\n- Is moored in Faro,\n  next to the green\nlighthouse"
    ]
    assert [one.text for one in await find(index, "horses")] == ["Boat\n  - of 40 horses"]
    assert [one.text for one in await find(index, "story")] == ["Boat\nand a story of its own"]


async def test_what_only_the_readable_history_has_is_found_once_and_named(
    home: Home, index: MemoryIndex
) -> None:
    (home.memory / "history.jsonl").write_text(
        '{"cursor": 1, "timestamp": "2026-04-02T10:00:00", "type": "import", "summary":'
        ' "[2026-04-02 10:00] The heron has a nest."}\n'
        '{"cursor": 2, "timestamp": "2026-04-03 09:12", "content": "Two herons\\n\\nflew off."}\n'
    )
    (home.memory / "HISTORY.md").write_text(
        "# History\n\n[2026-03-01 08:30] The heron of March was\n  seen by the pond.\n\n"
        "[2026-04-02 10:00] The heron\nhas a nest.\n\n[2026-04-03 09:12] Two herons\nflew off.\n\n"
        "[2026-05-02 10:00] The heron has a nest.\n"
    )
    result = await index.search(Query("heron", OWNER))
    assert sorted((one.passage.place, one.passage.origin) for one in result.hits) == [
        ("history 1", ""),
        ("history 2", ""),
        ("memory/HISTORY.md:12", "file"),
        ("memory/HISTORY.md:3", "file"),
    ]
    march = next(one.passage for one in result.hits if "March" in one.passage.text)
    assert (march.source, f"{march.when:%Y-%m-%d %H:%M}") == ("history", "2026-03-01 08:30")
    assert march.id == id_of("h:owner:memory/HISTORY", march.text)
    around = await index.around(march.id, OWNER)
    assert march in around
    assert [one.passage for one in (await index.search(Query("heron", GROUP))).hits]
    assert not (await index.search(Query("heron", GROUP[:1]))).hits


async def test_a_held_fact_is_found_as_one_and_never_counts_as_said(
    home: Home, index: MemoryIndex
) -> None:
    (home.memory / "pending.md").write_text(
        "# Pending facts\n\n"
        "- [2026-03-01] (from tool:web_fetch, person:7) -> MEMORY.md: - The boat is red\n"
        "  instead of: - The boat is green\n"
        "a line about a boat that nobody understands\n"
    )
    known, other = await find(index, "boat red")
    assert known.origin == "tool:web_fetch,person:7"
    assert known.text == "MEMORY.md: - The boat is red (instead of: - The boat is green)"
    assert known.place == "memory/pending.md 1, pending approval"
    assert f"{known.when:%Y-%m-%d}" == "2026-03-01"
    assert (other.place, other.origin) == (
        "memory/pending.md, pending approval",
        "others",
    )


async def test_a_retired_fact_is_found_with_its_day_until_it_stands_again(
    home: Home, index: MemoryIndex
) -> None:
    fact = home.memory / "MEMORY.md"
    fact.write_text("- Owns a house\n")
    (home.memory / "retired.md").write_text("# Retired facts\n\n- 2026-02-03: Owns a boat\n")
    (past,) = await find(index, "boat")
    assert (past.text, f"{past.when:%Y-%m-%d}") == ("Owns a boat", "2026-02-03")
    assert past.place == "memory/retired.md, no longer true since 2026-02-03"
    fact.write_text("- Owns a house\n- Owns a boat\n")
    (again,) = await find(index, "boat")
    assert again.place == "memory/MEMORY.md:2"


async def test_a_file_of_ones_own_beside_them_is_found_and_counts_as_a_file(
    home: Home, index: MemoryIndex
) -> None:
    (home.memory / "projects.md").write_text("# Garden\n\nThe pond needs a pump.\n")
    (home.memory / "HISTORY.md").write_text("a pump in the history\n")
    (passage,) = await find(index, "pump")
    assert (passage.place, passage.origin) == ("memory/projects.md:3", "file")
    assert passage.id == id_of("f:owner:memory/projects", passage.text)


async def test_others_who_may_read_the_facts_see_none_of_these(
    home: Home, index: MemoryIndex
) -> None:
    (home.memory / "MEMORY.md").write_text("- A boat\n")
    (home.memory / "projects.md").write_text("A boat\n")
    (home.memory / "retired.md").write_text("- 2026-02-03: Owned a boat\n")
    (home.memory / "pending.md").write_text("- [2026-03-01] (from x) -> USER.md: - A boat\n")
    assert [one.place for one in await find(index, "boat", GROUP)] == ["memory/MEMORY.md:1"]
    assert len(await find(index, "boat")) == 4


async def test_an_id_names_the_same_text_or_nothing_whatever_is_edited_around_it(
    home: Home, index: MemoryIndex
) -> None:
    fact = home.memory / "MEMORY.md"
    fact.write_text("- Owns a boat\n- Likes tea\n")
    (tea,) = await find(index, "tea")
    fact.write_text("- Likes rain\n- Owns a boat\n- Likes tea\n")
    around = await index.around(tea.id, OWNER)
    assert [one.text for one in around] == ["- Likes rain", "- Owns a boat", "- Likes tea"]
    fact.write_text("- Likes rain\n- Owns a boat\n- Likes coffee\n")
    assert await index.around(tea.id, OWNER) == []


async def test_every_line_of_every_file_is_found_by_its_words_among_hundreds(
    home: Home, index: MemoryIndex
) -> None:
    lines = [
        f"The {colour} {thing} is new" for colour in COLOURS.split() for thing in THINGS.split()
    ]
    home.say(
        "cli:direct", *(message(n, f"remember: {line}") for n, line in enumerate(lines[::2], 1))
    )
    facts, user, past, held, own = (lines[part::5] for part in range(5))
    memory = [f"- {one}" if n % 9 else f"\n## Part {n}\n\n- {one}" for n, one in enumerate(facts)]
    waiting = [f"- [2026-03-01] (from x) -> MEMORY.md: - {one}" for one in held]
    (home.memory / "MEMORY.md").write_text("\n".join(memory))
    (home.memory.parent / "USER.md").write_text("\n".join(f"- {one}" for one in user))
    (home.memory / "retired.md").write_text("\n".join(f"- 2026-02-03: {one}" for one in past))
    (home.memory / "pending.md").write_text("\n".join(waiting))
    (home.memory / "things.md").write_text("\n\n".join(f"# Mine\n\n{one}" for one in own))
    missed = []
    for line in lines[::3]:
        hits = (await index.search(Query(line, OWNER, limit=3))).hits
        found = [one.passage.text for one in hits if one.passage.source == "memory"]
        missed += [] if any(line in text for text in found) else [line]
    assert missed == []


COLOURS = "amber black blue brown coral cyan gold green grey ivory lime navy olive pink red"
THINGS = "boat bike lamp door desk kite sofa tent vase wall coat sled cup fan rug oven hat pen"
