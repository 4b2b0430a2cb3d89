"""Files that are removed in time, and files that never are."""

from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.agent.media import MediaStore
from nanobot.bus.events import Media
from nanobot.bus.journal import Outgoing
from nanobot.security.audit import AuditLog, audit_files, expire, newest_records
from nanobot.security.paths import FolderEntry
from nanobot.security.redaction import Redactor
from nanobot.testing import FakeClock, ScriptedModel, says
from nanobot.testing.channel import FakeChannel
from nanobot.upkeep.retention import MEDIA_NAME, Retention, surplus
from tests.bus.support import make_message, open_journal, reply
from tests.support import running

DAY = 86_400
CLOCK = FakeClock()
PNG = b"\x89PNG\r\n\x1a\n a picture of a cat"
PICTURE = Media("picture", "image", "image/png", "p.png")


def files(**ages: int) -> list[FolderEntry]:
    """Return files of a megabyte, last used so many days ago."""
    return [
        FolderEntry(name, "file", 1_000_000, (-age * DAY - 1) * 1_000_000_000)
        for name, age in ages.items()
    ]


@pytest.mark.parametrize(
    ("days", "megabytes", "gone"),
    [
        (0, 0, ""),
        (30, 0, "ab"),
        (0, 3, "a"),
        (0, 1, "abc"),  # today's file stays, regardless of the quota
        (30, 1, "abc"),
        (100, 4, ""),
    ],
)
def test_what_is_too_old_or_too_much_goes_the_oldest_first(
    days: int, megabytes: int, gone: str
) -> None:
    kept = files(d=0, b=40, c=20, a=50)
    assert [file.name for file in surplus(kept, 0.0, days=days, megabytes=megabytes)] == list(gone)


def test_what_is_spared_stays_and_what_is_used_less_goes_in_its_place() -> None:
    kept = files(a=50, b=40, c=20)
    assert [f.name for f in surplus(kept, 0.0, days=0, megabytes=1, spare={"a"})] == ["b", "c"]


def make_old_file(path: Path, days: float) -> Path:
    """Make a file that was last used so many days ago."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists():
        path.write_bytes(path.name.encode())
    then = CLOCK.now().timestamp() - days * DAY
    os.utime(path, (then, then))
    return path


async def test_a_sweep_takes_what_nanobot_named_and_nothing_that_somebody_waits_for(
    tmp_path: Path,
) -> None:
    media, spill = tmp_path / "media", tmp_path / "spill"
    old, to_send, to_run_again = (make_old_file(media / f"{c * 32}.png", 31) for c in "abc")
    young, mine = (
        make_old_file(media / f"{'d' * 32}.png", 29),
        make_old_file(media / "mine.png", 900),
    )
    damaged = make_old_file(media / f"{'e' * 32}.png.corrupt-1", 900)
    long, notes = (
        make_old_file(spill / "exec-0123456789abcdef.txt", 31),
        make_old_file(spill / "notes.txt", 900),
    )
    linked = make_old_file(media / f"{'f' * 32}.png", 31)
    linked.with_name("second-name").hardlink_to(linked)  # as while a backup is made
    async with open_journal(tmp_path / "journal.db", CLOCK) as journal:
        part = reply("see").parts[0]
        sent = replace(part, media=(Media(f"media/{to_send.name}", "image"),))
        await journal.add_outgoing("t1", Outgoing("reply", (sent,)))
        kept = Media(f"kept:{to_run_again.name}", "image")
        await journal.receive("fake", [replace(make_message("m1"), media=(kept,))])
        mentions = partial(journal.find_mentions, MEDIA_NAME)
        retention = Retention(tmp_path, tmp_path, CLOCK, mentions, media_days=30)
        await retention.run_once()
    assert not old.exists()
    assert not long.exists()
    stay = (to_send, to_run_again, young, mine, damaged, notes, linked)
    assert all(path.exists() for path in stay)


async def test_it_runs_soon_after_the_start_and_then_each_day_whatever_goes_wrong(
    tmp_path: Path,
) -> None:
    clock, asked = FakeClock(), list[float]()

    async def fails() -> frozenset[str]:
        asked.append(clock.monotonic())
        raise KeyError("something that no code expects")

    retention = Retention(tmp_path, tmp_path, clock, fails)
    running_on = asyncio.create_task(retention.run_forever())
    await clock.until_sleeping()
    await clock.advance(2 * DAY)
    retention.stop()
    with pytest.raises(asyncio.CancelledError):
        await running_on
    assert asked == [600, 600 + DAY]


def test_a_file_that_comes_again_is_young_again(tmp_path: Path) -> None:
    store = MediaStore(tmp_path / "media")
    path = make_old_file(tmp_path / "media" / store.put(PNG, "image/png"), 0)
    for use in (lambda: store.put(PNG, "image/png"), lambda: store.image(path.name)):
        os.utime(path, (1, 1))
        use()
        assert path.stat().st_mtime > 1


async def test_a_conversation_goes_on_and_can_be_undone_when_its_pictures_are_gone(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    channel.files["picture"] = PNG
    model = ScriptedModel(says("a cat"), says("as I said"), says("which one?"))
    async with running(tmp_path, model, channel):
        await channel.answer_to(await channel.say("look", media=(PICTURE,)))
    (picture,) = (tmp_path / "media").iterdir()
    picture.unlink()
    async with running(tmp_path, model, channel):
        assert await channel.ask("what was it?") == "as I said"
        await channel.ask("/undo")
        await channel.ask("/undo")
        assert await channel.ask("look again") == "which one?"
    assert not any(message.images for message in model.prompts[1].messages)


def test_the_audit_log_loses_whole_files_that_are_older_and_no_line_that_is_not(
    tmp_path: Path,
) -> None:
    clock, path = FakeClock(), tmp_path / "audit.jsonl"
    log = AuditLog(path, Redactor(), clock)
    for day in range(100):
        log.write({"event": "decided", "day": day})
        expire(path, clock.now() - timedelta(days=30))
        clock.jump(DAY)
    days = [record["day"] for record in newest_records(path, lambda _: True, 1_000)]
    assert days == list(range(days[0], 100))  # type: ignore[arg-type]
    assert 30 <= len(days) <= 62
    assert sum(file.exists() for file in audit_files(path)) <= 3
