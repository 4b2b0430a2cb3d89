"""A search that may go by an earlier look at the conversations: it knows all that this process did
to them, and what others did as soon as that look is too old."""

from __future__ import annotations

from pathlib import Path

from nanobot.memory.scopes import OWNER
from nanobot.memory.search import Query
from nanobot.messages import Message
from nanobot.session.catalogue import SessionCatalogue
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.memory.homes import RealHome, living

KEY, AGE = "telegram:1", 60.0


async def finds(home: RealHome, word: str) -> bool:
    result = await home.index.search(Query(word, (OWNER,)), AGE)
    return f"a {word}" in [hit.passage.text for hit in result.hits]


async def test_what_this_process_did_is_known_at_once(tmp_path: Path) -> None:
    async with living(tmp_path, FakeClock()) as home:
        for word in ("walrus", "heron", "lynx"):
            await home.say(KEY, f"a {word}")
            assert await finds(home, word)
        session = await home.sessions.get_or_create(KEY)
        await home.sessions.retract(session, [session.messages[-2].seq])
        assert not await finds(home, "lynx")
        await home.sessions.rewrite(KEY, lambda line: line.replace("heron", "stork"))
        assert not await finds(home, "heron")
        assert await finds(home, "stork")
        home.sessions.mark_consolidated(session, session.messages[-1].seq)
        await home.sessions.archive(session)
        assert await finds(home, "walrus")


async def test_what_another_process_did_is_known_once_the_look_is_too_old(tmp_path: Path) -> None:
    clock = FakeClock()
    async with living(tmp_path, clock) as home:
        await home.say(KEY, "a walrus")
        assert await finds(home, "walrus")
        folder = home.folder / "sessions"
        other = SessionManager(SessionCatalogue(folder, clock), clock)
        session = await other.get_or_create("telegram:1:9")
        session.add_message(Message("user", "a heron"))
        await other.save(session)
        await other.close()
        assert not await finds(home, "heron")
        await clock.advance(AGE + 1)
        assert await finds(home, "heron")
