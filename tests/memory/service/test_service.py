"""The owner's operations on a memory, separately for each scope."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path

import pytest

from nanobot.errors import NanobotError
from nanobot.memory.documents import LONG_TERM, PENDING
from nanobot.memory.line_changes import Operation
from nanobot.memory.pending import MOST_OF_ONE
from nanobot.memory.scopes import OWNER
from nanobot.memory.version import Change
from tests.files import files_with
from tests.memory.homes import retire
from tests.memory.owned_memory import OwnedMemory

PERSON = "people/telegram_7"


async def test_an_empty_memory_says_so(owned: OwnedMemory) -> None:
    report = await owned.service.overview(OWNER)
    assert "No facts in memory/MEMORY.md yet." in report.text
    assert report.data["facts"] == []


async def test_show_gives_the_facts_and_how_much_there_is(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.", "Grace lives in Lisbon.")
    await owned.service.note("the key is under the mat", OWNER)
    await owned.add_messages("telegram:1", "I like blue", "Good to know.")
    report = await owned.service.overview(OWNER)
    lines = report.text.splitlines()
    assert lines[0] == "What I remember:"
    assert "- Ada likes blue." in lines
    assert any(line.startswith("- memory/MEMORY.md: 2 facts, about ") for line in lines)
    assert any("changed 2026-03-02 09:00 [Dream]" in line for line in lines)
    assert "- daily notes: 1 day" in lines
    assert "- history: 0 entries, 3 not yet read by Dream" in lines
    assert any(line.startswith("- searchable: 2 messages, ") for line in lines)
    assert max(map(len, lines)) <= 80
    data = json.loads(json.dumps(report.data))
    assert data["scope"] == OWNER
    assert data["files"][0] == {
        "path": LONG_TERM,
        "lines": ["## Important Notes", "- Ada likes blue.", "- Grace lives in Lisbon."],
        "facts": 2,
        "tokens": data["files"][0]["tokens"],
        "left_out": 0,
        "changed": "2026-03-02T09:00:00Z",
        "author": "dream",
    }


async def test_show_gives_what_is_known_of_the_person_and_of_the_manner_too(
    owned: OwnedMemory,
) -> None:
    user, soul = owned.workspace / "USER.md", owned.workspace / "SOUL.md"
    user.write_text(user.read_text() + "\n- Speaks Finnish\n")
    soul.write_text(soul.read_text() + "\n- Says du\n")
    report = await owned.service.overview(OWNER)
    assert "From USER.md:\n\n## Preferences\n- Speaks Finnish\n\nFrom SOUL.md:\n" in report.text
    assert "- Says du" in report.text
    assert "calm and curious" not in report.text  # it is in the template


async def test_a_fact_is_shown_under_its_heading_where_one_stands_twice(owned: OwnedMemory) -> None:
    text = "- top\n## A\n- one\n- two\n## B\n- three\n## A\n- four\n"
    (owned.workspace / LONG_TERM).write_text(text)
    shown = (await owned.service.overview(OWNER)).text
    assert text.rstrip() in shown.replace("\n\n", "\n")


async def test_long_memories_are_shown_in_part(owned: OwnedMemory) -> None:
    await owned.remember(*(f"Fact number {n} is this." for n in range(100)))
    text = (await owned.service.overview(OWNER)).text
    assert "Fact number 20 is this." in text
    assert "Fact number 99 is this." not in text
    assert "… and 40 more facts in memory/MEMORY.md" in text


async def test_of_long_memories_the_most_important_facts_are_shown(owned: OwnedMemory) -> None:
    facts = [f"Fact number {n} is this." for n in range(100)]
    facts[90] += " <!-- importance 4: family -->"
    facts[0] += " <!-- importance 2 -->"
    await owned.remember(*facts)
    text = (await owned.service.overview(OWNER)).text
    assert "- Fact number 58 is this.\n- Fact number 59 is this.\n- Fact number 90" in text
    assert "- Fact number 90 is this. (importance 4: family)\n… and 40 more facts in" in text
    assert "Fact number 0 is" not in text


async def test_each_scope_sees_its_own_memory_and_numbers_alone(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    await owned.remember("Bob likes red.", scope=PERSON)
    theirs = await owned.service.overview(PERSON)
    assert "Bob likes red." in theirs.text
    assert "Ada" not in json.dumps(theirs.data)
    assert "searchable" not in theirs.text
    mine = await owned.service.overview(OWNER)
    assert "Bob" not in mine.text
    assert mine.data["scopes"] == [PERSON]


@pytest.mark.parametrize("scope", ["", "people/../owner", "nobody", "people/", "owner/x"])
async def test_a_name_that_is_no_scope_is_refused(owned: OwnedMemory, scope: str) -> None:
    with pytest.raises(NanobotError, match="there is no scope"):
        await owned.service.overview(scope)


async def test_search_finds_what_was_said_with_what_was_said_around_it(owned: OwnedMemory) -> None:
    await owned.add_messages("telegram:1", "Where does Grace live?", "She lives in Lisbon.")
    report = await owned.service.search("Lisbon", OWNER)
    assert "She lives in Lisbon." in report.text
    assert "Where does Grace live?" in report.text
    hits = json.loads(json.dumps(report.data))["hits"]
    assert hits[0]["session"] == "telegram:1"


async def test_search_finds_what_the_long_term_files_say_and_where(owned: OwnedMemory) -> None:
    await owned.remember("Grace sails a catamaran.")
    user, soul = owned.workspace / "USER.md", owned.workspace / "SOUL.md"
    user.write_text("# User\n\n" + "- filler\n" * 3_000 + "- Owns a theremin\n")
    soul.write_text(f"{soul.read_text()}\n- Answers in limericks\n")
    for word, place in (
        ("catamaran", "memory/MEMORY.md:2"),
        ("theremin", "USER.md:3003"),
        ("limericks", "SOUL.md:"),
    ):
        found = (await owned.service.search(word, OWNER)).data["hits"]
        assert isinstance(found, list)
        assert str(found[0]["place"]).startswith(place)  # type: ignore[index, call-overload]
        assert found[0]["source"] == "memory"  # type: ignore[index, call-overload]
    assert (await owned.service.search("calm and curious", OWNER)).data["hits"] == []
    user.write_text("# User\n")
    assert (await owned.service.search("theremin", OWNER)).data["hits"] == []


async def test_search_keeps_to_its_scope(owned: OwnedMemory) -> None:
    await owned.add_messages("telegram:1", "Grace lives in Lisbon.")
    assert (await owned.service.search("Lisbon", PERSON)).data["hits"] == []


async def test_a_miss_says_what_was_looked_for(owned: OwnedMemory) -> None:
    await owned.add_messages("telegram:1", "Grace lives in Lisbon.")
    report = await owned.service.search("zeppelins", OWNER)
    assert report.text.startswith("No results for: zeppelin")


async def test_search_is_narrowed_by_filters(owned: OwnedMemory) -> None:
    await owned.add_messages("telegram:1", "Grace lives in Lisbon.", "Lisbon is nice.")
    found = await owned.service.search("Lisbon", role="assistant")
    hits = json.loads(json.dumps(found.data))["hits"]
    assert [hit["role"] for hit in hits] == ["assistant"]
    later = await owned.service.search("Lisbon", since=date(2026, 3, 3))
    assert later.data["hits"] == []


async def test_search_names_facts_that_are_no_longer_true(owned: OwnedMemory) -> None:
    await owned.remember("Ada works at the bakery.")
    store = owned.memories.of(OWNER).store
    await retire(store, LONG_TERM, ["- Ada works at the bakery."], Change("dream"))
    report = await owned.service.search("bakery", OWNER)
    assert "no longer true since 2026-03-02] Ada works" in report.text
    assert "Ada works at the bakery." in report.text


async def test_the_log_shows_the_latest_change_or_the_one_asked_for(owned: OwnedMemory) -> None:
    first = await owned.remember("Ada likes blue.")
    await owned.remember("Grace lives in Lisbon.")
    latest = await owned.service.log(None, OWNER)
    assert "[Dream] learned 1 facts" in latest.text
    assert "    +- Grace lives in Lisbon." in latest.text
    earlier = await owned.service.log(first, OWNER)
    assert earlier.data["version"] == first
    assert "Ada likes blue." in earlier.text


async def test_a_log_without_any_change_says_so(owned: OwnedMemory) -> None:
    assert "No versions" in (await owned.service.log(None, PERSON)).text


async def test_a_change_of_another_scope_is_unknown(owned: OwnedMemory) -> None:
    number = await owned.remember("Ada likes blue.")
    with pytest.raises(NanobotError, match="there is no version"):
        await owned.service.log(number, PERSON)
    with pytest.raises(NanobotError, match="there is no version"):
        await owned.service.restore(number, PERSON)


async def test_a_change_is_undone_and_the_undoing_too_with_later_edits_kept(
    owned: OwnedMemory,
) -> None:
    number = await owned.remember("Ada likes blue.")
    await owned.remember("Grace lives in Lisbon.")
    path = owned.workspace / LONG_TERM
    path.write_text(path.read_text() + "- I wrote this.\n")
    undone = await owned.service.restore(number, OWNER)
    assert "Ada likes blue." not in owned.facts()
    assert "Grace lives in Lisbon." in owned.facts()
    assert "I wrote this." in owned.facts()
    (made,) = json.loads(json.dumps(undone.data))["versions"]
    assert f"/dream-restore --version {made}" in undone.text
    await owned.service.restore(made, OWNER)
    assert "Ada likes blue." in owned.facts()
    assert "I wrote this." in owned.facts()


async def test_what_was_changed_together_is_one_version_and_one_undo(owned: OwnedMemory) -> None:
    store = owned.memories.of(OWNER).store
    before = await owned.remember("Ada works at the bakery.", "Ada likes blue.")
    adds = [Operation(new="- Speaks Finnish", section="## Preferences")]
    await store.apply("USER.md", adds, Change("dream", "learned: Finnish", run="dream 1"))
    (owned.workspace / "SOUL.md").write_text("# Soul\n\n- Mine\n")
    gone = ["- Ada works at the bakery."]
    last = await retire(store, LONG_TERM, gone, Change("dream", "retired 1", run="dream 1"))
    listed = (await owned.service.versions(OWNER)).data["versions"]
    assert isinstance(listed, list)
    shown = [(v["version"], v["summary"], v["paths"]) for v in listed]  # type: ignore[index, call-overload]
    files = ("USER.md", "memory/retired.md", LONG_TERM)
    assert shown[0] == (last, "learned: Finnish; retired 1", files)
    assert [number for number, _, _ in shown] == [last, before + 2, before, 1]
    log = (await owned.service.log(before + 1, OWNER)).text
    assert "+- Speaks Finnish" in log
    assert "-- Ada works at the bakery." in log

    undone = await owned.service.restore(before + 1, OWNER)

    assert not undone.data["conflicts"]
    assert "- Ada works at the bakery." in owned.facts()
    assert "Finnish" not in (owned.workspace / "USER.md").read_text()
    assert "- Mine" in (owned.workspace / "SOUL.md").read_text()
    (made,) = json.loads(json.dumps(undone.data))["versions"]
    await owned.service.restore(made, OWNER)
    assert "Finnish" in (owned.workspace / "USER.md").read_text()
    assert "bakery" not in owned.facts()


async def test_a_whole_state_comes_back_and_that_can_be_undone(owned: OwnedMemory) -> None:
    store = owned.memories.of(OWNER).store
    number = await owned.remember("Ada likes blue.", "Ada works at the bakery.")
    then = owned.facts()
    user = owned.workspace / "USER.md"
    await owned.remember("Grace lives in Lisbon.")
    await retire(store, LONG_TERM, ["- Ada works at the bakery."], Change("dream"))
    user.write_text("# User\n\n- Mine\n")
    later = owned.facts()

    report = await owned.service.restore(to=number)

    (made,) = json.loads(json.dumps(report.data))["versions"]
    assert owned.facts() == then
    assert "Mine" not in user.read_text()
    assert "bakery" not in (owned.workspace / "memory" / "retired.md").read_text()
    again = await owned.service.restore(to=number)
    assert (again.data["versions"], "already match" in again.text) == ([], True)
    await owned.type(f"/dream-restore --version {made}")
    assert (owned.facts(), user.read_text()) == (later, "# User\n\n- Mine\n")
    assert "to version 1." in await owned.type("/dream-restore --to 1")
    assert "likes" not in owned.facts()
    with pytest.raises(NanobotError, match="there is no version"):
        await owned.service.restore(to=999)


async def test_hand_edits_are_changes_of_the_person(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    path = owned.workspace / LONG_TERM
    path.write_text(path.read_text() + "- I wrote this.\n")
    listed = await owned.service.versions(OWNER)
    assert "[You]" in listed.text.splitlines()[0]
    assert json.loads(json.dumps(listed.data))["versions"][0]["author"] == "you"


async def test_what_cannot_be_undone_is_said_line_by_line(owned: OwnedMemory) -> None:
    number = await owned.remember("Ada likes blue.")
    path = owned.workspace / LONG_TERM
    path.write_text(path.read_text().replace("likes blue", "likes navy blue"))
    report = await owned.service.restore(number, OWNER)
    assert report.data["conflicts"]
    assert "have changed since" in report.text
    assert "navy blue" in owned.facts()


async def test_facts_that_wait_are_shown_taken_in_and_dropped(owned: OwnedMemory) -> None:
    pending = owned.memories.of(OWNER).pending
    await pending.add(["- Ada owns a boat.", "- Ada is a spy."], LONG_TERM, ["tool:web_fetch"])
    shown = await owned.service.pending(OWNER)
    assert "1: MEMORY.md: - Ada owns a boat. [from web_fetch" in shown.text
    accepted = await owned.service.accept([1])
    assert accepted.data["left"] == 1
    assert "Ada owns a boat." in owned.facts()
    await owned.service.drop([1])
    assert "spy" not in owned.facts()
    assert (await owned.service.pending(OWNER)).text == "No pending facts."
    assert "This fact is not pending" in (await owned.service.drop([9])).text


async def test_what_waits_is_listed_with_nothing_hidden_in_it(owned: OwnedMemory) -> None:
    pending = owned.memories.of(OWNER).pending
    long, hidden = "Ada likes " + "tea and " * 30 + "rum.", "Ada \u2800\u200bis a spy."
    await pending.add([Operation(f"- {long}", f"- {hidden}")], LONG_TERM, ["tool:web_fetch"])
    shown = (await owned.service.pending(OWNER)).text
    assert "\\u2800\\u200bis a spy" in shown
    assert long in shown


async def test_forgetting_is_planned_first_and_changes_nothing_by_that(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    plan = await owned.service.plan_forgetting("blue", OWNER)
    assert plan.data["found"] is True
    assert "Ada likes blue." in owned.facts()
    done = await owned.service.forget("blue", OWNER)
    assert done.data["found"] is True
    assert "blue" not in owned.facts()
    assert (await owned.service.plan_forgetting("blue", OWNER)).data["found"] is False


async def test_erasing_leaves_the_text_in_no_file(owned: OwnedMemory) -> None:
    await owned.remember("Ada hides the marzipan.")
    await owned.add_messages("telegram:1", "I hide the marzipan in the shed", "Noted.")
    await owned.service.search("marzipan", OWNER)
    report = await owned.service.forget("marzipan", OWNER, erase=True)
    assert report.data["complete"] is True
    assert files_with(owned.folder, "marzipan") == []


async def test_nothing_is_forgotten_in_a_scope_that_is_none(owned: OwnedMemory) -> None:
    for forget in (owned.service.plan_forgetting, owned.service.forget):
        for erase in (False, True):
            with pytest.raises(NanobotError, match="there is no scope"):
                await forget("blue", "somewhere/else", erase=erase)


async def test_only_the_owner_erases(owned: OwnedMemory) -> None:
    for forget in (owned.service.plan_forgetting, owned.service.forget):
        with pytest.raises(NanobotError, match="only the owner can erase"):
            await forget("blue", PERSON, erase=True)


async def test_why_leads_to_the_version(owned: OwnedMemory) -> None:
    number = await owned.remember("Ada likes blue.")
    report = await owned.service.why("blue", OWNER)
    assert f"version {number}" in report.text
    assert not (await owned.service.why("blue", PERSON)).data["found"]


async def test_dream_runs_for_the_scope_and_says_how_to_undo_it(owned: OwnedMemory) -> None:
    owned.dream.report = type(owned.dream.report)(OWNER, 2, ("Ada likes blue.",), versions=(4,))
    report = await owned.service.dream(OWNER)
    assert owned.dream.runs == [OWNER]
    assert "/dream-restore --version 4" in report.text
    assert json.loads(json.dumps(report.data))["learned"] == ["Ada likes blue."]


async def test_the_index_is_made_anew(owned: OwnedMemory) -> None:
    await owned.add_messages("telegram:1", "Grace lives in Lisbon.")
    report = await owned.service.rebuild()
    assert report.data["messages"] == 1
    assert report.text.startswith("Rebuilt the index: 1 message, ")


async def test_two_devices_share_what_they_learned(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    remote = str(tmp_path / "shared.git")
    one, two = map(OwnedMemory, folders)
    for owned in (one, two):
        await owned.journal.open()
    await one.remember("Ada likes blue.")
    await two.remember("Grace lives in Lisbon.")
    await one.service.sync(remote)
    await two.service.sync(remote)
    await one.service.sync(remote)
    for owned in (one, two):
        assert "Ada likes blue." in owned.facts()
        assert "Grace lives in Lisbon." in owned.facts()
        await owned.close()


async def test_what_one_device_forgot_does_not_come_back_from_another(tmp_path: Path) -> None:
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    remote = str(tmp_path / "shared.git")
    one, two = map(OwnedMemory, folders)
    for owned in (one, two):
        await owned.journal.open()
    await one.remember("Ada likes blue.", "Grace lives in Lisbon.", "The pin of Bob is 4711.")
    for owned in (one, two):
        await owned.service.sync(remote)
    reworded = two.facts().replace("Grace lives in Lisbon.", "Since May Grace lives in Lisbon.")
    change = Change("dream")
    await two.memories.of(OWNER).store.replace(
        LONG_TERM, reworded, expected=two.facts(), change=change
    )
    for line in ("Grace lives in Lisbon.", "The pin of Bob is 4711."):
        await one.service.forget(line, OWNER)
    for owned in (two, one, two, one):
        await owned.service.sync(remote)
    assert "Lisbon" not in one.facts()
    for owned in (one, two):
        assert "4711" not in owned.facts()
        assert "Ada likes blue." in owned.facts()
        await owned.close()


async def test_operations_take_and_give_json(owned: OwnedMemory) -> None:
    table = owned.service.table()
    await owned.remember("Ada likes blue.")
    answers: dict[str, dict[str, object]] = {
        "memory.show": {},
        "memory.search": {"text": "blue", "since": "2026-01-01", "limit": 3},
        "memory.why": {"text": "blue"},
        "memory.log": {"version": 1},
        "memory.versions": {"scope": OWNER},
        "memory.pending": {},
        "memory.importance": {"text": "blue", "level": 4},
        "memory.forget_plan": {"text": "blue"},
        "memory.restore": {"version": 2},
        "memory.drop": {"numbers": [1]},
        "memory.accept": {"numbers": [1]},
        "memory.forget": {"text": "blue", "scope": PERSON},
        "memory.rebuild": {},
        "memory.dream": {},
    }
    assert set(table) == {
        *answers, "memory.sync", "memory.recent", "memory.propose", "memory.scope_of",
    }  # fmt: skip
    for name, arguments in answers.items():
        answer = await table[name](arguments)
        assert isinstance(answer, dict)
        assert answer["text"]
        assert json.loads(json.dumps(answer))["text"] == answer["text"]


async def test_what_a_program_proposes_is_held_once_and_within_bounds(owned: OwnedMemory) -> None:
    propose = owned.service.table()["memory.propose"]

    async def answer(text: str) -> object:
        return await propose({"text": text, "origin": "mcp:notes"})

    await owned.remember("Ada likes blue.")
    assert await answer("ada likes  blue") == {"text": "This is already in memory.", "held": False}
    for number in range(MOST_OF_ONE):
        held = await answer(f"Ada has {number} boats")
        assert held == {"text": "It is pending until the person accepts it.", "held": True}
    assert await answer("Ada has 3 boats") == {"text": "This is already pending.", "held": False}
    with pytest.raises(NanobotError, match="too many facts are pending"):
        await answer("Ada has a bike")


async def test_the_version_where_all_begins_cannot_be_undone(owned: OwnedMemory) -> None:
    await owned.remember("Ada likes blue.")
    with pytest.raises(NanobotError, match="nothing to undo"):
        await owned.service.restore(1, OWNER)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memory.show", {"scope": 3}),
        ("memory.search", {}),
        ("memory.search", {"text": " "}),
        ("memory.search", {"text": "x", "since": "yesterday"}),
        ("memory.search", {"text": "x", "limit": 0}),
        ("memory.restore", {}),
        ("memory.restore", {"version": "1"}),
        ("memory.accept", {"numbers": []}),
        ("memory.accept", {"numbers": [True]}),
        ("memory.sync", {"remote": ""}),
    ],
)
async def test_arguments_that_make_no_sense_are_refused(
    owned: OwnedMemory, name: str, arguments: dict[str, object]
) -> None:
    with pytest.raises(NanobotError, match=r"the operation('s arguments are invalid| needs)"):
        await owned.service.table()[name](arguments)


@pytest.mark.parametrize("door", ["command", "operation"])
async def test_a_whole_state_brings_no_dropped_fact_back_to_pending(
    owned: OwnedMemory, door: str
) -> None:
    await owned.remember("Ada likes blue.")
    pending = owned.memories.of(OWNER).pending
    lines = ["- Owns a boat", "- Owns a bike", "- Owns a horse", "- Owns a car"]
    await pending.add(lines, LONG_TERM, ["tool:web_fetch"])
    number = owned.memories.of(OWNER).versions.tip_number()
    await pending.drop([1])
    await pending.accept([1])  # the bike
    (owned.workspace / PENDING).write_text(
        "".join(
            line
            for line in (owned.workspace / PENDING).read_text().splitlines(keepends=True)
            if "horse" not in line
        )
    )
    await pending.add(["- Owns a kite"], LONG_TERM, ["tool:web_fetch"])

    async def restore() -> None:
        if door == "command":
            await owned.type(f"/dream-restore --to {number}")
        else:
            await owned.service.table()["memory.restore"]({"to": number})

    await restore()
    assert "bike" not in owned.facts()
    assert [one.line for one in await pending.pending()] == [
        "- Owns a car", "- Owns a kite", "- Owns a bike"
    ]  # fmt: skip
    await pending.drop([3])
    await restore()
    assert [one.line for one in await pending.pending()] == ["- Owns a car", "- Owns a kite"]
    await pending.drop([1, 2])
    (owned.workspace / PENDING).unlink()
    await restore()
    assert not await pending.pending()
    await owned.type(f"/dream-restore --version {number}")
    assert not await pending.pending()  # what was pending for the first time is dropped with it
