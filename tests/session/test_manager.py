from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path

import pytest

from nanobot.errors import StorageError
from nanobot.testing import FakeClock
from tests.session.support import (
    FailingDisk,
    Open,
    asks,
    files_in,
    put,
    reply,
    result,
    say,
    texts,
    user,
)


def live(folder: Path, name: str = "cli_direct") -> Path:
    return folder / f"{name}.jsonl"


async def test_what_was_saved_is_there_in_the_next_process(managed: Open, folder: Path) -> None:
    session = await say(managed(), "cli:direct", "hello", asks("c1"), result("c1"), reply("hi"))
    session.set_metadata(model="m")
    other = await managed().get_or_create("cli:direct")
    assert other.messages == session.messages
    assert dict(other.metadata) == {}
    assert other.next_seq == 5
    assert other.created_at == session.created_at


async def test_a_new_file_begins_with_its_metadata_and_its_name_is_synced(
    managed: Open, folder: Path, disk: FailingDisk
) -> None:
    await say(managed(), "cli:direct", "hello")
    first = json.loads(live(folder).read_text().splitlines()[0])
    assert first["_type"] == "metadata"
    assert (first["key"], first["first_seq"], first["last_consolidated"]) == ("cli:direct", 1, 0)
    assert disk.steps == ["sync_folder", "write", "sync", "sync_folder"]
    assert live(folder).stat().st_mode & 0o777 == 0o600
    assert live(folder).parent.stat().st_mode & 0o777 == 0o700


async def test_saving_nothing_writes_nothing(managed: Open, folder: Path) -> None:
    manager = managed()
    await manager.save(await manager.get_or_create("cli:direct"))
    assert not files_in(folder)


async def test_many_sessions_share_a_pass_with_one_write_and_one_sync_each(
    managed: Open, disk: FailingDisk
) -> None:
    manager = managed()
    keys = [f"cli:{number}" for number in range(20)]
    for key in keys:
        await say(manager, key, "first")
    disk.steps.clear()
    waiting = []
    for key in keys:
        session = await manager.get_or_create(key)
        for text in "abc":
            session.add_message(user(text))
            waiting.append(manager.save(session))
    await asyncio.gather(*waiting)
    assert disk.steps.count("write") == disk.steps.count("sync") <= 60
    for key in keys:
        assert texts(list(managed().read_messages(key))) == ["first", "a", "b", "c"]


async def test_concurrent_callers_get_the_same_session(managed: Open, folder: Path) -> None:
    await say(managed(), "cli:direct", "x" * 600_000, "y")
    manager = managed()
    one, other = await asyncio.gather(
        manager.get_or_create("cli:direct"), manager.get_or_create("cli:direct")
    )
    assert one is other
    assert len(one.messages) == 2


async def test_a_file_that_an_editor_replaced_is_read_again(managed: Open, folder: Path) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", "my secret", "other")
    edited = live(folder).read_text().replace("my secret", "[redacted]")
    (folder / "new").write_text(edited)
    (folder / "new").replace(live(folder))
    assert await manager.get_or_create("cli:direct") is session
    assert texts(session.messages) == ["[redacted]", "other"]
    assert session.revision == 1


