"""The agent's known chats: their names, and whether it may still write there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from nanobot.agent.notifier import KnownChats
from nanobot.channel import Chat
from nanobot.memory.scopes import Scopes
from nanobot.security.access import Access
from nanobot.session.manager import SessionManager
from nanobot.session.records import JsonValue
from tests.security.homes import ANNA, GROUP, MENTION, AccessHome, answer_to, code_in
from tests.session.support import talk

CHATS: Mapping[str, Mapping[str, JsonValue]] = {
    "telegram:7": {"name": "Ann"},
    "telegram:7:12": {},
    "telegram:8": {},
    "telegram:-100": {"group": True},
    "telegram:-100:5": {"group": True, "chat": "-100"},
    "telegram:-200": {"group": True},
    "cli:direct": {},
}


async def build_known_chats(home: AccessHome, tmp_path: Path) -> tuple[KnownChats, Access]:
    """Return chats with an admitted person, a person without access, and an admitted group."""
    home.rules = MENTION
    access = home.start()
    await access.approve(code_in(await answer_to(access, ANNA, GROUP)))

    sessions = SessionManager(tmp_path / "sessions", home.clock)
    for key, metadata in CHATS.items():
        await talk(sessions, key, metadata)
    await sessions.close()
    return KnownChats(sessions, Scopes(access.is_owner_id), access, ("telegram",)), access


async def test_chats_have_the_names_of_people_and_of_groups_that_were_let_in(
    tmp_path: Path,
) -> None:
    chats, _ = await build_known_chats(AccessHome(), tmp_path)
    assert dict(chats.chats()) == {
        "telegram:7": "Ann",
        "telegram:7:12": "",
        "telegram:8": "",
        "telegram:-100": "Family",
        "telegram:-100:5": "Family",
        "telegram:-200": "",
    }


async def test_a_chat_is_reached_in_all_its_threads_while_its_people_may_talk(
    tmp_path: Path,
) -> None:
    chats, access = await build_known_chats(AccessHome(), tmp_path)
    reached = {address for address in CHATS if chats.may_reach(address)}
    assert reached == {"telegram:7", "telegram:7:12", "telegram:-100", "telegram:-100:5"}
    await access.revoke("telegram", GROUP.id)
    assert not chats.may_reach("telegram:-100:5")
    assert not access.permits("telegram", ANNA, Chat(GROUP.id, is_group=True))
