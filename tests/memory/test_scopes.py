"""The memory of a message, and ids of strangers that cannot leave their folder."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from nanobot.bus.events import InboundMessage
from nanobot.memory.documents import LONG_TERM
from nanobot.memory.scopes import (
    OWNER,
    Memories,
    OthersConversation,
    Scopes,
    is_scope,
    prefix_of,
)
from nanobot.memory.version import Change
from nanobot.security.paths import Root
from nanobot.session.records import JsonValue
from tests.memory.homes import match_owners

if TYPE_CHECKING:
    from tests.memory.conftest import StoppedClock

SCOPES = Scopes(match_owners("telegram:1", "webchat:*"), [["telegram:7", "whatsapp:5511"]])


def message(channel: str, chat: str, sender: str, *, group: bool = False) -> InboundMessage:
    now = datetime(2026, 3, 10, tzinfo=UTC)
    return InboundMessage(channel, chat, sender, "hi", "e1", now, is_group=group)


@pytest.mark.parametrize(
    ("channel", "sender", "scope"),
    [
        ("telegram", "1", OWNER),
        ("cli", "anyone", OWNER),
        ("webchat", "anyone", OWNER),
        ("web", "owner", OWNER),
        ("web", "telegram:1", OWNER),
        ("api", "whatsapp:5511", "people/telegram_7"),
        ("web", "telegram:7", "people/telegram_7"),
        ("api", "cli:owner", "people/api_cli%3Aowner"),
        ("web", "somebody", "people/web_somebody"),
        ("telegram", "7", "people/telegram_7"),
        ("whatsapp", "5511", "people/telegram_7"),
        ("whatsapp", "1", "people/whatsapp_1"),
        ("telegram", "*", "people/telegram_%2A"),
    ],
)
def test_a_sender_has_a_scope(channel: str, sender: str, scope: str) -> None:
    assert SCOPES.of_message(message(channel, "9", sender), "", {}) == scope
    assert SCOPES.is_owner(channel, sender) is (scope == OWNER)
    assert SCOPES.of_session(f"{channel}:9", {"sender": sender}) == scope


def test_a_group_has_a_scope_of_its_own_whoever_speaks() -> None:
    for sender in ("1", "7"):
        inbound = message("telegram", "-100", sender, group=True)
        assert SCOPES.of_message(inbound, "", {}) == "groups/telegram_-100"
    assert SCOPES.of_session("telegram:-100:12", {"group": True}) == "groups/telegram_-100"
    matrix: dict[str, JsonValue] = {"group": True, "chat": "!room:example.org"}
    key = "matrix:!room:example.org"
    inbound = message("matrix", "!room:example.org", "x", group=True)
    assert SCOPES.of_session(key, matrix) == SCOPES.of_message(inbound, "", {})


def test_nobody_is_admitted_to_a_conversation_of_another_scope_that_they_chose() -> None:
    typed = replace(message("cli", "direct", "person"), session_override="telegram:8")
    for key, metadata in (
        ("telegram:8", {}),
        ("telegram:8", {"group": True}),
        ("telegram:1", {"scope": "people/telegram_8"}),
        ("cron:job", {"scope": "people/telegram_8"}),
        ("web:made-up", {}),
    ):
        with pytest.raises(OthersConversation):
            SCOPES.expect_own(typed, key, metadata)
    for key, metadata in (("telegram:1", {}), ("telegram:8", {"scope": OWNER})):
        assert SCOPES.expect_own(typed, key, metadata) == ""
    owners = message("web", "a", "owner")
    for other in ("people/telegram_7", "groups/telegram_-1"):
        with pytest.raises(OthersConversation):
            SCOPES.expect_own(owners, "web:a", {"scope": other})
    assert SCOPES.expect_own(owners, "web:a", {}) == ""


def test_a_chat_that_is_another_scopes_now_keeps_nothing_of_the_old_conversation() -> None:
    inbound = message("telegram", "9", "9")
    for before in ({"scope": OWNER}, {"sender": "1"}, {"group": True}):
        assert SCOPES.expect_own(inbound, "telegram:9", before) not in ("", "people/telegram_9")
    for same in ({}, {"title": "Boats"}, {"sender": "9"}, {"scope": "people/telegram_9"}):
        assert SCOPES.expect_own(inbound, "telegram:9", same) == ""


def test_a_conversation_about_which_nothing_is_known_is_its_chats() -> None:
    assert SCOPES.of_session("cli:direct", {}) == OWNER
    assert SCOPES.of_session("telegram:1", {}) == OWNER
    assert SCOPES.of_session("telegram:7:12", {}) == "people/telegram_7"
    assert SCOPES.of_session("nonsense", {}) == "people/nonsense_"
    assert SCOPES.of_session("cron:job", {"scope": "people/telegram_7"}) == "people/telegram_7"
    assert SCOPES.of_session("cron:job", {"scope": "people/../x"}) == "people/cron_job"


def test_an_identity_linked_to_the_owner_is_the_owner() -> None:
    linked = [["whatsapp:5511", "telegram:1"], ["a:1", "b:2"]]
    scopes = Scopes(match_owners("telegram:1"), linked)
    assert scopes.is_owner("whatsapp", "5511")
    assert not scopes.is_owner("a", "1")
    assert scopes.of_message(message("b", "2", "2"), "", {}) == "people/a_1"


def test_only_groups_may_read_the_owners_memory_and_only_by_the_owners_word() -> None:
    assert SCOPES.readable("groups/telegram_-1") == ("groups/telegram_-1",)
    open_scopes = Scopes(match_owners(), groups_see_owner=True)
    assert open_scopes.readable("groups/telegram_-1") == ("groups/telegram_-1", OWNER)
    assert open_scopes.readable("people/telegram_7") == ("people/telegram_7",)


def test_conversations_of_one_person_have_one_scope_and_groups_their_own() -> None:
    private = [SCOPES.of_session(key, {}) for key in ("telegram:7", "whatsapp:5511")]
    assert private == ["people/telegram_7"] * 2
    assert SCOPES.of_session("telegram:8", {}) == "people/telegram_8"
    assert SCOPES.of_session("telegram:-1", {"group": True}) == "groups/telegram_-1"


STRANGE = [
    "../..",
    "..",
    ".",
    "/",
    "/etc/passwd",
    "a/../../b",
    "\0",
    "x" * 5_000,
    "名前",
    "\ud83d",
    "",
]


@pytest.mark.parametrize("sender", STRANGE)
def test_a_strangers_id_stays_inside_its_folder(
    tmp_path: Path, clock: StoppedClock, sender: str
) -> None:
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    scope = SCOPES.of_message(message("telegram", "9", sender), "", {})
    memory = Memories(Root(workspace), workspace.parent / "state", clock).of(scope)
    asyncio.run(memory.store.append_today("hello"))
    (made,) = tmp_path.rglob("2026-11-21.md")
    people, name, folder, _ = made.relative_to(workspace).parts
    assert (people, folder) == ("people", "memory")
    assert scope == f"people/{name}"


@given(st.text(), st.text(), st.booleans())
def test_any_sender_has_the_name_of_one_folder(channel: str, sender: str, group: bool) -> None:
    scope = SCOPES.of_message(message(channel, sender, sender, group=group), "", {})
    assert is_scope(scope)
    assert prefix_of(scope).count("/") == (0 if scope == OWNER else 2)


@pytest.mark.parametrize("name", ["", "people", "people/", "people/..", "people/a/b", "x/y", "/"])
def test_what_is_no_scope_has_no_memory(tmp_path: Path, clock: StoppedClock, name: str) -> None:
    with pytest.raises(ValueError, match="is not a scope"):
        Memories(Root(tmp_path), tmp_path / "state", clock).of(name)


async def test_memories_are_apart_and_their_folders_made_by_the_first_write(
    workspace: Path, clock: StoppedClock
) -> None:
    memories = Memories(Root(workspace), workspace.parent / "state", clock)
    assert memories.list_scopes() == [OWNER]
    person = memories.of("people/telegram_7")
    assert memories.of("people/telegram_7") is person
    assert person.store.get_memory_context() == ""
    assert not (workspace / "people").exists()
    await person.store.replace(LONG_TERM, "- Likes tea\n", expected="", change=Change("agent"))
    assert memories.list_scopes() == [OWNER, "people/telegram_7"]
    assert "tea" in person.store.get_memory_context()
    assert "tea" not in memories.of(OWNER).store.get_memory_context()
    assert memories.of(OWNER).root.path == workspace
    assert person.root.path == workspace / "people/telegram_7"
    (workspace / "people" / "..strange").mkdir()
    memories.recover()
    assert memories.list_scopes() == [OWNER, "people/telegram_7"]


async def test_a_folder_of_a_scope_that_is_a_link_is_not_followed(
    workspace: Path, clock: StoppedClock
) -> None:
    outside = workspace.parent / "outside"
    outside.mkdir()
    (workspace / "people").mkdir()
    (workspace / "people/telegram_7").symlink_to(outside)
    memories = Memories(Root(workspace), workspace.parent / "state", clock)
    with pytest.raises(Exception, match="links are not followed"):
        await memories.of("people/telegram_7").store.append_today("x")
    assert list(outside.iterdir()) == []
    assert memories.list_scopes() == [OWNER]
