"""Titles: the first words of a person since the newest `/new`, unless a title was given."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.errors import StorageError
from nanobot.messages import Attachment, Message
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.session.titles import first_words, plain_line, read_title
from tests.growth import assert_linear
from tests.session.support import FailingDisk, Open, files_in, reply, say, texts, user

KEY = "telegram:1"


def title(manager: SessionManager, key: str = KEY) -> str:
    return next(one.title for one in manager.list_sessions() if one.key == key)


async def turn(manager: SessionManager, *messages: Message | str, key: str = KEY) -> Session:
    """Store messages as a turn does."""
    session = await manager.get_or_create(key)
    for message in messages:
        session.add_message(user(message) if isinstance(message, str) else message)
    session.stage_use()
    await manager.save(session)
    return session


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("# Plan\n\n- **buy** milk", "Plan buy milk"),
        ("see [the page](https://example.org/a_b) and `rm -rf`", "see the page and rm -rf"),
        ("> quoted\nsnake_case_name * 2 * 3", "quoted snake_case_name * 2 * 3"),
        ("```python\nprint(1)\n```", "print(1)"),
        ("- [x] done\n1. first", "done first"),
        ("東京の天気は?", "東京の天気は?"),
        ("\x1b[31mred\u202e", "red"),
        ("word " * 100, "word " * 15 + "word…"),
    ],
)
def test_a_title_is_one_line_without_markdown(text: str, plain: str) -> None:
    assert plain_line(text) == plain
    assert len(plain_line(text)) <= 80


@pytest.mark.parametrize(
    "unit", ["\n", " ", " \n", "\n---", "|", "[", "[](", "***", "`a", "- ", "_"]
)
def test_a_hostile_beginning_does_not_stop_the_event_loop(unit: str) -> None:
    first_words(user(f"a{(unit * 2_000)[:1_990]}b"))
    assert_linear(lambda times: plain_line(f"a{unit * times}b"), 6_000)


def test_a_title_that_a_program_or_a_person_wrote_into_the_file_is_one_plain_line() -> None:
    assert read_title({"title": "a\u202eb\x1b[31m\nc" + "z" * 1_000_000}, 0) == f"ab c{'z' * 75}…"
    assert read_title({"title": 5, "opening": {"seq": 1, "text": "b\x07c"}}, 0) == "bc"
    assert read_title({"title": "Ünï"}, 0) == "Ünï"


async def test_the_title_is_the_first_message_with_words(managed: Open) -> None:
    manager = managed()
    picture = replace(user(""), media=(Attachment("a" * 32 + ".png", "image"),), origin="attached")
    note = Message("user", "", notice="[nanobot: stopped]", origin="nanobot")
    await turn(manager, picture, note, reply("A cat."))
    assert title(manager) == ""
    await turn(manager, "[from Ann]\nWhat *is* it?", reply("Still a cat."))
    assert title(manager) == "What is it?"
    await turn(manager, "And now?", reply("A dog."))
    assert title(manager) == title(managed()) == "What is it?"


async def test_new_begins_another_title_and_a_given_one_stays(managed: Open) -> None:
    manager = managed()
    session = await turn(manager, "first", reply("ok"))
    session.clear("1")
    await manager.save(session)
    assert title(manager) == ""
    await turn(manager, "second", reply("ok"))
    assert title(manager) == title(managed()) == "second"
    await manager.change_metadata(session, title="Mine")
    assert title(managed()) == "Mine"
    await manager.change_metadata(session, title=None)
    assert title(managed()) == "second"


async def test_the_title_survives_the_archive(managed: Open) -> None:
    manager = managed(live_limit=2)
    session = await turn(manager, "the beginning", reply("ok"))
    for number in range(5):
        await turn(manager, f"more {number}", reply("ok"))
    await manager.mark_consolidated(session, session.next_seq - 1)
    await manager.archive(session)
    assert session.first_seq == session.next_seq
    assert title(manager) == title(managed()) == "the beginning"


async def test_retracted_words_are_no_title(managed: Open) -> None:
    manager = managed()
    await turn(manager, user("my secret", "t1"), reply("ok", "t1"))
    session = await turn(manager, user("the weather", "t2"), reply("ok", "t2"))
    await manager.retract(session, [1])
    assert title(manager) == title(managed()) == "the weather"
    assert "secret" not in str(dict(session.metadata))
    session.retract("t2")
    await manager.save(session)
    assert title(managed()) == ""
    await turn(manager, "new words", reply("ok"))
    assert title(managed()) == "new words"


async def test_the_title_is_known_while_the_first_turn_runs(managed: Open) -> None:
    manager = managed()
    session = await manager.get_or_create(KEY)
    session.set_metadata(scope="owner")
    session.stage_use(user("a deleted message"))
    await manager.save(session)
    assert title(manager) == title(managed()) == "a deleted message"
    session.stage_use(user("a message"))  # nothing else is staged
    assert not session.has_staged
    await turn(manager, "another message", reply("ok"))  # the first one was never stored
    assert title(manager) == title(managed()) == "another message"


async def test_files_of_earlier_versions_have_titles(managed: Open, folder: Path) -> None:
    manager = managed()
    await say(manager, "cli:short", "# Hello *there*", reply("hi"))
    assert title(manager, "cli:short") == "Hello there"
    await say(manager, "cli:long", "the beginning", *(reply("x" * 10_000) for _ in range(9)))
    assert title(manager, "cli:long") == "the beginning"
    (folder / "cli_foreign.jsonl").write_text('{"role": "user", "content": "from elsewhere"}\n')
    assert title(manager, "cli:foreign") == "from elsewhere"


async def test_a_change_of_metadata_survives_what_the_running_turn_staged(managed: Open) -> None:
    manager = managed()
    session = await say(manager, KEY, "hello")
    session.set_metadata(scope="owner")
    session.add_message(user("again"))
    await manager.change_metadata(session, pinned=True, title="Mine")
    assert not session.messages[1:]
    await manager.save(session)
    for one in (session, await managed().get_or_create(KEY)):
        assert dict(one.metadata) == {"scope": "owner", "pinned": True, "title": "Mine"}
        assert len(one.messages) == 2


async def test_pinned_ones_come_first_and_archived_ones_on_request(managed: Open) -> None:
    manager = managed()
    for name in ("a", "b", "c", "d"):
        await say(manager, f"cli:{name}", "hello")
    await manager.change_metadata(await manager.get_or_create("cli:a"), pinned=True)
    await manager.change_metadata(await manager.get_or_create("cli:c"), archived=True)

    def keys(*, archived: bool | None = None) -> list[str]:
        return [one.key for one in managed().list_sessions(archived=archived)]

    assert keys(archived=False)[0] == "cli:a"
    assert set(keys(archived=False)) == {"cli:a", "cli:b", "cli:d"}
    assert keys(archived=True) == ["cli:c"]
    assert len(keys()) == 4
    counts = [manager.count_by_scope(archived=archived) for archived in (False, True)]
    assert (counts, manager.count()) == ([{None: 3}, {None: 1}], 4)
    assert next(iter(managed().list_sessions(archived=False, most=1))).key == "cli:a"


async def test_a_deleted_conversation_leaves_only_its_numbers(managed: Open, folder: Path) -> None:
    manager = managed(live_limit=2)
    session = await turn(manager, "a secret", reply("ok"), reply("more"))
    await manager.mark_consolidated(session, 3)
    await manager.archive(session)
    await manager.delete(session)
    assert not session.messages
    assert not list(manager.list_sessions())
    assert not list(managed().list_sessions())
    assert not any(b"secret" in path.read_bytes() for path in files_in(folder, "**/*.jsonl"))
    assert [m.seq for m in (await turn(manager, "again", reply("ok"))).messages] == [4, 5]
    assert title(managed()) == "again"


async def test_a_deletion_that_the_disk_refuses_can_be_repeated(
    managed: Open, disk: FailingDisk
) -> None:
    manager = managed()
    session = await turn(manager, "a secret", reply("ok"))
    disk.broken.add("rename")
    with pytest.raises(StorageError):
        await manager.delete(session)
    assert texts((await manager.get_or_create(KEY)).messages) == ["a secret", "ok"]
    disk.broken.clear()
    await manager.delete(session)
    assert not (await manager.get_or_create(KEY)).messages
    assert not list(managed().list_sessions())
