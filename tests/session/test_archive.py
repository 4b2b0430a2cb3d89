from __future__ import annotations

import json
from pathlib import Path

import pytest

from nanobot.errors import StorageError
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.testing import FakeClock
from tests.session.support import FailingDisk, Open, files_in, put, say, texts, user

KEY = "cli:direct"


async def fill_consolidated(manager: SessionManager, count: int, up_to: int) -> Session:
    session = await manager.get_or_create(KEY)
    for number in range(count):
        session.add_message(user(f"m{session.next_seq}", str(number)))
    await manager.save(session)
    await manager.mark_consolidated(session, up_to)
    await manager.save(session)
    return session


def segments(folder: Path) -> list[str]:
    return [path.name for path in files_in(folder / "archive" / "cli_direct")]


async def assert_all_there(
    manager: SessionManager, count: int, up_to: int, epoch: str = ""
) -> None:
    stored = list(manager.read_messages(KEY))
    assert texts(stored) == [f"m{n}" for n in range(1, count + 1)]
    assert [message.seq for message in stored] == list(range(1, count + 1))
    session = await manager.get_or_create(KEY)
    assert texts(session.messages) == [f"m{n}" for n in range(up_to + 1, count + 1)]
    assert (session.last_consolidated, session.next_seq) == (up_to, count + 1)
    assert session.epoch == epoch


async def test_consolidated_messages_move_and_everything_is_still_there(
    managed: Open, folder: Path
) -> None:
    manager = managed(live_limit=5)
    session = await fill_consolidated(manager, 10, 7)
    await manager.archive(session)
    assert segments(folder) == ["0001.jsonl"]
    live = (folder / "cli_direct.jsonl").read_text().splitlines()
    assert [json.loads(line).get("content") for line in live] == [None, "m8", "m9", "m10"]
    assert json.loads(live[0])["first_seq"] == 8
    await assert_all_there(manager, 10, 7)
    await assert_all_there(managed(), 10, 7)
    assert texts(list(manager.read_messages(KEY, 6, 9))) == ["m6", "m7", "m8", "m9"]


async def test_a_short_file_is_left_alone(managed: Open, folder: Path) -> None:
    manager = managed(live_limit=7)
    session = await fill_consolidated(manager, 10, 7)
    await manager.archive(session)
    assert segments(folder) == []


async def test_segments_follow_each_other_and_saving_goes_on(managed: Open, folder: Path) -> None:
    manager = managed(live_limit=3)
    for end in (10, 20, 30):
        session = await fill_consolidated(manager, 10, end)
        await manager.archive(session)
        await manager.archive(session)
    assert segments(folder) == ["0001.jsonl", "0002.jsonl", "0003.jsonl"]
    await assert_all_there(managed(), 30, 30)
    assert (await manager.get_or_create(KEY)).revision == session.revision
    await say(manager, KEY, "m31")
    await assert_all_there(managed(), 31, 30)
    (folder / "cli_direct.jsonl").unlink()
    assert len(list(managed().read_messages(KEY))) == 30
    assert (await managed().get_or_create(KEY)).next_seq == 31


async def test_epochs_retractions_and_metadata_of_what_stays_are_kept(managed: Open) -> None:
    manager = managed(live_limit=3)
    session = await fill_consolidated(manager, 6, 5)
    session.set_metadata(model="m")
    session.clear("new")
    await manager.save(session)
    for number in (7, 8):
        session.add_message(user(f"m{number}", f"late {number}"))
    await manager.save(session)
    session.retract("late 8")
    await manager.save(session)
    await manager.archive(session)
    other = await managed().get_or_create(KEY)
    assert texts(other.messages) == ["m7"]
    assert (other.epoch, dict(other.metadata)) == (session.epoch, {"model": "m"})
    assert len(list(manager.read_messages(KEY))) == 8


async def test_a_file_of_another_program_keeps_its_numbers(managed: Open, folder: Path) -> None:
    top = {"_type": "metadata", "key": KEY, "last_consolidated": 6}
    lines = [top, *({"role": "user", "content": f"m{n}", "extra": n} for n in range(1, 9))]
    put(folder, "".join(json.dumps(line) + "\n" for line in lines).encode())
    manager = managed(live_limit=5)
    await manager.archive(await manager.get_or_create(KEY))
    await assert_all_there(managed(), 8, 6)
    first = (folder / "archive" / "cli_direct" / "0001.jsonl").read_text().splitlines()[1]
    assert json.loads(first) == {"role": "user", "content": "m1", "extra": 1, "seq": 1}


