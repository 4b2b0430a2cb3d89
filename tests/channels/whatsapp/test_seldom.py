"""What anybody can cause as often as they like is no flood of warnings."""

from __future__ import annotations

from loguru import logger

from nanobot.testing.clock import FakeClock
from nanobot_whatsapp.seldom import Seldom


async def test_a_few_an_hour_are_warnings() -> None:
    log: list[str] = []
    sink = logger.add(log.append, level="WARNING")
    clock = FakeClock()
    seldom = Seldom(clock)
    for _ in range(60):
        seldom.warn("nobody can read this")
    assert 0 < len(log) < 10
    said = len(log)
    await clock.advance(3600.0)
    seldom.warn("nobody can read this")
    logger.remove(sink)
    assert len(log) == said + 1
