"""Contract of the session store, tested through its sessions."""

from __future__ import annotations

import asyncio

import pytest

from nanobot.errors import UnknownSession
from nanobot.messages import Message
from nanobot.session.records import Mark, encode
from tests.session.support import Open, reply, say, texts, user


async def test_everything_about_a_session_survives(managed: Open) -> None:
    manager = managed()
    session = await manager.get_or_create("telegram:1")
    for turn in "123":
        session.add_message(user(f"ask {turn}", turn))
        session.add_message(reply(f"answer {turn}", turn))
    await manager.save(session)
    session.retract("2")
    manager.mark_consolidated(session, 1)
    session.set_metadata(model="m", tone=None)
    await manager.save(session)
    other = await managed().get_or_create("telegram:1")
    assert texts(other.messages) == ["answer 1", "ask 3", "answer 3"]
    assert (other.last_consolidated, dict(other.metadata)) == (1, {"model": "m"})
    session.clear("in-7")
    await manager.save(session)
    session.add_message(user("fresh"))
    await manager.save(session)
    again = await managed().get_or_create("telegram:1")
    assert texts(again.messages) == ["fresh"]
    assert (again.epoch, again.next_seq) == (session.epoch, 8)
    assert len(list(manager.read_messages("telegram:1"))) == 7


async def test_saved_messages_are_visible_before_the_disk_has_them(managed: Open) -> None:
    manager = managed()
    session = await manager.get_or_create("cli:direct")
    session.add_message(user("hello"))
    session.set_metadata(scope="owner")
    saved = manager.save(session)
    assert texts(session.messages) == ["hello"]
    assert not saved.done()
    assert manager.metadata_of("cli:direct") == {"scope": "owner"}
    assert texts(list(manager.read_messages("cli:direct"))) == ["hello"]
    assert [info.key for info in manager.list_sessions()] == ["cli:direct"]
    assert [info.metadata for info in manager.list_sessions()] == [{"scope": "owner"}]
    assert manager.count() == 1
    await saved
    assert [info.metadata for info in managed().list_sessions()] == [{"scope": "owner"}]
    assert managed().count() == 1
    session.set_metadata(scope="cli:2")
    saved = manager.save(session)
    assert [info.metadata for info in manager.list_sessions()] == [{"scope": "cli:2"}]
    await saved


async def test_a_session_someone_holds_is_never_loaded_twice(managed: Open) -> None:
    manager = managed(capacity=2)
    held = await say(manager, "cli:held", "a")
    for number in range(5):
        await say(manager, f"cli:{number}", "x")
    assert await manager.get_or_create("cli:held") is held
    many = await asyncio.gather(*(managed().get_or_create("cli:held") for _ in range(3)))
    assert texts(many[0].messages) == ["a"]


async def test_an_unknown_session_names_the_nearest(managed: Open) -> None:
    manager = managed()
    await say(manager, "telegram:12345", "hello")
    with pytest.raises(UnknownSession) as caught:
        manager.read_messages("telegram:12354")
    assert "telegram:12345" in caught.value.hint


async def test_messages_are_read_by_number(managed: Open) -> None:
    manager = managed()
    await say(manager, "cli:direct", *"abcde")
    assert texts(list(manager.read_messages("cli:direct", 2, 4))) == ["b", "c", "d"]


async def test_closing_writes_what_is_queued_and_then_takes_no_more(managed: Open) -> None:
    manager = managed()
    session = await manager.get_or_create("cli:direct")
    session.add_message(user("last words"))
    saved = manager.save(session)
    await manager.close()
    assert saved.done()
    assert texts(list(managed().read_messages("cli:direct"))) == ["last words"]
    session.add_message(user("too late"))
    with pytest.raises(RuntimeError):
        manager.save(session)