async def test_a_save_onto_an_edited_file_keeps_the_edit_and_the_turn(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", "one", "two")
    lines = live(folder).read_text().splitlines()
    live(folder).write_text("\n".join([lines[0], lines[2]]))  # no newline at the end
    session.add_message(user("three"))
    await manager.save(session)
    assert texts((await manager.get_or_create("cli:direct")).messages) == ["two", "three"]
    assert texts((await managed().get_or_create("cli:direct")).messages) == ["two", "three"]


async def test_a_deleted_file_is_an_empty_session_whose_numbers_go_on(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", "one", "two")
    live(folder).unlink()
    assert (await manager.get_or_create("cli:direct")).messages == ()
    await say(manager, "cli:direct", "three")
    assert [m.seq for m in session.messages] == [3]
    assert (await managed().get_or_create("cli:direct")).next_seq == 4


@pytest.mark.parametrize("garbage", [b"\x7fELF\x00\x01" * 50, b"\xff" * 9 + b"\n", b"dear diary\n"])
async def test_a_file_that_is_no_session_is_refused_and_left_alone(
    managed: Open, folder: Path, garbage: bytes
) -> None:
    put(folder, garbage)
    with pytest.raises(StorageError) as caught:
        await managed().get_or_create("cli:direct")
    assert "/new in that chat to set it aside" in caught.value.hint
    assert [path.read_bytes() for path in files_in(folder)] == [garbage]


async def test_a_folder_in_the_place_of_a_file_is_refused(managed: Open, folder: Path) -> None:
    live(folder).mkdir(parents=True)
    with pytest.raises(StorageError):
        await managed().get_or_create("cli:direct")


async def test_a_pipe_in_the_place_of_a_file_is_refused_at_once(
    managed: Open, folder: Path
) -> None:
    put(folder, b"").unlink()
    os.mkfifo(live(folder))
    with pytest.raises(StorageError, match="not a regular file"):
        await managed().get_or_create("cli:direct")


async def test_an_empty_file_is_a_new_session(managed: Open, folder: Path) -> None:
    put(folder, b"")
    await say(managed(), "cli:direct", "hello")
    assert texts((await managed().get_or_create("cli:direct")).messages) == ["hello"]
    assert json.loads(live(folder).read_text().splitlines()[0])["_type"] == "metadata"


async def test_a_message_of_ten_megabytes_passes(managed: Open) -> None:
    huge = "x" * 10_000_000
    await say(managed(), "cli:direct", huge, "after")
    session = await managed().get_or_create("cli:direct")
    assert [len(message.content) for message in session.messages] == [10_000_000, 5]


async def test_sessions_are_listed_newest_first_with_their_last_words(
    managed: Open, clock: FakeClock, folder: Path
) -> None:
    manager = managed()
    await say(manager, "telegram:1:2", "hello", reply("line one\nline two"), result("x"))
    clock.jump(60)
    await say(manager, "cli:my_chat", "x" * 200)
    await say(manager, "k" * 300, "z" * 100_000)
    (folder / "broken.jsonl").mkdir()
    infos = {info.key: info for info in manager.list_sessions()}
    assert set(infos) == {"telegram:1:2", "cli:my_chat", "k" * 300}
    assert list(infos)[-1] == "telegram:1:2"
    assert infos["telegram:1:2"].preview == "line one line two"
    assert len(infos["cli:my_chat"].preview) == 80
    assert infos["k" * 300].preview == ""
    assert infos["k" * 300].size > 100_000


async def test_a_copy_of_a_file_does_not_hide_the_session(managed: Open, folder: Path) -> None:
    manager = managed()
    await say(manager, "cli:direct", "hello")
    (folder / "a backup.jsonl").write_bytes(live(folder).read_bytes())
    (folder / "z backup.jsonl").write_bytes(live(folder).read_bytes())
    infos = {info.key: Path(info.place).name for info in manager.list_sessions()}
    assert infos["cli:direct"] == "cli_direct.jsonl"
    assert len(infos) == 3


async def test_files_of_other_programs_load(managed: Open, folder: Path) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "grep", "arguments": {"a": "b"}}}
    lines: list[dict[str, object]] = [
        {
            "_type": "metadata",
            "key": "telegram:1:2",
            "created_at": "2026-01-01T10:00:00",
            "updated_at": "2026-01-02T10:00:00",
            "metadata": {"x": 1},
            "last_consolidated": 2,
        },
        {"role": "user", "content": "old", "timestamp": "2026-01-01T10:00:00"},
        {"role": "assistant", "content": "old too", "timestamp": "2026-01-01T10:00:01"},
        {"role": "user", "content": [{"type": "text", "text": "ö\u2028"}], "reasoning": 1},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "name": "grep", "content": "found"},
        {"role": "assistant", "content": "done"},
    ]
    data = "\n".join(json.dumps(line, ensure_ascii=False) for line in lines) + "\n"
    put(folder, data.encode(), "telegram_1_2.jsonl")
    manager = managed()
    session = await manager.get_or_create("telegram:1:2")
    assert [m.seq for m in session.messages] == [3, 4, 5, 6]
    assert len(session.get_history(0)) == 4
    assert session.messages[0].content == "ö\u2028"
    assert session.messages[1].tool_calls[0].arguments == '{"a": "b"}'
    assert session.created_at.tzinfo
    await say(manager, "telegram:1:2", "new")
    assert [m.seq for m in (await managed().get_or_create("telegram:1:2")).messages][-1] == 7
    assert [path.name for path in files_in(folder)] == ["telegram_1_2.jsonl"]


