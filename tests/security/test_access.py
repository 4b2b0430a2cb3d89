"""Access: the lists, grants by pairing, groups, and the owner."""

from __future__ import annotations

import asyncio
import sys
import threading
from types import FrameType

import pytest

from nanobot.bus.state import Document
from nanobot.channel import Chat, Sender
from nanobot.errors import NanobotError
from nanobot.memory.scopes import OWNER, Scopes
from nanobot.security.access import AccessRules
from tests.security.homes import (
    ANNA,
    BOB,
    GROUP,
    MENTION,
    PRIVATE,
    AccessHome,
    answer_to,
    asks,
    code_in,
    lets_in,
)


@pytest.mark.parametrize(
    ("rules", "sender", "chat", "addressed", "permitted"),
    [
        (AccessRules(), "7", PRIVATE, True, False),
        (AccessRules(), "1", PRIVATE, True, True),  # the owner
        (AccessRules(), "", PRIVATE, True, False),
        (AccessRules(frozenset({"7"})), "7", PRIVATE, True, True),
        (AccessRules(frozenset({"7"})), "77", PRIVATE, True, False),
        (AccessRules(frozenset({"7"})), "７", PRIVATE, True, False),  # a wide 7
        (AccessRules(frozenset({"7"})), "chat:7", PRIVATE, True, False),
        (AccessRules(frozenset({"Anna"})), "7", PRIVATE, True, False),
        (AccessRules(frozenset({"*"})), "9", PRIVATE, True, True),
        (AccessRules(frozenset({"*"})), "9", GROUP, True, False),
        (AccessRules(), "1", GROUP, True, False),  # groups are off for everybody
        (AccessRules(allow_groups={"-100": frozenset("*")}), "1", GROUP, True, False),
        (MENTION, "7", GROUP, True, False),  # no such group on the list
        (AccessRules(frozenset("7"), "mention", {"-100": frozenset()}), "7", GROUP, True, True),
        (AccessRules(frozenset("7"), "mention", {"-100": frozenset()}), "8", GROUP, True, False),
        (AccessRules(frozenset("7"), "mention", {"-100": frozenset()}), "7", GROUP, False, False),
        (AccessRules(frozenset("7"), "open", {"-100": frozenset()}), "7", GROUP, False, True),
        (AccessRules(frozenset("7"), "open", {"-100": frozenset("8")}), "7", GROUP, True, False),
        (AccessRules(frozenset("7"), "open", {"-100": frozenset("8")}), "8", GROUP, True, True),
        (AccessRules(frozenset("7"), "open", {"-100": frozenset("8")}), "1", GROUP, True, True),
        (AccessRules(frozenset(), "mention", {"-100": frozenset("*")}), "9", GROUP, True, True),
        (AccessRules(frozenset(), "mention", {"*": frozenset("*")}), "9", GROUP, True, True),
        (AccessRules(frozenset(), "mention", {"-10": frozenset("*")}), "9", GROUP, True, False),
        (AccessRules(everyone=True), "9", GROUP, False, True),
    ],
)
def test_nobody_may_talk_unless_the_lists_say_so(
    home: AccessHome, rules: AccessRules, sender: str, chat: Chat, addressed: bool, permitted: bool
) -> None:
    home.rules, home.owners = rules, {"telegram": ("1",)}
    access = home.start()
    someone = Sender(sender, "Anna")
    assert access.permits("telegram", someone, chat, addressed=addressed) is permitted
    assert not access.permits("whatsapp", someone, chat)


def test_any_id_of_a_person_matches_the_lists(home: AccessHome) -> None:
    home.rules = AccessRules(frozenset({"+4912"}))
    assert home.start().permits("telegram", Sender("lid:5", also=("+4912",)), PRIVATE)


async def test_an_approved_code_lets_its_sender_in_at_once_and_after_a_restart(
    home: AccessHome,
) -> None:
    access = home.start()
    approved = await access.approve(await asks(access))
    assert (approved.grant.name, approved.grant.id, approved.chat_id) == ("Anna", "7", "7")
    for now in (access, home.start()):
        assert lets_in(now)
        assert not lets_in(now, BOB)
        assert not now.is_owner_id("telegram", "7")


async def test_the_first_owner_is_known_at_once_to_all_who_ask(home: AccessHome) -> None:
    access = home.start()
    scopes = Scopes(access.is_owner_id, [["whatsapp:5", "telegram:7"]])
    assert scopes.of_session("telegram:7", {}) == "people/whatsapp_5"
    await access.approve(await asks(access), owner=True)
    assert access.owners("telegram") == ("7",)
    assert scopes.of_session("telegram:7", {}) == scopes.of_session("whatsapp:5", {}) == OWNER
    assert not scopes.is_owner("telegram", "8")
    assert not scopes.is_owner("signal", "7")


