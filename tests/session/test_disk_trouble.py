"""A full, broken or missing disk: no message is lost or stored twice."""

from __future__ import annotations

import asyncio
import errno
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from loguru import logger

from nanobot.errors import StorageError
from nanobot.session.manager import SessionManager
from nanobot.session.session import Session
from nanobot.testing import FakeClock
from tests.session.support import FailingDisk, Open, say, texts, user

KEY = "cli:direct"


class Notices:
    """Collects disk errors from the log, and lets a test wait for one."""

    def __init__(self) -> None:
        self.errors: list[str] = []
        self.heard = asyncio.Event()

    def __call__(self, line: str) -> None:
        self.errors.append(line)
        self.heard.set()


@pytest.fixture
def notices() -> Iterator[Notices]:
    notices = Notices()
    sink = logger.add(notices, level="ERROR", format="{message}")
    yield notices
    logger.remove(sink)


def queue(manager: SessionManager, session: Session, *contents: str) -> list[asyncio.Future[None]]:
    saved = []
    for content in contents:
        session.add_message(user(content))
        saved.append(manager.save(session))
    return saved


@pytest.mark.parametrize("step", ["write", "sync"])
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("room", [0, 1, 70])
async def test_turns_wait_in_order_for_the_disk_and_one_notice_is_given(
    managed: Open,
    notices: Notices,
    disk: FailingDisk,
    folder: Path,
    step: str,
    error: int,
    room: int,
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    path = folder / "cli_direct.jsonl"
    whole = path.read_bytes()
    disk.broken, disk.error, disk.room = {step}, error, room
    saved = queue(manager, session, "one", "two")
    await notices.heard.wait()
    saved += queue(manager, session, "three")
    assert texts(session.messages) == ["before", "one", "two", "three"]
    assert not any(future.done() for future in saved)
    if step == "write":
        assert path.read_bytes() == whole
    disk.broken.clear()
    manager.retry()
    await asyncio.gather(*saved)
    assert len(notices.errors) == 1
    assert path.read_bytes().startswith(whole)
    stored = list(managed().read_messages(KEY))
    assert texts(stored) == ["before", "one", "two", "three"]
    assert [message.seq for message in stored] == [1, 2, 3, 4]


async def test_a_partial_write_that_cannot_be_cut_off_is_mended_later(
    managed: Open, notices: Notices, disk: FailingDisk
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    disk.broken, disk.room = {"write", "truncate"}, 30
    saved = queue(manager, session, "one")
    await notices.heard.wait()
    disk.broken.clear()
    manager.retry()
    await asyncio.gather(*saved)
    assert texts(list(managed().read_messages(KEY))) == ["before", "one"]


@pytest.mark.parametrize("step", ["write", "sync", "sync_folder"])
async def test_a_new_file_is_whole_after_trouble(
    managed: Open, notices: Notices, disk: FailingDisk, folder: Path, step: str
) -> None:
    manager = managed()
    session = await manager.get_or_create(KEY)
    disk.broken, disk.room = {step}, 20
    saved = queue(manager, session, "one")
    await notices.heard.wait()
    disk.broken.clear()
    manager.retry()
    await asyncio.gather(*saved)
    lines = (folder / "cli_direct.jsonl").read_text().splitlines()
    assert ["_type" in line for line in lines] == [True, False]


async def test_after_a_failed_sync_the_bytes_are_written_anew(
    managed: Open, notices: Notices, disk: FailingDisk
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    disk.broken = {"sync"}
    saved = queue(manager, session, "one")
    await notices.heard.wait()
    disk.broken.clear()
    disk.steps.clear()
    manager.retry()
    await asyncio.gather(*saved)
    assert disk.steps == ["write", "sync"]


async def test_a_file_that_was_edited_during_trouble_keeps_the_edit(
    managed: Open, notices: Notices, disk: FailingDisk, folder: Path
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    disk.broken = {"sync"}
    saved = queue(manager, session, "one")
    await notices.heard.wait()
    path = folder / "cli_direct.jsonl"
    (folder / "new").write_text(path.read_text().replace("before", "edited"))
    (folder / "new").replace(path)
    disk.broken.clear()
    manager.retry()
    await asyncio.gather(*saved)
    assert texts((await manager.get_or_create(KEY)).messages) == ["edited", "one"]


async def test_it_is_tried_again_by_itself_and_ever_less_often(
    managed: Open, notices: Notices, disk: FailingDisk, clock: FakeClock
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    disk.broken = {"write"}
    (saved,) = queue(manager, session, "one")
    for _ in range(8):
        await clock.until_sleeping()
        await clock.advance(clock.slept[-1])
    await clock.until_sleeping()
    assert clock.slept == [1, 2, 4, 8, 16, 32, 60, 60, 60]
    assert len(notices.errors) == 1
    disk.broken.clear()
    await clock.advance(60)
    await saved
    disk.broken = {"write"}
    queue(manager, session, "two")
    await clock.until_sleeping()
    assert len(notices.errors) == 2
    assert clock.slept[-1] == 1


async def test_trouble_with_one_file_does_not_hold_up_the_others(
    managed: Open, notices: Notices, folder: Path
) -> None:
    manager = managed()
    stuck = await manager.get_or_create("cli:stuck")
    (folder / "cli_stuck.jsonl").mkdir(parents=True)
    saved = queue(manager, stuck, "one")
    await notices.heard.wait()
    await say(manager, "cli:other", "fine")
    assert await manager.get_or_create("cli:stuck") is stuck
    assert not saved[0].done()
    (folder / "cli_stuck.jsonl").rmdir()
    manager.retry()
    await asyncio.gather(*saved)
    assert texts(list(managed().read_messages("cli:stuck"))) == ["one"]


@pytest.mark.parametrize("refused", [1, 70])
async def test_trouble_does_not_hold_up_more_files_than_are_written_at_once(
    managed: Open, folder: Path, refused: int
) -> None:
    manager = managed()
    sessions = [await manager.get_or_create(f"cli:{number}") for number in range(140)]
    for number in range(refused):
        (folder / f"cli_{number}.jsonl").mkdir(parents=True)
    saved = [future for session in sessions for future in queue(manager, session, "one")]
    await asyncio.gather(*saved[refused:])  # before the pause, which never ends here
    assert not any(future.done() for future in saved[:refused])
    for number in range(refused):
        (folder / f"cli_{number}.jsonl").rmdir()
    manager.retry()
    await asyncio.gather(*saved)


async def test_a_disk_that_is_full_is_said_while_another_file_is_refused_for_good(
    managed: Open, notices: Notices, disk: FailingDisk, clock: FakeClock, folder: Path
) -> None:
    manager = managed()
    stuck = await manager.get_or_create("cli:stuck")
    (folder / "cli_stuck.jsonl").mkdir(parents=True)
    refused = queue(manager, stuck, "one")
    await notices.heard.wait()
    fine = await say(manager, "cli:fine", "before")
    disk.broken = {"write"}
    for text in ("one", "two"):
        saved = queue(manager, fine, text)
        await clock.until_sleeping()
        manager.retry()
        await asyncio.sleep(0.05)
    assert ["Is a directory" in line for line in notices.errors] == [True, False]
    assert "No space left" in notices.errors[1]
    disk.broken.clear()
    (folder / "cli_stuck.jsonl").rmdir()
    manager.retry()
    await asyncio.gather(*refused, *saved)


async def test_a_full_disk_is_one_trouble_for_all_sessions(
    managed: Open, notices: Notices, disk: FailingDisk, clock: FakeClock
) -> None:
    manager = managed()
    sessions = [await say(manager, f"cli:{number}", "x") for number in range(3)]
    disk.broken = {"write"}
    saved = [future for session in sessions for future in queue(manager, session, "y")]
    await clock.until_sleeping()
    disk.broken.clear()
    manager.retry()
    await asyncio.gather(*saved)
    assert len(notices.errors) == 1


async def test_a_session_with_unwritten_turns_stays_open_whatever_the_capacity(
    managed: Open, notices: Notices, disk: FailingDisk
) -> None:
    manager = managed(capacity=1)
    session = await say(manager, KEY, "before")
    disk.broken = {"write"}
    saved = queue(manager, session, "one")
    await notices.heard.wait()
    del session
    for number in range(3):
        await manager.get_or_create(f"cli:{number}")
    assert texts((await manager.get_or_create(KEY)).messages) == ["before", "one"]
    disk.broken.clear()
    manager.retry()
    await asyncio.gather(*saved)


async def test_what_the_disk_refuses_to_the_end_is_reported_and_can_be_restored(
    managed: Open, disk: FailingDisk
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    disk.broken = {"write"}
    session.add_message(user("one"))
    lines = session.encode_staged()
    saved = manager.save(session)
    await manager.close()
    with pytest.raises(StorageError):
        await saved
    disk.broken.clear()
    after = managed()
    await after.restore(KEY, lines)
    assert texts((await after.get_or_create(KEY)).messages) == ["before", "one"]


async def test_metadata_saved_early_is_in_the_next_commit_until_it_is_durable(
    managed: Open, disk: FailingDisk, notices: Notices
) -> None:
    manager, disk.broken = managed(), {"write"}
    session = await manager.get_or_create(KEY)
    session.set_metadata(scope="people/fake_1")
    manager.save_early(session)
    assert session.metadata["scope"] == "people/fake_1"
    await notices.heard.wait()
    session.begin_turn()  # a turn that is repeated in the same process
    session.add_message(user("one"))
    lines = session.encode_staged()
    session.rollback()
    session.add_message(user("one"))
    assert session.encode_staged() == lines
    saved = manager.save(session)
    await manager.close()
    with pytest.raises(StorageError):
        await saved
    disk.broken.clear()
    after = managed()
    for _ in range(2):
        await after.restore(KEY, lines)
    restored = await after.get_or_create(KEY)
    assert restored.metadata["scope"] == "people/fake_1"
    assert texts(restored.messages) == ["one"]


async def test_metadata_that_is_durable_is_in_no_other_commit(managed: Open) -> None:
    manager = managed()
    session = await manager.get_or_create(KEY)
    session.set_metadata(scope="people/fake_1")
    manager.save_early(session)
    assert "people/fake_1" in session.encode_staged()
    await manager.mark(session, 1, kept=True, by="1", via="fake")
    assert session.encode_staged() == ""


async def test_a_restore_that_the_disk_refuses_says_so_and_can_be_repeated(
    managed: Open, disk: FailingDisk
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    session.add_message(user("one"))
    lines = session.encode_staged()
    for step in ("write", "sync"):
        disk.broken = {step}
        with pytest.raises(StorageError):
            await managed().restore(KEY, lines)
    disk.broken.clear()
    await managed().restore(KEY, lines)
    assert texts(list(managed().read_messages(KEY))) == ["before", "one"]


async def test_work_that_waits_for_the_disk_costs_nothing_where_all_others_were_cancelled(
    managed: Open, notices: Notices, disk: FailingDisk, folder: Path
) -> None:
    manager = managed(live_limit=0)
    session = await say(manager, KEY, "one", "two")
    disk.broken = {"write"}
    manager.mark_consolidated(session, 1).cancel()
    await notices.heard.wait()
    archiving = asyncio.ensure_future(manager.archive(session))
    used, began = time.process_time(), time.monotonic()
    await asyncio.sleep(0.6)
    share = (time.process_time() - used) / (time.monotonic() - began)
    assert share < 0.3, "it looks again and again"
    disk.broken.clear()
    manager.retry()
    await archiving
    assert [path.name for path in (folder / "archive").rglob("*.jsonl")] == ["0001.jsonl"]


async def test_a_retry_that_is_asked_for_while_the_disk_refuses_is_not_lost(
    managed: Open, notices: Notices, disk: FailingDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = managed()
    session = await say(manager, KEY, "before")
    loop = asyncio.get_running_loop()

    def refuse_once(name: str) -> None:
        if name in disk.broken:
            asked = threading.Event()
            loop.call_soon_threadsafe(manager.retry)
            loop.call_soon_threadsafe(asked.set)
            asked.wait(10)
            disk.broken.clear()
            raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(disk, "_step", refuse_once)
    disk.broken = {"write"}
    async with asyncio.timeout(10):
        await asyncio.gather(*queue(manager, session, "after"))
    assert len(notices.errors) == 1