@pytest.mark.parametrize("claimed", [99, -3, "x", None, True, 1.5])
async def test_a_wrong_count_of_other_programs_is_clamped(
    managed: Open, folder: Path, claimed: object
) -> None:
    metadata = {"_type": "metadata", "last_consolidated": claimed}
    lines = [metadata, {"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    put(folder, "".join(json.dumps(line) + "\n" for line in lines).encode())
    manager = managed()
    session = await manager.get_or_create("cli:direct")
    assert session.last_consolidated == (2 if claimed == 99 else 0)
    await say(manager, "cli:direct", "new")
    assert texts((await managed().get_or_create("cli:direct")).messages)[-1] == "new"


async def test_metadata_at_the_top_only_is_honoured(managed: Open, folder: Path) -> None:
    top = {"_type": "metadata", "key": "cli:direct", "last_consolidated": 5, "first_seq": 1}
    numbered = [{"role": "user", "content": str(n), "seq": n} for n in range(1, 9)]
    put(folder, "".join(json.dumps(line) + "\n" for line in [top, *numbered]).encode())
    session = await managed().get_or_create("cli:direct")
    assert texts(session.messages) == ["6", "7", "8"]


async def test_a_session_goes_on_after_thousands_of_others(managed: Open) -> None:
    manager = managed()
    held = await say(manager, "cli:direct", "one")
    for number in range(2_100):
        await manager.get_or_create(f"cli:{number}")
    assert await manager.get_or_create("cli:direct") is held
    await say(manager, "cli:direct", "two")
    assert texts(held.messages) == ["one", "two"]
    assert texts((await managed().get_or_create("cli:direct")).messages) == ["one", "two"]


async def test_many_open_sessions_hold_no_descriptors(managed: Open) -> None:
    manager = managed()
    before = len(files_in(Path("/proc/self/fd")))
    for number in range(50):
        await say(manager, f"cli:{number}", "x")
    assert len(files_in(Path("/proc/self/fd"))) <= before + 4


async def test_a_file_is_listed_from_memory_until_it_changes(managed: Open, folder: Path) -> None:
    manager = managed()
    await say(manager, "cli:direct", "hello")
    assert [info.preview for info in manager.list_sessions()] == ["hello"]
    state = live(folder).stat()
    live(folder).write_bytes(live(folder).read_bytes().replace(b"hello", b"HELLO"))
    os.utime(live(folder), ns=(state.st_atime_ns, state.st_mtime_ns))
    assert [info.preview for info in manager.list_sessions()] == ["hello"]
    await say(manager, "cli:direct", "more")
    assert [info.preview for info in manager.list_sessions()] == ["more"]
    live(folder).unlink()
    assert list(manager.list_sessions()) == []


@pytest.mark.parametrize("consolidated", [0, 1, 1_499, 2_600, 2_999])
async def test_of_a_long_file_all_is_read_that_is_not_consolidated(
    managed: Open, folder: Path, consolidated: int
) -> None:
    """The file has several of the blocks in which the start of the window is searched."""
    manager = managed()
    session = await manager.get_or_create("cli:direct")
    for number in range(1, 3_001):
        session.add_message(user(f"{number} {'x' * 300}"))
    await manager.save(session)
    await manager.mark_consolidated(session, consolidated)
    await say(manager, "cli:direct", "3001")
    again = await managed().get_or_create("cli:direct")
    wanted = list(range(consolidated + 1, 3_002))
    assert [int(text.split()[0]) for text in texts(again.messages)] == wanted
    assert again.next_seq == 3_002
