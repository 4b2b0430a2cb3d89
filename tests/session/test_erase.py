"""Guarantees of sessions about retracted messages and erased texts."""

from __future__ import annotations

import asyncio
import json
import threading
from pathlib import Path
from typing import Any

import pytest

from nanobot.errors import StorageError
from nanobot.io import FileOps
from nanobot.memory.matcher import ERASED, TextMatcher
from nanobot.messages import Message
from nanobot.session.archive import records_of, rewrite, rewrite_file
from nanobot.session.records import Record, decode, encode
from tests.session.support import FailingDisk, Open, reply, say, texts

SECRET = "walrus-4711"


def redact(line: str) -> str:
    return line.replace(SECRET, "[erased]")


def bytes_below(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_a_retracted_message_leaves_the_window_and_stays_in_the_file(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", "one", reply("1"), "two", reply("2"))
    revision = session.revision

    await manager.retract(session, [3])

    assert texts(session.messages) == ["one", "1", "2"]
    assert session.revision != revision
    again = await managed().get_or_create("cli:direct")
    assert texts(again.messages) == ["one", "1", "2"]
    assert texts(manager.read_window("cli:direct")) == ["one", "1", "2"]
    assert texts(list(manager.read_messages("cli:direct"))) == ["one", "1", "two", "2"]


@pytest.mark.parametrize("as_ascii", [True, False])
def test_an_erasure_finds_both_spellings_of_a_letter(tmp_path: Path, as_ascii: bool) -> None:
    said = "\ud800 我的密码是海象, ganz früher\u2028\x85"
    path = tmp_path / "cli_direct.jsonl"
    line = {"role": "user", "content": said, "seq": 1}
    path.write_text(json.dumps(line) + "\n" if as_ascii else encode(Message("user", said, seq=1)))

    assert rewrite_file(FileOps(), path, TextMatcher("密码是海象").redact) == 1

    record = decode(path.read_bytes().rstrip(b"\n"))
    assert isinstance(record, Message)
    assert record.content == said.replace("密码是海象", ERASED)
    assert path.read_bytes().count(b"\n") == len(path.read_text().splitlines()) == 1


async def test_archived_messages_can_be_retracted(managed: Open) -> None:
    manager = managed(live_limit=0)
    session = await say(manager, "cli:direct", "one", reply("1"), "two", reply("2"))
    manager.mark_consolidated(session, 2)
    await manager.archive(session)

    await manager.retract(session, [1])

    assert texts(manager.read_window("cli:direct")) == ["1", "two", "2"]


async def test_retracting_works_while_a_turn_is_under_way(managed: Open) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", "one", reply("1"))
    session.add_message(reply("staged"))

    await manager.retract(session, [1])
    await manager.save(session)

    assert texts(session.messages) == ["1", "staged"]
    assert texts((await managed().get_or_create("cli:direct")).messages) == ["1", "staged"]


async def test_live_and_archived_lines_are_rewritten_and_the_open_session_follows(
    managed: Open, folder: Path
) -> None:
    manager = managed(live_limit=0)
    session = await say(manager, "cli:direct", f"old {SECRET}", reply("1"), f"new {SECRET}")
    manager.mark_consolidated(session, 2)
    await manager.archive(session)
    revision = session.revision

    assert await manager.rewrite("cli:direct", redact) == 2

    assert SECRET.encode() not in bytes_below(folder)
    assert texts(session.messages) == ["new [erased]"]
    assert session.revision != revision
    assert await manager.rewrite("cli:direct", redact) == 0


async def test_a_turn_saved_at_the_same_time_is_neither_lost_nor_left_out(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await say(manager, "cli:direct", f"old {SECRET}")
    session.add_message(reply(f"and {SECRET}"))
    saved = manager.save(session)

    await asyncio.gather(saved, manager.rewrite("cli:direct", redact))
    await say(manager, "cli:direct", "later")

    again = await managed().get_or_create("cli:direct")
    assert texts(again.messages) == ["old [erased]", "and [erased]", "later"]
    assert SECRET.encode() not in bytes_below(folder)


async def test_lines_without_the_text_stay_byte_for_byte(managed: Open, folder: Path) -> None:
    manager = managed()
    await say(manager, "cli:direct", "ünïcode", f"x {SECRET}", "y")
    path = folder / "cli_direct.jsonl"
    before = path.read_bytes().splitlines()

    await manager.rewrite("cli:direct", redact)

    after = path.read_bytes().splitlines()
    assert [one == other for one, other in zip(before, after, strict=True)] == [1, 1, 0, 1]


async def test_a_crash_at_any_step_leaves_whole_files_and_a_second_run_finishes(
    managed: Open, folder: Path, disk: FailingDisk
) -> None:
    manager = managed(live_limit=0)
    session = await say(manager, "cli:direct", f"old {SECRET}", reply("1"), f"new {SECRET}")
    manager.mark_consolidated(session, 2)
    await manager.archive(session)
    path, archive = folder / "cli_direct.jsonl", folder / "archive" / "cli_direct"
    originals = {file: file.read_bytes() for file in (path, archive / "0001.jsonl")}

    broken = FailingDisk()
    for step in range(20):
        for file, content in originals.items():
            file.write_bytes(content)
        broken.steps, broken.fail_at = [], step
        try:
            rewrite(broken, path, archive, redact)
        except StorageError:
            lines = texts(list(managed().read_messages("cli:direct")))
            assert [line.replace(SECRET, "[erased]") for line in lines] == [
                "old [erased]", "1", "new [erased]",
            ]  # fmt: skip
            rewrite(FileOps(), path, archive, redact)
        assert SECRET.encode() not in bytes_below(folder)
    assert broken.fail_at > len(broken.steps)


async def test_a_session_that_cannot_be_rewritten_is_an_error(
    managed: Open, disk: FailingDisk
) -> None:
    manager = managed()
    await say(manager, "cli:direct", SECRET)
    disk.broken = {"rename"}
    with pytest.raises(StorageError):
        await manager.rewrite("cli:direct", redact)


async def test_what_is_retracted_while_the_window_is_read_is_not_in_it(
    managed: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed(gather=0.05)
    session = await say(manager, "cli:direct", "one", "two")
    number = session.messages[0].seq
    assert number is not None
    retracting = asyncio.ensure_future(manager.retract(session, [number]))
    await asyncio.sleep(0)
    loop, read = asyncio.get_running_loop(), records_of

    def slow(*where: Any) -> list[Record]:
        found = list(read(*where))
        asyncio.run_coroutine_threadsafe(wait_for(retracting), loop).result(10)
        return found

    monkeypatch.setattr("nanobot.session.jsonl_store.records_of", slow)
    assert texts(await asyncio.to_thread(manager.read_window, "cli:direct")) == ["two"]


async def wait_for(task: asyncio.Future[None]) -> None:
    await task


async def test_a_rewrite_that_is_cancelled_before_it_begins_changes_nothing_and_delays_no_other(
    managed: Open,
) -> None:
    manager, begun, may_end = managed(), threading.Event(), threading.Event()
    for key in ("cli:1", "cli:2", "cli:3"):
        await say(manager, key, SECRET)

    def block(line: str) -> str:
        begun.set()
        may_end.wait(10)
        return redact(line)

    first = asyncio.ensure_future(manager.rewrite("cli:1", block))
    await asyncio.to_thread(begun.wait, 10)
    second = asyncio.ensure_future(manager.rewrite("cli:2", redact))
    await asyncio.sleep(0)
    second.cancel()
    await asyncio.wait((second,))
    may_end.set()

    assert (await first, await manager.rewrite("cli:3", redact)) == (1, 1)
    assert texts(manager.read_window("cli:2")) == [SECRET]
