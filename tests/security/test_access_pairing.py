"""Pairing with codes, and attacks of strangers on it."""

from __future__ import annotations

import asyncio

import pytest

from nanobot.channel import Chat, Sender
from nanobot.errors import NanobotError
from nanobot.security.access import AccessRules
from nanobot.security.pairing import ALPHABET, as_code, new_code
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


async def test_a_stranger_is_answered_once_an_hour_with_a_code_of_their_own(
    home: AccessHome,
) -> None:
    access = home.start()
    first = await asks(access)
    assert not await answer_to(access, ANNA, PRIVATE)
    assert await asks(access, BOB) != first
    home.clock.jump(3_599)
    assert not await answer_to(access, ANNA, PRIVATE)
    home.clock.jump(1)
    assert await asks(access) != first


async def test_the_hour_counts_across_restarts(home: AccessHome) -> None:
    access = home.start()
    await asks(access)
    home.clock.jump(3_599)
    assert not await answer_to(home.start(), ANNA, PRIVATE)
    assert not await answer_to(access, ANNA, PRIVATE)


async def test_the_answer_to_a_stranger_tells_nothing_but_the_code(home: AccessHome) -> None:
    bare = home.start()
    home.owners = {"telegram": ("1",)}
    home.rules = AccessRules(frozenset({"3"}), "mention")
    owned = home.start()
    await owned.approve(await asks(owned, Sender("4", "Dora")))
    texts = [await answer_to(bare, ANNA, PRIVATE)]
    home.clock.jump(3_600)
    texts.append(await answer_to(owned, ANNA, PRIVATE))
    assert len({text.replace(code_in(text), "CODE") for text in texts}) == 1
    assert "nanobot is private" in str(texts[0])
    assert f"nanobot pair approve {code_in(texts[0])}" in str(texts[0])


async def test_who_may_talk_or_has_no_usable_id_gets_no_code(home: AccessHome) -> None:
    home.rules = AccessRules(frozenset({"7"}))
    access = home.start()
    for id in ("7", "", "*", "9" * 201):
        assert not await answer_to(access, Sender(id), PRIVATE)
    assert not await answer_to(access, BOB, GROUP)
    assert access.requests() == []


async def test_a_flood_of_strangers_stays_within_bounds(
    home: AccessHome, logged: list[str]
) -> None:
    access = home.start()
    replies: dict[str, int] = {}
    writes = set()
    for number in range(1_000):
        someone = Sender(str(100 + number % 100), "x" * 5_000)
        if await answer_to(access, someone, Chat(someone.id)):
            replies[someone.id] = replies.get(someone.id, 0) + 1
        writes.add(home.state.revision("access"))
    assert set(replies.values()) == {1}
    assert len(replies) == len(access.requests()) == 50
    assert len(writes) == 50  # one for each that was answered
    assert len(home.state.text("access")) < 50 * 400
    assert [line.partition(":")[0] for line in logged] == ["WARNING"]
    home.rules = MENTION  # groups have room of their own: who asks for them is known
    assert await answer_to(home.start(), ANNA, GROUP)
    home.clock.jump(3_600)
    assert await asks(access, BOB)


async def test_a_code_works_once(home: AccessHome) -> None:
    access = home.start()
    code = await asks(access)
    await access.approve(code)
    await access.revoke("telegram", "7")
    for now in (access, home.start()):
        with pytest.raises(NanobotError, match="no pending request"):
            await now.approve(code)
        assert not lets_in(now)


async def test_of_two_who_approve_the_same_code_one_is_refused(home: AccessHome) -> None:
    access = home.start()
    code = await asks(access)
    both = await asyncio.gather(
        access.approve(code, owner=True), access.approve(code), return_exceptions=True
    )
    assert [type(one).__name__ for one in both] == ["PairingApproval", "_WrongCode"]
    assert access.is_owner_id("telegram", "7")


@pytest.mark.parametrize(
    ("passed", "jumped", "valid"),
    [
        (599, 0, True),
        (600, 0, False),
        (0, 600, False),  # the computer slept, or the clock was set forward
    ],
)
async def test_a_code_holds_for_ten_minutes_whatever_the_clock_does(
    home: AccessHome, passed: float, jumped: float, valid: bool
) -> None:
    access = home.start()
    code = await asks(access)
    await home.clock.advance(passed)
    home.clock.jump(jumped)
    assert (access.requests()[0].seconds_left > 0) is valid
    if not valid:
        with pytest.raises(NanobotError, match="has expired"):
            await access.approve(code)
    assert not lets_in(access)
    await access.approve(code if valid else "telegram:7")  # the id does for the whole hour
    assert lets_in(access)


@pytest.mark.parametrize(("jumped", "valid"), [(599, True), (600, False), (-1, False)])
async def test_a_code_outlives_a_restart_but_not_a_clock_that_was_set_back(
    home: AccessHome, jumped: float, valid: bool
) -> None:
    access = home.start()
    code = await asks(access)
    home.clock.jump(jumped)
    access = home.start()
    assert any(one.seconds_left for one in access.requests()) is valid
    if not valid:
        with pytest.raises(NanobotError):
            await access.approve(code)
    assert lets_in(access) is False


async def test_ten_wrong_codes_close_the_door_for_ten_minutes_even_over_a_restart(
    home: AccessHome,
) -> None:
    access = home.start()
    code = await asks(access)
    for number in range(10):
        with pytest.raises(NanobotError, match="no pending request"):
            await access.approve("B" * 7 + ALPHABET[number])
    for locked in (access, home.start()):
        with pytest.raises(NanobotError, match="too many wrong codes"):
            await locked.approve(code)
        assert not lets_in(locked)
    home.clock.jump(600)
    bob = await asks(access, BOB)
    assert (await access.approve(bob)).grant.id == "8"


async def test_what_cannot_be_a_code_is_no_guess(home: AccessHome) -> None:
    access = home.start()
    code = await asks(access)
    for text in ("", "list", "2222", "0" * 8, "Ä" * 8, "revoke"):
        for _ in range(3):
            with pytest.raises(NanobotError, match="not a pairing code"):
                await access.approve(text)
    assert await access.approve(code)


async def test_the_confirmation_and_the_list_name_the_person_not_only_their_name(
    home: AccessHome,
) -> None:
    access = home.start()
    await access.approve(await asks(access))
    impostor = Sender("9", "ＡＮＮＡ\u202e\n`**")
    code = await asks(access, impostor)
    assert not lets_in(access, impostor)
    (request,) = access.requests()
    assert (request.request.id, request.request.name) == ("9", "ＡＮＮＡ '**")
    approved = await access.approve(code)
    assert approved.grant.id == "9"


async def test_nobody_is_approved_by_an_id_that_did_not_ask(home: AccessHome) -> None:
    with pytest.raises(NanobotError, match="there was no request from telegram:7"):
        await home.start().approve("telegram:7", owner=True)


def test_codes_are_eight_clear_characters_and_read_as_people_write_them() -> None:
    codes = {new_code() for _ in range(100)}
    assert len(codes) == 100
    assert {len(code) for code in codes} == {8}
    assert not set("".join(codes)) & set("0O1ILAEU")
    code = codes.pop()
    assert as_code(f" {code[:4].lower()}-{code[4:]}\n") == code
