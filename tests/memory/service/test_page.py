"""The page of a memory, in pieces, and changing one line in place."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nanobot.channel import Operation
from nanobot.errors import NanobotError, ToolError
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.history import HistoryEntry, encode
from nanobot.memory.scopes import OWNER
from nanobot.memory.service.page import MemoryPage
from nanobot.memory.version import Change
from tests.memory.owned_memory import OwnedMemory


class Page:
    """The operations by name."""

    def __init__(self, owned: OwnedMemory) -> None:
        page = MemoryPage(owned.service.memory, owned.memories)
        self._table: dict[str, Operation] = {**owned.service.table(), **page.table()}

    async def ask(self, name: str, **arguments: object) -> dict[str, Any]:
        answer = await self._table[f"memory.{name}"](arguments)
        assert isinstance(answer, dict)
        return answer


async def test_facts_come_by_pieces_with_ids_that_name_exactly_one_text(owned: OwnedMemory) -> None:
    page = Page(owned)
    await owned.remember("Ada likes blue.", "Grace lives in Lisbon.")
    await owned.service.set_importance(5, "blue", OWNER)
    whole = await page.ask("facts")
    assert [one["text"] for one in whole["facts"]] == ["Ada likes blue.", "Grace lives in Lisbon."]
    assert [one["level"] for one in whole["facts"]] == [5, 3]
    assert (whole["total"], whole["files"][LONG_TERM]) == (2, 2)
    piece = await page.ask("facts", offset=1, limit=1)
    assert (piece["facts"], piece["total"]) == ([whole["facts"][1]], 2)
    id = whole["facts"][0]["id"]
    assert (await page.ask("fact", id=id))["text"] == "Ada likes blue."
    await page.ask("edit", path=LONG_TERM, text=whole["facts"][0]["line"], new="Ada likes red.")
    with pytest.raises(NanobotError, match="this fact no longer exists"):
        await page.ask("fact", id=id)


async def test_a_line_is_edited_in_its_place_as_the_persons_own_and_stays_as_important(
    owned: OwnedMemory,
) -> None:
    page = Page(owned)
    await owned.remember("Ada likes blue.", "Grace lives in Lisbon.")
    await owned.service.set_importance(4, "blue", OWNER)
    before = owned.facts()
    done = await page.ask("edit", path=LONG_TERM, text="Ada likes blue.", new="  Ada likes\n red. ")
    assert owned.facts() == before.replace("Ada likes blue.", "Ada likes red.")
    version = owned.memories.of(OWNER).versions.version(done["version"])
    assert (version.author, version.summary) == ("you", "on the page: added: Ada likes red.")
    again = await page.ask("edit", path=LONG_TERM, text="Ada likes red.", new="Ada likes red.")
    assert again["version"] == 0
    await owned.service.restore(done["version"], OWNER)
    assert owned.facts() == before


async def test_a_fact_is_added_under_its_heading(owned: OwnedMemory) -> None:
    page = Page(owned)
    await owned.remember("Ada likes blue.")
    await page.ask("edit", path=LONG_TERM, new="Tom is tall.", section="Important Notes")
    await page.ask("edit", path=LONG_TERM, new="It rains.", section="Weather")
    facts = (await page.ask("facts"))["facts"]
    assert [(one["section"], one["text"]) for one in facts] == [
        ("Important Notes", "Ada likes blue."),
        ("Important Notes", "Tom is tall."),
        ("Weather", "It rains."),
    ]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"new": " # "}, "has no words"),
        ({"new": "(nothing yet)"}, "has no words"),
        ({"new": "x" * 2_001}, "at most 2,000"),
        ({"text": "Bob is tall."}, "no longer exists"),
        ({"path": "AGENTS.md"}, "facts must be in"),
        ({"path": "memory/../AGENTS.md"}, "facts must be in"),
        ({"scope": "people/../x"}, "there is no scope"),
        ({"section": 3}, "arguments are invalid"),
    ],
)
async def test_what_is_no_edit_is_refused(
    owned: OwnedMemory, wrong: dict[str, Any], says: str
) -> None:
    page = Page(owned)
    await owned.remember("Ada likes blue.")
    before = owned.facts()
    right = {"path": LONG_TERM, "text": "Ada likes blue.", "new": "Ada likes red."}
    with pytest.raises(NanobotError, match=says):
        await page.ask("edit", **{**right, **wrong})
    assert owned.facts() == before


async def test_the_file_may_not_grow_beyond_its_budget(owned: OwnedMemory) -> None:
    page = Page(owned)
    user = owned.workspace / "USER.md"
    user.write_text(
        "# The person\n\n" + "".join(f"- fact {n} of many words\n" for n in range(5_000))
    )
    with pytest.raises(ToolError, match="tokens"):
        await page.ask("edit", path="USER.md", new="one more fact")


async def test_versions_come_by_pieces_and_those_of_one_run_are_one(owned: OwnedMemory) -> None:
    page, store = Page(owned), owned.memories.of(OWNER).store
    for number in range(7):
        line = f"- fact {number}\n"
        now = store.read(LONG_TERM)
        await store.replace(LONG_TERM, now + line, expected=now, change=Change("agent", line))
    run = Change("dream", "learned", run="dream 1")
    await store.edit(LONG_TERM, lambda text: f"{text}- one\n", run)
    await store.edit("USER.md", lambda text: f"{text}- two\n", run)
    whole = await page.ask("versions", limit=50)
    assert whole["total"] == len(whole["versions"])
    assert whole["versions"][0]["summary"] == "learned"
    assert set(whole["versions"][0]["paths"]) == {LONG_TERM, "USER.md"}
    pieces = [await page.ask("versions", skip=at, limit=3) for at in range(0, whole["total"], 3)]
    assert [one for piece in pieces for one in piece["versions"]] == whole["versions"]


async def test_notes_and_scopes(owned: OwnedMemory) -> None:
    page = Page(owned)
    assert (await page.ask("notes"))["days"] == []
    await owned.service.note("the key is under the mat", OWNER)
    notes = await page.ask("notes")
    assert "the key is under the mat" in notes["text"]
    assert notes["days"] == [notes["day"]]
    with pytest.raises(NanobotError, match="is not a date"):
        await page.ask("notes", day="../MEMORY")
    await owned.remember("Ada likes blue.")
    assert {"scope": OWNER, "facts": 1, "pending": 0} in (await page.ask("scopes"))["scopes"]


async def test_growth_is_what_the_history_took_in_by_month(owned: OwnedMemory) -> None:
    page = Page(owned)
    assert await page.ask("growth") == {"months": []}
    history = owned.memories.of(OWNER).history
    stamps = [datetime(2026, month, 1, tzinfo=UTC) for month in (1, 1, 3)]
    entries = [
        history.append(HistoryEntry(0, at, "consolidation", "fake:1", 0, 0, "Ada."))
        for at in stamps
    ]
    sizes = [len(encode(entry)) for entry in entries]
    assert (await page.ask("growth"))["months"] == [
        {"month": "2026-01", "entries": 2, "bytes": sizes[0] + sizes[1]},
        {"month": "2026-03", "entries": 1, "bytes": sizes[2]},
    ]
