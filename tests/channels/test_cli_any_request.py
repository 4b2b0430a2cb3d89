"""Any line on the control socket costs at most that request an error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.gateway.control import ControlServer
from nanobot.testing import FakeClock
from nanobot_cli.channel import CliChannel
from tests.bus.support import rows
from tests.channels.malformed import as_body, mutate
from tests.gateway.core import Core
from tests.gateway.test_control import wire_to
from tests.scratch import scratch

GOOD = {"op": "chat", "id": "good", "session": "cli:direct", "text": "hello", "stream": True}


async def answers(lines: Sequence[bytes]) -> tuple[list[object], list[tuple[object, ...]]]:
    """Return the answers to these requests and `GOOD` after them, and the texts in the inbox."""
    with scratch() as home:
        clock = FakeClock()
        journal = SqliteJournal(home / "journal.db", clock)
        await journal.open()
        try:
            core, channel = Core(journal, home, everyone=True), CliChannel()
            server = ControlServer(home, {}, channel.chat)
            await server.start()
            async with asyncio.timeout(20), asyncio.TaskGroup() as group:
                serving = group.create_task(channel.run(core.host))
                async with wire_to(home) as wire:
                    said = [await wire.ask(line) for line in (*lines, as_body(GOOD))]
                serving.cancel()
            await server.close()
            await core.background.drain(5.0)
        finally:
            await journal.close()
        return [*said], rows(home / "journal.db", "SELECT event_id FROM inbox")


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.integers(0, 2**32))
def test_every_request_is_answered_and_the_next_one_is_taken(seed: int) -> None:
    rnd = Random(seed)
    malformed = [as_body(mutate(GOOD | {"id": f"odd-{n}"}, rnd, but=frozenset())) for n in range(4)]
    said, stored = asyncio.run(answers(malformed))
    assert said[-1] == {"event": "accepted", "id": "good"}
    assert ("cli:good",) in stored