async def test_messages_with_odd_characters_come_back(managed: Open) -> None:
    odd = Message("user", "\ud800\u2028\x85\r\n\x00é", origin="web\udfff")
    await say(managed(), "cli:\ud800", odd)
    (back,) = (await managed().get_or_create("cli:\ud800")).messages
    assert (back.content, back.origin) == (odd.content, odd.origin)


async def test_a_line_that_was_staged_before_memory_took_messages_takes_none_back(
    managed: Open,
) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", "one", reply("1"), "two", reply("2"))
    session.set_metadata(model="m")
    manager.mark_consolidated(session, 2)
    await manager.save(session)
    other = await managed().get_or_create("cli:direct")
    assert other.last_consolidated == 2
    assert other.messages == session.messages
    assert dict(other.metadata) == {"model": "m"}


async def test_the_listing_tells_what_was_sealed_and_consolidated(managed: Open) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", "one", reply("1"), "two", reply("2"))
    manager.mark_consolidated(session, 2)
    session.clear("7")
    await manager.save(session)
    await say(manager, "cli:direct", "x" * 200_000)
    await say(manager, "cli:other", "hello")
    infos = {info.key: info for info in manager.list_sessions()}
    assert (infos["cli:direct"].epoch_seq, infos["cli:direct"].last_consolidated) == (4, 2)
    assert (infos["cli:other"].epoch_seq, infos["cli:other"].last_consolidated) == (0, 0)
    assert infos["cli:other"].last_seq == 1
    assert [info.key for info in manager.list_sessions(sealed=True)] == ["cli:direct"]
    await manager.mark_consolidated(session, 4)
    assert list(manager.list_sessions(sealed=True)) == []


async def test_what_is_archived_can_still_be_read_and_numbers_go_on(managed: Open) -> None:
    manager = managed(live_limit=2)
    session = await say(manager, "cli:direct", *"abcde")
    await manager.mark_consolidated(session, 4)
    await manager.archive(session)
    await say(manager, "cli:direct", "f")
    for each in (manager, managed()):
        assert texts(list(each.read_messages("cli:direct"))) == list("abcdef")
        again = await each.get_or_create("cli:direct")
        assert (texts(again.messages), again.next_seq) == (["e", "f"], 7)
    assert (await managed().get_or_create("cli:direct")).first_seq == 5


async def test_lines_of_the_journal_are_restored_once(managed: Open) -> None:
    session = await managed().get_or_create("cli:direct")
    session.add_message(user("one"))
    session.add_message(reply("two"))
    lines = session.encode_staged()
    for _ in range(2):
        await managed().restore("cli:direct", lines)
    assert texts(list(managed().read_messages("cli:direct"))) == ["one", "two"]


async def test_every_line_can_be_rewritten_and_the_session_is_read_again(managed: Open) -> None:
    manager = managed(live_limit=1)
    session = await say(manager, "cli:direct", "my secret", "b", "my secret too")
    await manager.mark_consolidated(session, 2)
    await manager.archive(session)
    changed = await manager.rewrite("cli:direct", lambda line: line.replace("secret", "[gone]"))
    assert changed == 2
    assert texts(session.messages) == ["my [gone] too"]
    told = texts(list(managed().read_messages("cli:direct")))
    assert told == ["my [gone]", "b", "my [gone] too"]
    assert await manager.rewrite("cli:direct", lambda line: line) == 0


async def test_marks_to_keep_survive_and_the_last_one_counts(managed: Open) -> None:
    manager = managed(live_limit=3)
    session = await say(manager, "telegram:1", *(f"m{number}" for number in range(1, 9)))
    before = session.revision
    for seq, kept in ((2, True), (4, True), (4, False), (8, True)):
        await manager.mark(session, seq, kept=kept, by="7", via="/note")
    assert [m.seq for m in session.messages if m.kept] == [2, 8]
    assert session.revision == before  # no prompt changes
    manager.mark_consolidated(session, 7)
    await manager.archive(session)
    await manager.mark(session, 5, kept=True, by="7", via="/note")
    again = managed()
    assert [m.seq for m in (await again.get_or_create("telegram:1")).messages if m.kept] == [8]
    assert [m.seq for m in again.read_window("telegram:1") if m.kept] == [2, 5, 8]
    assert [m.seq for m in again.read_window("telegram:1", 5, 6) if m.kept] == [5]