async def test_broken_lines_move_too(managed: Open, folder: Path) -> None:
    manager = managed(live_limit=3)
    await fill_consolidated(manager, 8, 6)
    path = folder / "cli_direct.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:4], b"%broken%\n", *lines[4:]]))
    await manager.archive(await manager.get_or_create(KEY))
    assert b"%broken%" in (folder / "archive" / "cli_direct" / "0001.jsonl").read_bytes()
    assert b"%broken%" not in path.read_bytes()


@pytest.mark.parametrize("step", range(12))
@pytest.mark.parametrize("earlier", [0, 1])
async def test_a_crash_at_any_step_loses_and_repeats_nothing(
    folder: Path, clock: FakeClock, step: int, earlier: int
) -> None:
    disk = FailingDisk()
    manager = SessionManager(folder, clock, live_limit=3, files=disk)
    for end in range(earlier):
        await manager.archive(await fill_consolidated(manager, 8, 8 * (end + 1)))
    count = 8 * (earlier + 1)
    session = await fill_consolidated(manager, 8, count - 2)
    disk.fail_at, disk.error = len(disk.steps) + step, 5
    failed = False
    try:
        await manager.archive(session)
    except StorageError:
        failed = True
    assert failed == (disk.fail_at < len(disk.steps))
    crashed = SessionManager(folder, clock, live_limit=3)
    await assert_all_there(crashed, count, count - 2)
    if len(segments(folder)) > earlier:  # a started move is finished
        assert f'"m{count - 2}"' not in (folder / "cli_direct.jsonl").read_text()
    await assert_all_there(manager, count, count - 2)
    await crashed.archive(await crashed.get_or_create(KEY))
    await assert_all_there(SessionManager(folder, clock), count, count - 2)
    assert len(segments(folder)) == earlier + 1
    live = (folder / "cli_direct.jsonl").read_text()
    assert [f'"m{n}"' in live for n in range(1, count + 1)] == [False] * (count - 2) + [True] * 2
    assert not files_in(folder, "**/.*-tmp")
    await manager.close()
    await crashed.close()


async def test_a_turn_that_was_archived_meanwhile_is_not_restored_again(managed: Open) -> None:
    manager = managed(live_limit=3)
    session = await manager.get_or_create(KEY)
    for number in range(1, 9):
        session.add_message(user(f"m{number}", "t"))
    lines = session.encode_staged()
    await manager.save(session)
    await manager.mark_consolidated(session, 8)
    await manager.save(session)
    await manager.archive(session)
    await managed().restore(KEY, lines)
    await assert_all_there(managed(), 8, 8)


async def test_archiving_waits_for_what_is_queued(managed: Open) -> None:
    manager = managed(live_limit=3)
    session = await fill_consolidated(manager, 8, 6)
    session.add_message(user("m9"))
    saved = manager.save(session)
    await manager.archive(session)
    assert saved.done()
    await assert_all_there(managed(), 9, 6)


async def test_what_no_memory_takes_is_bounded_on_disk_and_numbering_goes_on(
    managed: Open, folder: Path
) -> None:
    manager = managed(live_limit=3)
    for _ in range(5):
        session = await manager.get_or_create(KEY)
        session.discard()
        for _ in range(3):
            session.add_message(user(f"m{session.next_seq}"))
        await manager.save(session)
        await manager.trim(session)
    assert len(segments(folder)) == 1
    assert session.next_seq == 16
    assert (await managed().get_or_create(KEY)).next_seq == 16
    assert texts(list(managed().read_messages(KEY)))[-1] == "m15"


async def test_what_somebody_put_in_place_of_a_file_is_not_lost_where_its_numbers_are_archived(
    folder: Path, clock: FakeClock
) -> None:
    manager = SessionManager(folder, clock, live_limit=0)
    session = await say(manager, KEY, "m1", "m2", "m3")
    await manager.mark_consolidated(session, 2)
    await manager.archive(session)
    await manager.close()
    live = folder / "cli_direct.jsonl"
    foreign = [f'{{"role": "user", "content": "foreign {n}"}}\n' for n in range(1, 5)]
    live.write_text("".join(foreign))
    manager = SessionManager(folder, clock, live_limit=0)
    session = await manager.get_or_create(KEY)
    assert texts(session.messages) == ["foreign 3", "foreign 4"]
    for _ in range(2):
        await say(manager, KEY, "more")
        await manager.mark_consolidated(session, session.next_seq - 1)
        await manager.archive(session)
    held = "".join(path.read_text() for path in files_in(folder, "**/*.jsonl"))
    assert [held.count(f"foreign {n}") for n in range(1, 5)] == [1] * 4
    told = ["m1", "m2", "foreign 3", "foreign 4", "more", "more"]
    assert texts(list(manager.read_messages(KEY))) == told
    await manager.close()
