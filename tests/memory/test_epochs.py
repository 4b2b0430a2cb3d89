"""Untrusted content taints its own conversation, but not messages after `/new`."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.memory.dream.entries import DreamEntry, entry_of_history
from nanobot.memory.version import Change
from nanobot.messages import Message
from nanobot.testing import FakeClock
from tests.memory.homes import RealHome, living

KEY = "telegram:1"
PAGE = Message("tool", "The museum is in Linz", name="web_fetch", origin="tool:web_fetch")


@pytest.fixture
async def home(tmp_path: Path) -> AsyncIterator[RealHome]:
    async with living(tmp_path / "home", FakeClock()) as home:
        yield home


async def entry_after(home: RealHome, *, new: bool) -> DreamEntry:
    """Return Dream's entry of the messages after a page, in a new conversation or in the same
    one."""
    session = await home.sessions.get_or_create(KEY)
    session.add_message(PAGE)
    await home.sessions.save(session)
    if new:
        session.clear("7")
        await home.sessions.save(session)
    seqs = await home.say(KEY, "The museum is in Linz")
    entry = home.memory().history.get(home.tell(KEY, seqs, "They spoke of a museum."))
    assert entry is not None
    found = entry_of_history(entry, home.sessions.read_conversation)
    assert found is not None
    return found


async def test_what_is_said_after_a_page_carries_its_mark(home: RealHome) -> None:
    assert (await entry_after(home, new=False)).origins == ("tool:web_fetch",)


async def test_what_is_said_after_new_does_not(home: RealHome) -> None:
    assert (await entry_after(home, new=True)).origins == ()


@pytest.mark.parametrize("new", [False, True])
async def test_why_shows_no_page_that_was_read_before_new(home: RealHome, new: bool) -> None:
    session = await home.sessions.get_or_create(KEY)
    session.add_message(PAGE)
    await home.sessions.save(session)
    if new:
        session.clear("7")
        await home.sessions.save(session)
    await home.say(KEY, "remember that the museum is in Linz", turn="t1")
    change = Change("agent", "1 added", session=KEY, turn="t1")
    await home.learn("- The museum is in Linz", change=change)

    told = (await home.explainer.why("museum Linz", "owner")).text

    assert "remember that the museum" in told
    assert ("tool web_fetch" in told) == (not new)