@pytest.mark.parametrize("consolidated", [0, 3, 6])
async def test_no_conversation_is_read_over_new_wherever_it_is_kept(
    managed: Open, consolidated: int
) -> None:
    manager = managed(live_limit=0)
    session = await say(manager, "telegram:1", "m1", "m2")
    session.clear("1")
    await say(manager, "telegram:1", "m3", "m4")
    session.clear("2")
    await say(manager, "telegram:1", "m5", "m6", "m7")
    if consolidated:
        manager.mark_consolidated(session, consolidated)
        await manager.archive(session)

    again = managed()
    assert again.epochs("telegram:1", 1, 7) == [2, 4]
    assert again.epochs("telegram:1", 3, 3) == []
    read = again.read_conversation
    assert [m.seq for m in read("telegram:1", 7, 7, 100)] == [5, 6, 7]
    assert [m.seq for m in read("telegram:1", 7, 7, 1)] == [6, 7]
    assert [m.seq for m in read("telegram:1", 5, 6, 100)] == [5, 6]
    assert [m.seq for m in read("telegram:1", 4, 4, 100)] == [3, 4]
    assert [m.seq for m in read("telegram:1", 2, 2, 100)] == [1, 2]


async def test_a_mark_that_a_crash_kept_from_the_file_is_restored(managed: Open) -> None:
    manager = managed(live_limit=1)
    session = await say(manager, "telegram:1", "m1", "m2", "m3")
    manager.mark_consolidated(session, 2)
    await manager.archive(session)
    line = encode(Mark(1, True, "7", "/note", None))
    for _ in range(2):
        await managed().restore("telegram:1", line)
    assert [m.seq for m in managed().read_window("telegram:1") if m.kept] == [1]


async def test_what_was_said_just_now_is_listed_however_old_a_list_may_be(managed: Open) -> None:
    manager, wanted = managed(), dict[str, str]()
    for number in range(3):
        for key in (f"cli:{number}", "cli:again"):
            wanted[key] = f"number {number}"
            await say(manager, key, wanted[key])
            listed = manager.list_sessions(within=60.0)
            assert {info.key: info.preview for info in listed} == wanted


async def test_a_conversation_that_is_set_aside_is_kept_whole_and_another_begins(
    managed: Open,
) -> None:
    manager = managed(live_limit=1)
    session = await manager.get_or_create("telegram:7")
    for turn in "123":
        session.add_message(user(f"ask {turn}", turn))
        session.add_message(reply(f"answer {turn}", turn))
    session.set_metadata(name="Ann")
    await manager.save(session)
    await manager.mark_consolidated(session, 4)
    await manager.archive(session)
    await manager.set_aside(session, scope="people/telegram_7")
    held = session.key
    session.add_message(reply("late", "3"))
    await manager.save(session)
    new = await manager.get_or_create("telegram:7")
    assert (texts(new.messages), dict(new.metadata), new.next_seq) == ([], {}, 7)
    new.add_message(user("fresh"))
    await manager.save(new)
    for again in (manager, managed()):
        old = await again.get_or_create(held)
        assert dict(old.metadata) == {"name": "Ann", "scope": "people/telegram_7"}
        assert texts(old.messages) == ["ask 3", "answer 3", "late"]
        assert len(list(again.read_messages(held))) == 7
        fresh = await again.get_or_create("telegram:7")
        assert texts(fresh.messages) == texts(list(again.read_messages("telegram:7"))) == ["fresh"]
        assert {info.key for info in again.list_sessions()} == {held, "telegram:7"}
