"""A message that a platform accepts and drops later is kept and reported to the owner."""

from __future__ import annotations

from pathlib import Path

from nanobot.bus.events import OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.gateway.channels import ChannelState, Host
from nanobot.testing import FakeClock
from tests.bus.support import open_journal
from tests.gateway.core import host_parts

REASON = "more than 24 hours have passed (131047)"


async def test_the_owner_is_told_and_how_to_send_it_again(tmp_path: Path) -> None:
    told: list[tuple[str, str]] = []
    clock = FakeClock()
    async with open_journal(tmp_path / "journal.db", clock) as journal:
        parts = host_parts(
            journal, tmp_path, clock, warn=lambda name, text: told.append((name, text))
        )
        host = Host(ChannelState("fake"), parts)
        message = Outgoing("reply", (OutboundMessage("fake", "1", "Hello"),))
        (part,) = await journal.add_outgoing("tell-1", message)
        await host.report_undelivered("p1", REASON)  # before it is stored that it was sent
        await journal.mark_sent(part, "p1", keep=True)
        await clock.until_sleeping()
        await clock.advance(10.0)
        await parts.background.drain(5.0)
        ((channel, text),) = told
        assert channel == "fake"
        assert REASON in text
        assert "nanobot queue retry" in text
        await host.report_undelivered("p1", REASON)
        await host.report_undelivered("of another program", REASON)
        assert len(told) == 1
        await parts.background.drain(0.0)
