"""The list of scopes with their conversations, page by page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nanobot.gateway.conversations import Conversations
from nanobot.memory.scopes import Scopes
from nanobot.memory.search.find import FoundMessage
from nanobot.messages import Message
from nanobot.security.paths import Root
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock


async def find_nothing(*_: object, **__: object) -> list[FoundMessage]:
    """Search no index."""
    return []


KNOWN = ["owner", "people/telegram_5", "people/nobody_1"]
LINKED = ("telegram:3", "whatsapp:3")


def scopes_of(conversations: Conversations, **asked: object) -> tuple[list[Any], int]:
    found = conversations.scopes({"known": KNOWN, **asked})
    scopes, total = found["scopes"], found["total"]
    assert isinstance(scopes, list)
    assert isinstance(total, int)
    return scopes, total


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50])
async def test_the_pieces_of_the_list_are_the_list(tmp_path: Path, limit: int) -> None:
    clock = FakeClock()
    sessions = SessionManager(tmp_path, clock)
    for key in ("telegram:9", "telegram:3", "telegram:5", "telegram:1", "whatsapp:3", "telegram:7"):
        clock.jump(60)
        session = await sessions.get_or_create(key)
        session.add_message(Message("user", "hello"))
        await sessions.save(session)
    scopes = Scopes(lambda channel, id: (channel, id) == ("telegram", "1"), [LINKED])
    conversations = Conversations(sessions, scopes, find_nothing, lambda _: Root(tmp_path))
    whole, total = scopes_of(conversations)
    assert [(one["scope"], one["conversations"]) for one in whole] == [
        ("owner", 1),
        ("people/telegram_5", 1),
        ("people/nobody_1", 0),
        ("people/telegram_3", 2),
        ("people/telegram_7", 1),
        ("people/telegram_9", 1),
    ]
    assert total == len(whole)
    assert [set(one["chats"]) for one in whole if one["scope"] == "people/telegram_3"] == [
        set(LINKED)
    ]
    pieces = list[Any]()
    for offset in range(0, total + limit, limit):
        piece, counted = scopes_of(conversations, offset=offset, limit=limit)
        assert counted == total
        pieces += piece
    assert pieces == whole
    await sessions.close()
