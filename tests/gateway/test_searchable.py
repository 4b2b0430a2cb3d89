"""The search index is kept up to date between searches."""

from __future__ import annotations

import asyncio

from nanobot.errors import StorageError
from nanobot.tasks import Repeated
from nanobot.testing.clock import FakeClock


class Index:
    """A memory whose refresh fails at first."""

    def __init__(self) -> None:
        self.refreshed = 0

    async def recover(self) -> None: ...

    async def refresh(self) -> None:
        self.refreshed += 1
        if self.refreshed == 1:
            raise StorageError("state/index.db", "the disk is full")

    async def close(self) -> None: ...


async def test_the_index_is_refreshed_soon_after_the_start_and_each_minute() -> None:
    clock, index = FakeClock(), Index()
    keeping = asyncio.create_task(Repeated(clock, 60.0, index.refresh, first=2.0).run_forever())
    await clock.until_sleeping(1)
    assert index.refreshed == 0
    await clock.advance(5)
    assert index.refreshed == 1
    await clock.advance(60)
    await clock.advance(60)
    assert index.refreshed == 3
    keeping.cancel()