async def test_who_was_let_in_can_become_the_owner_later_and_stays_it(home: AccessHome) -> None:
    access = home.start()
    await access.approve(await asks(access))
    assert (await access.approve("telegram:7", owner=True)).news
    assert not (await access.approve("telegram:7")).news
    assert access.is_owner_id("telegram", "7")


def test_configured_owners_are_named_and_everyone_is_no_name(home: AccessHome) -> None:
    home.owners = {"telegram": ("1", "*")}
    assert home.start().owners("telegram") == ("1",)
    assert home.start().is_owner_id("telegram", "9")


@pytest.mark.parametrize(
    "id", ["-5", "a:b", "*x", "../../etc", "two\nlines", "`id`", "'; rm -rf ~", "é", "\udc80", " 7"]
)
async def test_a_strange_id_stands_for_itself_alone(home: AccessHome, id: str) -> None:
    access = home.start()
    someone = Sender(id)
    approved = await access.approve(await asks(access, someone))
    assert lets_in(home.start(), someone)
    for other in ("7", id.strip(), id + "x", ""):
        assert lets_in(access, Sender(other)) is (other == id)
    await access.revoke("telegram", approved.grant.id)
    assert not lets_in(access, someone)


async def test_who_is_revoked_is_out_at_once_and_for_good(home: AccessHome) -> None:
    access = home.start()
    await access.approve(await asks(access), owner=True)
    revoked = await access.revoke("telegram", "7")
    assert (revoked.grant.name, revoked.still_in) == ("Anna", False)
    for now in (access, home.start()):
        assert not lets_in(now)
        assert not now.is_owner_id("telegram", "7")
    with pytest.raises(NanobotError, match="did not get access through pairing"):
        await access.revoke("telegram", "7")


async def test_revoking_says_where_the_configuration_lets_them_in(home: AccessHome) -> None:
    access = home.start()
    await access.approve(await asks(access))
    home.rules = AccessRules(frozenset({"7"}))
    access = home.start()
    assert (await access.revoke("telegram", "7")).still_in
    with pytest.raises(NanobotError) as refused:
        await access.revoke("telegram", "7")
    assert "config.yaml" in refused.value.hint


async def test_a_group_is_let_in_by_a_code_that_somebody_known_asked_for(home: AccessHome) -> None:
    home.rules = MENTION
    access = home.start()
    assert not access.permits("telegram", ANNA, GROUP)
    assert not access.knows_group("telegram", GROUP.id)
    assert not await answer_to(access, BOB, GROUP)  # a stranger in a group
    text = await answer_to(access, ANNA, GROUP)
    assert "everyone in this group" in text
    assert not await answer_to(access, ANNA, GROUP)
    with pytest.raises(NanobotError, match="only a person"):
        await access.approve(code_in(text), owner=True)
    approved = await access.approve(code_in(text))
    assert (approved.grant.kind, approved.grant.name) == ("group", "Family")
    assert access.permits("telegram", BOB, GROUP)
    assert access.knows_group("telegram", GROUP.id)
    assert not access.permits("telegram", BOB, GROUP, addressed=False)
    assert not lets_in(access, BOB)
    assert not lets_in(access, Sender(GROUP.id))  # a group's id is no person's
    await access.revoke("telegram", GROUP.id)
    assert not access.permits("telegram", ANNA, GROUP)


async def test_a_group_on_the_list_is_as_the_list_says_though_it_was_paired(
    home: AccessHome,
) -> None:
    home.rules = MENTION
    access = home.start()
    await access.approve(code_in(await answer_to(access, ANNA, GROUP)))
    home.rules = AccessRules(frozenset({"7"}), "mention", {GROUP.id: frozenset({"7"})})
    assert not home.start().permits("telegram", BOB, GROUP)
    home.rules = AccessRules(frozenset({"7"}))
    access = home.start()
    assert not access.permits("telegram", ANNA, GROUP)  # groups are off
    assert not await answer_to(access, ANNA, Chat("-200", is_group=True))


async def test_what_was_read_before_somebody_was_let_in_shuts_nobody_out(home: AccessHome) -> None:
    """A team's worker repeatedly reads a state that others may have changed."""
    access, has_read, may_end = home.start(), threading.Event(), threading.Event()
    code = await asks(access)

    def hold(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code is Document.load.__code__:
            has_read.set()
            may_end.wait()

    def refresh() -> None:
        sys.setprofile(hold)
        access.refresh()
        sys.setprofile(None)

    refreshing = threading.Thread(target=refresh)
    refreshing.start()
    await asyncio.to_thread(has_read.wait)
    await access.approve(code)
    may_end.set()
    await asyncio.to_thread(refreshing.join)
    assert lets_in(access)
