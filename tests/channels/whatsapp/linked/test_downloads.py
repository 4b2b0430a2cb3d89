"""Received files: the helper stores them in its folder, and they are read and removed."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

from nanobot.errors import SendError, SendRefused
from nanobot.testing.clock import FakeClock
from tests.channels.whatsapp.linked.helpers import Core
from tests.channels.whatsapp.linked.transport_kit import running


async def test_a_file_is_read_once_it_is_there_and_then_removed(
    core: Core, folder: Path, clock: FakeClock
) -> None:
    downloads = folder / "downloads"
    downloads.mkdir()
    (downloads / "left").write_bytes(b"by a daemon that was killed")
    async with running(core) as kit:
        helper = await kit.open_next()
        assert list_of(downloads) == []
        fetching = kit.fetching()
        helper.fail(await helper.request("download"), "later", "no network", 3.0)
        await until_asked(clock, 3.0)
        await clock.advance(3.0)
        (downloads / "f1").write_bytes(b"image")
        request = await helper.request("download")
        helper.answer(request, path="downloads/f1", size=5)
        assert await fetching == b"image"
    assert request["params"] == {"ref": {"directPath": "/v/t62"}, "limit": 1000}
    assert list_of(downloads) == []


async def test_a_file_is_fetched_though_the_helper_dies_over_it(
    core: Core, clock: FakeClock, folder: Path
) -> None:
    async with running(core) as kit:
        first = await kit.open_next()
        fetching = kit.fetching()
        await first.request("download")
        os.kill(int((folder / "helper.lock").read_text()), signal.SIGKILL)
        await core.until(lambda: "signal 9" in core.problem)
        await until_asked(clock, 5.0)
        await clock.advance(5.0)
        second = await kit.open_next()
        request = await second.request("download")
        (folder / "downloads").mkdir()
        (folder / "downloads" / "f1").write_bytes(b"image")
        second.answer(request, path="downloads/f1", size=5)
        assert await fetching == b"image"


async def test_what_nobody_fetched_in_time_is_removed_with_the_next_fetch(
    core: Core, folder: Path, clock: FakeClock
) -> None:
    downloads = folder / "downloads"
    async with running(core) as kit:
        helper = await kit.open_next()
        downloads.mkdir()
        for name, age in (("late", 601.0), ("busy", 5.0)):
            (downloads / name).write_bytes(b"image")
            written = clock.now().timestamp() - age
            os.utime(downloads / name, (written, written))
        fetching = kit.fetching()
        helper.answer(await helper.request("download"), path="downloads/busy", size=5)
        assert await fetching == b"image"
    assert list_of(downloads) == []


async def test_a_file_that_is_too_large_or_lies_elsewhere_is_refused(
    core: Core, folder: Path
) -> None:
    downloads = folder / "downloads"
    async with running(core) as kit:
        helper = await kit.open_next()
        downloads.mkdir()
        (folder / "secret").write_bytes(b"x")
        (downloads / "link").symlink_to(folder / "secret")
        assert isinstance(await kit.fetching(limit=4), SendRefused)
        for path in ("downloads/../secret", "/etc/passwd", "downloads/link", ""):
            fetching = kit.fetching()
            helper.answer(await helper.request("download"), path=path, size=1)
            assert isinstance(await fetching, SendError)
        (downloads / "f2").write_bytes(b"x" * 1001)
        fetching = kit.fetching()
        helper.answer(await helper.request("download"), path="downloads/f2", size=1)
        assert isinstance(await fetching, SendRefused)
        assert len(helper.all("request")) == 5


async def until_asked(clock: FakeClock, seconds: float) -> None:
    """Wait until a task sleeps for that long."""
    while seconds not in clock.slept:  # noqa: ASYNC110 - it tells nobody
        await asyncio.sleep(0)


def list_of(folder: Path) -> list[str]:
    """Return the names in a folder."""
    return sorted(path.name for path in folder.iterdir())
