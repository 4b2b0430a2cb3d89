"""A forgotten fact leaves files, search and prompts, and is not learned again."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.errors import NanobotError
from nanobot.memory.forget import FORGOTTEN, ForgottenFacts
from nanobot.memory.history import HistoryEntry
from nanobot.memory.similarity import Fact
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.testing import FakeClock
from tests.memory.homes import GUEST, RealHome, living

KEY = "telegram:1"
ANN = "- Their sister Ann lives in Oslo"


async def learn(home: RealHome) -> int:
    """Store a fact with all its evidence. Return the cursor of its entry."""
    seqs = await home.say(KEY, "my sister Ann lives in Oslo", "I like tea")
    cursor = home.tell(
        KEY, seqs, "They told that their sister Ann lives in Oslo. They like tea.",
        "Their sister Ann lives in Oslo", "Likes tea",
    )  # fmt: skip
    await home.learn(ANN, "- Likes tea", cursor=cursor)
    await home.memory().store.append_today("call Ann, the sister in Oslo")
    await home.memory().store.append_today("buy tea")
    return cursor


async def test_the_plan_says_exactly_what_will_go_and_changes_nothing(home: RealHome) -> None:
    cursor = await learn(home)
    before = {path: path.read_bytes() for path in home.folder.rglob("*.md")}

    plan = await home.forgetter.plan("sister Ann", "owner")

    assert [line.path for line in plan.lines] == ["memory/MEMORY.md", "memory/2026-03-02.md"]
    assert [(said.session, said.seq) for said in plan.messages] == [(KEY, 1)]
    assert plan.entries == (cursor,)
    assert "2 lines, 1 message, 1 history entry" in plan.text
    assert ANN.removeprefix("- ") in plan.text
    assert {path: path.read_bytes() for path in home.folder.rglob("*.md")} == before


async def test_the_fact_and_its_evidence_are_gone_and_the_rest_stays(home: RealHome) -> None:
    cursor = await learn(home)

    report = await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))

    memory = home.memory()
    assert "2 lines, 1 message, 1 history entry" in report.text
    assert "Ann" not in memory.store.read("memory/MEMORY.md")
    assert "Likes tea" in memory.store.read("memory/MEMORY.md")
    assert "Ann" not in memory.store.read(memory.store.today_path())
    assert "buy tea" in memory.store.read(memory.store.today_path())
    entry = memory.history.get(cursor)
    assert entry is not None
    assert "Ann" not in entry.summary
    assert "They like tea." in entry.summary
    assert entry.key_facts == ("Likes tea",)
    assert "Ann" not in (memory.root.path / "memory" / "HISTORY.md").read_text()
    session = await home.sessions.get_or_create(KEY)
    assert [message.content for message in session.messages] == ["ok", "I like tea", "ok"]
    assert not [text for text in await home.finds("sister Ann Oslo") if "Ann" in text]
    assert await home.finds("tea")


def make_message(seq: int) -> Message:
    return Message("user", "hello", seq=seq)


async def test_what_was_forgotten_is_known_again_and_hidden(home: RealHome) -> None:
    await learn(home)
    await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))

    forgotten = ForgottenFacts(home.memory().root)
    assert forgotten.hides_message(KEY, make_message(1))
    assert not forgotten.hides_message(KEY, make_message(3))
    assert forgotten.hides_line("Ann, the sister, lives in Oslo now")
    assert not forgotten.hides_line("- Their sister Eve lives in Rome")
    assert not forgotten.hides_line("- Likes tea")
    assert b"Ann" not in (home.memory().root.path / FORGOTTEN).read_bytes()


async def test_what_is_said_again_afterwards_may_be_learned_anew(home: RealHome) -> None:
    await learn(home)
    await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))

    forgotten, now = ForgottenFacts(home.memory().root), home.clock.now()
    assert forgotten.hides_line(ANN, said_at=now - timedelta(days=1))
    assert not forgotten.hides_line(ANN, said_at=now + timedelta(days=1))


async def test_an_entry_that_said_nothing_else_is_hidden_as_a_whole(home: RealHome) -> None:
    seqs = await home.say(KEY, "my sister Ann lives in Oslo")
    cursor = home.tell(KEY, seqs, "Their sister Ann lives in Oslo.")
    await home.learn(ANN, cursor=cursor)

    await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))

    assert ForgottenFacts(home.memory().root).hides_entry(cursor)
    entry = home.memory().history.get(cursor)
    assert entry is not None
    assert "Ann" not in entry.summary
    assert home.memory().history.newest()[KEY].since(entry.timestamp) == seqs[1]


async def test_earlier_wordings_count_as_the_same_fact(home: RealHome) -> None:
    await home.say(KEY, "my sister Ann lives in Oslo")
    await home.learn(ANN)
    await home.learn("- Their sister Ann lives in Bergen", old=ANN)

    plan = await home.forgetter.plan("Ann Bergen", "owner")

    assert [said.seq for said in plan.messages] == [1]


async def test_the_lines_can_be_brought_back_by_a_restore(home: RealHome) -> None:
    await learn(home)
    report = await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))

    versions = report.data["versions"]
    assert isinstance(versions, list)
    (number,) = versions
    assert isinstance(number, int)
    assert home.versions.version(number).author == "forget"
    assert f"--version {number}" in report.text
    assert ANN in home.versions.plan_undo(number).texts["memory/MEMORY.md"]


async def test_only_what_has_versions_is_said_to_come_back(home: RealHome) -> None:
    store = home.memory().store
    await store.append_today("call Ann, the sister in Oslo")
    report = await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))
    assert "To restore" not in report.text

    await home.learn(ANN)
    await store.append_today("call Ann, the sister in Oslo")
    report = await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))
    assert "To restore lines in long-term files" in report.text


async def test_what_only_stands_in_a_conversation_can_be_forgotten(home: RealHome) -> None:
    await home.say(KEY, "my sister Ann lives in Oslo", "hello")
    await home.call(KEY, '{"new":"Ann is the sister"}', "t1")

    plan = await home.forgetter.plan("sister Ann", "owner")
    await home.forgetter.apply(plan)

    assert [said.seq for said in plan.messages] == [1, 5]
    assert (await home.forgetter.plan("sister Ann", "owner")).is_empty


async def test_what_was_set_aside_is_forgotten_as_well(home: RealHome) -> None:
    now, aside = home.clock.now(), "their sister Ann lives in Oslo: nothing says it"
    memory = home.memory()
    memory.history.append(
        HistoryEntry(0, now, "consolidation", KEY, 1, 1, "They like tea.", set_aside=(aside,))
    )

    await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))

    files = [*home.folder.rglob("history.jsonl"), *home.folder.rglob("HISTORY.md")]
    assert [path.read_text().count("Ann") for path in files] == [0, 0]
    assert all("like tea" in path.read_text() for path in files)


async def test_another_scope_is_left_alone(home: RealHome) -> None:
    await learn(home)
    await home.say("telegram:7", "my sister Ann lives in Oslo")
    await home.learn(ANN, scope=GUEST)

    await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))

    assert "Ann" in home.memory(GUEST).store.read("memory/MEMORY.md")
    assert not ForgottenFacts(home.memory(GUEST).root).hides_line(ANN)
    plan = await home.forgetter.plan("sister Ann", GUEST)
    assert {said.session for said in plan.messages} == {"telegram:7"}
    await home.forgetter.apply(plan)
    assert "Ann" not in home.memory(GUEST).store.read("memory/MEMORY.md")


async def test_many_facts_can_go_at_once_on_a_persons_word(home: RealHome) -> None:
    await home.learn(*(f"- Ann owns house number {number}00" for number in range(1, 9)))

    await home.forgetter.apply(await home.forgetter.plan("Ann", "owner"))

    assert "Ann" not in home.memory().store.read("memory/MEMORY.md")


async def test_doing_it_again_finishes_what_a_crash_cut_short(tmp_path: Path) -> None:
    clock = FakeClock()
    async with living(tmp_path / "home", clock) as home:
        await learn(home)
        plan = await home.forgetter.plan("sister Ann", "owner")
        assert plan.sought
        facts = plan.sought.facts
        ForgottenFacts(home.memory().root).add(clock.now(), b"salt", facts, {KEY: [1]}, ())
    async with living(tmp_path / "home", clock) as home:
        report = await home.forgetter.apply(await home.forgetter.plan("sister Ann", "owner"))
        assert "Forgotten:" in report.text
        assert (await home.forgetter.plan("sister Ann", "owner")).is_empty


async def test_a_miss_does_nothing(home: RealHome) -> None:
    await learn(home)
    plan = await home.forgetter.plan("sister Eve", "owner")
    assert plan.is_empty
    assert (await home.forgetter.apply(plan)).data["versions"] == []
    assert "Ann" in home.memory().store.read("memory/MEMORY.md")


@pytest.mark.parametrize("text", ["", "a", "the", "  "])
async def test_too_little_is_refused(home: RealHome, text: str) -> None:
    with pytest.raises(NanobotError):
        await home.forgetter.plan(text, "owner")


def test_a_damaged_record_hides_what_it_still_says(tmp_path: Path) -> None:
    root = Root(tmp_path)
    forgotten = ForgottenFacts(root)
    now = FakeClock().now()
    forgotten.add(now, b"1", [Fact.of(ANN)], {KEY: [1, 2]}, [4])
    path = tmp_path / FORGOTTEN
    path.write_bytes(b'nonsense\n{"salt":7}\n[]\n' + path.read_bytes())
    assert forgotten.hides_message(KEY, make_message(2))
    later = replace(make_message(2), timestamp=now + timedelta(seconds=1))
    assert not forgotten.hides_message(KEY, later)
    assert forgotten.hides_entry(4)
    assert forgotten.hides_line(ANN)


@pytest.mark.parametrize("ending", ["\u2028", "\u0085", "\x0b", "\x0c"])
async def test_a_line_goes_whole_whatever_breaks_it_inside(home: RealHome, ending: str) -> None:
    path = home.folder / "workspace" / "memory" / "MEMORY.md"
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"# Memory\n\n- Owns a boat{ending}it is called Qopuvi\n- Likes tea\n")
    await home.memory().store.append_today("tea")
    notes = home.folder / "workspace" / home.memory().store.today_path()
    notes.write_text(f"{notes.read_text()}- 10:00 paint the boat{ending}called Qopuvi\n")

    report = await home.forgetter.apply(await home.forgetter.plan("Qopuvi", "owner"))

    assert "Forgotten: 2 lines" in report.text
    assert path.read_text() == "# Memory\n\n- Likes tea\n"
    assert "Qopuvi" not in notes.read_text()


async def test_only_what_went_is_counted(home: RealHome) -> None:
    await home.learn(ANN, "- Likes Ann, the sister of Tom")
    plan = await home.forgetter.plan("sister Ann", "owner")
    assert len(plan.lines) == 2
    path = home.folder / "workspace" / "memory" / "MEMORY.md"
    path.write_text(path.read_text().replace(ANN, f"{ANN} now"))

    report = await home.forgetter.apply(plan)

    assert "Forgotten: 1 line," in report.text
    assert f"{ANN} now" in path.read_text()


@pytest.mark.parametrize(
    ("fact", "asked", "again", "other"),
    [
        ("- Die Schwester heißt Zoë und wohnt in Köln", "Zoe", "Zoe wohnt jetzt in Koeln", "Tom"),
        ("- Hat am Dienstag einen Zahnarzttermin", "Zahnarzt", "Der Zahnarzttermin ist am Dienstag",
         "Hat am Dienstag frei"),
        ("- Ma sœur habite à Lyon", "soeur", "Sa soeur habite Lyon", "Il habite à Lyon"),
        ("- 我养了一只狗", "狗", "我有一只狗", "我养了一只猫"),
        ("- У него есть кошка Мурка", "КОШКА", "кошки", "У него есть собака"),
    ],
)  # fmt: skip
async def test_what_was_forgotten_is_known_again_in_the_persons_language(
    home: RealHome, fact: str, asked: str, again: str, other: str
) -> None:
    await home.learn(fact)
    await home.forgetter.apply(await home.forgetter.plan(asked, "owner"))
    forgotten = ForgottenFacts(home.memory().root)
    assert fact not in home.memory().store.read("memory/MEMORY.md")
    assert forgotten.hides_line(again)
    assert not forgotten.hides_line(other)


async def test_a_paragraph_that_only_the_readable_history_has_is_forgotten_there(
    home: RealHome,
) -> None:
    cursor = await learn(home)
    file = home.memory().root.path / "memory" / "HISTORY.md"
    file.write_text(
        f"{file.read_text()}[2026-01-05 10:00] Sister Ann moved to\nOslo. They bought a desk.\n\n"
    )
    assert [text for text in await home.finds("Ann moved desk") if "moved to" in text]

    plan = await home.forgetter.plan("sister Ann", "owner")
    assert (plan.entries, len(plan.paragraphs)) == ((cursor,), 1)
    assert "memory/HISTORY.md, line 3: [2026-01-05 10:00] Sister Ann moved to" in plan.text
    assert "2 history entries" in plan.text
    await home.forgetter.apply(plan)

    assert "Ann" not in file.read_text()
    assert "They bought a desk." in file.read_text()
    assert not [text for text in await home.finds("Ann moved desk") if "Ann" in text]
    assert (await home.forgetter.plan("sister Ann", "owner")).is_empty
