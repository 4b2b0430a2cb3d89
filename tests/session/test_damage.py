"""Files damaged by a crash, a bad disk or by hand."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.errors import StorageError
from nanobot.messages import Message
from nanobot.session.manager import SessionManager
from nanobot.session.records import Metadata, encode
from nanobot.testing import FakeClock
from tests.session.support import (
    NOON,
    MemoryDisk,
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

KEY = "cli:direct"


def number_lines(*messages: Message) -> list[bytes]:
    metadata = Metadata(KEY, NOON, NOON, first_seq=1)
    stored = [
        Message(m.role, m.content, NOON, at, m.tool_calls, m.tool_call_id, m.name)
        for at, m in enumerate(messages, 1)
    ]
    return [encode(metadata).encode(), *(encode(message).encode() for message in stored)]


async def test_a_tail_cut_at_any_byte_costs_nothing_before_it_and_the_next_append_is_fine(
    folder: Path, clock: FakeClock
) -> None:
    lines = number_lines(user("one"), user("two"), asks("c"), result("c", "ä"))
    whole = b"".join(lines)
    kept_for_sure = b"".join(lines[:-2])
    for cut in range(len(kept_for_sure), len(whole) + 1):
        path = put(folder, whole[:cut])
        manager = SessionManager(folder, clock, files=MemoryDisk())
        session = await manager.get_or_create(KEY)
        complete = whole[: cut + 1].count(b"\n") - 1  # a line without its newline counts
        assert len(session.messages) == complete
        assert texts(session.get_history(0))[:2] == ["one", "two"]
        aside = [other.read_bytes() for other in files_in(folder) if other != path]
        assert path.read_bytes() + b"".join(aside) == whole[:cut]
        await say(manager, KEY, "next")
        await manager.close()
        again = await SessionManager(folder, clock, files=MemoryDisk()).get_or_create(KEY)
        assert len(again.messages) == complete + 1
        assert again.messages[-1].content == "next"
        assert again.messages[-1].seq == complete + 1


async def test_a_new_file_cut_at_any_byte_becomes_a_new_session(
    folder: Path, clock: FakeClock
) -> None:
    whole = number_lines()[0]
    for cut in range(len(whole)):
        put(folder, whole[:cut])
        manager = SessionManager(folder, clock, files=MemoryDisk())
        await say(manager, KEY, "next")
        await manager.close()
        assert texts(
            (await SessionManager(folder, clock, files=MemoryDisk()).get_or_create(KEY)).messages
        ) == ["next"]


async def test_a_torn_line_is_set_aside_by_the_next_append_with_one_warning(
    managed: Open, folder: Path, warnings: list[str]
) -> None:
    torn = b"".join(number_lines(user("one"))) + b'{"role":"user","content":"ha'
    path = put(folder, torn)
    assert texts((await managed().get_or_create(KEY)).messages) == ["one"]
    assert path.read_bytes() == torn
    warnings.clear()
    manager = managed()
    for text in ("two", "three"):
        await say(manager, KEY, text)
    (aside,) = [other for other in files_in(folder) if other != path]
    assert aside.name == "cli_direct.jsonl.corrupt-20260302T090000"
    assert aside.read_bytes() == b'{"role":"user","content":"ha'
    assert len([line for line in warnings if aside.name in line]) == 1
    path.write_bytes(path.read_bytes() + b'{"more":')
    await say(manager, KEY, "four")
    assert files_in(folder)[-1].name == f"{aside.name}-1"
    stored = (await managed().get_or_create(KEY)).messages
    assert texts(stored) == ["one", "two", "three", "four"]


async def test_a_tail_that_is_torn_while_the_session_is_open_is_set_aside_at_append(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await say(manager, KEY, "one")
    path = folder / "cli_direct.jsonl"
    path.write_bytes(path.read_bytes() + b'{"content":"us')
    session.add_message(user("two"))
    await manager.save(session)
    assert texts((await managed().get_or_create(KEY)).messages) == ["one", "two"]
    assert len(files_in(folder, "*.corrupt-*")) == 1


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
async def test_flipped_bytes_cost_the_lines_they_are_in_and_no_other(
    folder: Path, clock: FakeClock, data: st.DataObject
) -> None:
    said = ("one", "two", "three", "four", "five", "six", "seven")  # no flip turns one into another
    lines = number_lines(*map(user, said))
    at = data.draw(st.integers(2, 6))
    where = data.draw(st.integers(0, len(lines[at]) - 2))
    flipped = bytearray(lines[at])
    flipped[where] ^= data.draw(st.integers(1, 255))
    before = b"".join([*lines[:at], bytes(flipped), *lines[at + 1 :]])
    path = put(folder, before)
    manager = SessionManager(folder, clock, files=MemoryDisk())
    session = await manager.get_or_create(KEY)
    unharmed = [text for n, text in enumerate(said, 1) if n != at]
    assert [text for text in texts(session.messages) if text in unharmed] == unharmed
    await say(manager, KEY, "next")
    await manager.close()
    assert path.read_bytes().startswith(before)
    again = await SessionManager(folder, clock, files=MemoryDisk()).get_or_create(KEY)
    assert texts(again.messages) == texts(session.messages)


async def test_broken_lines_are_skipped_with_one_warning_and_stay_in_the_file(
    managed: Open, folder: Path, warnings: list[str]
) -> None:
    lines = number_lines(user("one"), user("two"), user("three"))
    lines[2] = b"%%%\n\n"
    lines.insert(2, b"\xff\xfe\x00\n")
    path = put(folder, b"".join(lines))
    session = await say(managed(), KEY, "four")
    assert texts(session.messages) == ["one", "three", "four"]
    assert len(warnings) == 1
    assert path.read_bytes().startswith(b"".join(lines))


async def test_a_line_that_was_pasted_twice_counts_once(managed: Open, folder: Path) -> None:
    lines = number_lines(user("one"), reply("two"), user("three"))
    put(folder, b"".join([*lines, lines[2], lines[3]]))
    session = await managed().get_or_create(KEY)
    assert texts(session.messages) == ["one", "two", "three"]


@pytest.mark.parametrize("ending", [b"\r\n", b"\n", b"\n\n"])
async def test_line_ends_of_other_systems_are_understood(
    managed: Open, folder: Path, ending: bytes
) -> None:
    lines = number_lines(user("one"), user("two"))
    put(folder, b"".join(line.rstrip(b"\n") + ending for line in lines))
    session = await managed().get_or_create(KEY)
    assert texts(session.messages) == ["one", "two"]


@pytest.mark.parametrize("cut", range(8))
async def test_a_restored_turn_is_there_once_whatever_the_crash_left(
    folder: Path, clock: FakeClock, cut: int
) -> None:
    """The crash left an eighth more of the turn's bytes each time."""
    manager = SessionManager(folder, clock, files=MemoryDisk())
    session = await say(manager, KEY, "before")
    for message in (user("ask", "t"), asks("c", turn_id="t"), result("c"), reply("x", "t")):
        session.add_message(message)
    session.set_metadata(model="m")
    lines = session.encode_staged()
    path = folder / "cli_direct.jsonl"
    start = path.read_bytes()
    batch = lines.encode()
    for end in range(cut * len(batch) // 8, (cut + 1) * len(batch) // 8 + 1):
        put(folder, start + batch[:end])
        fresh = SessionManager(folder, clock, files=MemoryDisk())
        await fresh.restore(KEY, lines)
        await fresh.restore(KEY, lines)
        assert path.read_bytes() == start + batch
    restored = await SessionManager(folder, clock, files=MemoryDisk()).get_or_create(KEY)
    assert texts(restored.messages) == ["before", "ask", "", "ok", "x"]
    await manager.close()


async def test_a_turn_is_restored_into_a_file_that_was_never_made(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await manager.get_or_create(KEY)
    session.add_message(user("hello"))
    lines = session.encode_staged()
    await managed().restore(KEY, lines)
    await managed().restore(KEY, lines)
    assert texts((await managed().get_or_create(KEY)).messages) == ["hello"]
    assert len((folder / "cli_direct.jsonl").read_text().splitlines()) == 2


async def test_several_turns_are_restored_in_order_and_earlier_ones_are_known(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await manager.get_or_create(KEY)
    batches = []
    for turn in range(5):
        session.add_message(user(f"ask {turn}", str(turn)))
        if turn == 2:
            session.clear("new")
        session.add_message(reply(f"answer {turn}", str(turn)))
        session.set_metadata(turn=turn)
        batches.append(session.encode_staged())
        await manager.save(session)
    before = (folder / "cli_direct.jsonl").read_bytes()
    for batch in batches:
        await managed().restore(KEY, batch)
    assert (folder / "cli_direct.jsonl").read_bytes() == before


async def test_several_turns_are_restored_whole_where_the_crash_cut_any_of_them(
    folder: Path, clock: FakeClock
) -> None:
    """They may have been written to the file together."""
    manager = SessionManager(folder, clock, files=MemoryDisk())
    session = await say(manager, KEY, "before")
    path = folder / "cli_direct.jsonl"
    start, batches = path.read_bytes(), []
    for turn in "123":
        session.add_message(user(f"ask {turn}", turn))
        session.add_message(reply(f"answer {turn}", turn))
        batches.append(session.encode_staged())
        await manager.save(session)
    await manager.close()
    whole = path.read_bytes()
    for end in range(len(start), len(whole) + 1, 7):
        put(folder, whole[:end])
        fresh = SessionManager(folder, clock, files=MemoryDisk())
        for batch in batches:
            await fresh.restore(KEY, batch)
        assert path.read_bytes() == whole
        assert files_in(folder) == [path]


async def test_a_restored_line_that_a_person_edited_stays_edited(
    managed: Open, folder: Path
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    session.add_message(user("my secret", "t"))
    lines = session.encode_staged()
    await manager.save(session)
    path = folder / "cli_direct.jsonl"
    path.write_text(path.read_text().replace("my secret", "[redacted]"))
    await managed().restore(KEY, lines)
    assert texts((await managed().get_or_create(KEY)).messages) == ["before", "[redacted]"]


async def test_commands_without_messages_are_restored_once(managed: Open, folder: Path) -> None:
    manager = managed()
    session = await say(manager, KEY, user("a", "t1"), user("b", "t2"))
    session.retract("t2")
    undo = session.encode_staged()
    session.rollback()
    session.clear(7)
    new = session.encode_staged()
    for lines in (undo, new, undo, new):
        await managed().restore(KEY, lines)
    assert len((folder / "cli_direct.jsonl").read_text().splitlines()) == 6
    assert (await managed().get_or_create(KEY)).messages == ()


def test_a_home_that_may_not_be_entered_is_said(closed_home: Path) -> None:
    with pytest.raises(StorageError, match="Permission denied"):
        SessionManager(closed_home / "sessions", FakeClock()).list_sessions()


async def test_what_cannot_be_listed_is_told_once_until_it_was_fine(
    managed: Open, folder: Path, warnings: list[str]
) -> None:
    manager = managed()
    await say(manager, "cli:direct", "hello")
    for broken in (True, False, True):
        if broken:
            (folder / "broken.jsonl").mkdir()
        for _ in range(3):
            assert [info.key for info in manager.list_sessions()] == ["cli:direct"]
        if broken:
            (folder / "broken.jsonl").rmdir()
    assert [line for line in warnings if "broken.jsonl" in line] == warnings
    assert len(warnings) == 2
