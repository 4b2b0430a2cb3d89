"""Criterion: any number of people without access cost nothing and leave nothing behind.

The whole gateway over HTTP. Only the owner's messages reach the model."""

from __future__ import annotations

import asyncio
import gc
import json
from pathlib import Path
from types import FunctionType, ModuleType

from nanobot.app.gateway import Gateway
from nanobot.clock import SystemClock
from nanobot.testing import FakeClock, ScriptedModel, says
from tests.doubles.telegram import FakeTelegram
from tests.files import files_with
from tests.support import talking

OWNER = 7
PEOPLE = range(1_000, 1_100)
GROUP = -500
SAID = "quetzal"
"""A word in everything that a stranger sends."""


def send(telegram: FakeTelegram, number: int, user: int) -> None:
    """Send one message of a stranger. Ten in a row are of ten kinds."""
    text = f"{SAID} {number}"
    match number % 10:
        case 0:
            telegram.photo(caption=text, user=user)
        case 1:
            telegram.voice(user=user)
        case 2:
            telegram.document(name=f"{SAID}.pdf", caption=text, user=user)
        case 3:
            telegram.forward(text, origin=SAID, user=user)
        case 4:
            telegram.edit(telegram.say("hello", user=user), text, user=user)
        case 5:
            telegram.say(f"/status {text}", user=user)
        case 6:
            telegram.say(f"{text} @{telegram.username}", user=user, chat=GROUP)
        case 7:
            telegram.push({"callback_query": _press(telegram, text, user)})
        case _:
            telegram.say(text, user=user)


def _press(telegram: FakeTelegram, data: str, user: int) -> dict[str, object]:
    message = {"message_id": 1, "date": 0, "chat": {"id": user, "type": "private"}}
    person = {"id": user, "is_bot": False, "first_name": "Eve"}
    return {"id": data, "from": person, "message": message, "chat_instance": "1", "data": data}


def flood(telegram: FakeTelegram, messages: int) -> None:
    """Send messages of all kinds from everyone in turn."""
    for number in range(messages):
        send(telegram, number + number // len(PEOPLE), PEOPLE[number % len(PEOPLE)])


async def all_taken(telegram: FakeTelegram) -> None:
    await telegram.wait_for(lambda: (telegram.confirmed or 0) > telegram.last_update)


def codes(telegram: FakeTelegram) -> dict[int, list[str]]:
    """Return the reply to each stranger."""
    return {user: telegram.texts(user) for user in PEOPLE if telegram.texts(user)}


async def test_strangers_cost_no_model_call_hold_up_nobody_and_leave_no_trace(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    telegram.group(GROUP)
    clock, model = FakeClock(), ScriptedModel(says("Hello, Robin."), says("Still here."))
    settings = {"groups": "mention", "allow_groups": {str(GROUP): []}}
    for user in PEOPLE:
        telegram.hang("sendMessage", chat=user)
    async with talking(tmp_path, telegram, model, clock=clock, settings=settings):
        flood(telegram, 500)
        question = telegram.say("hello")
        flood(telegram, 500)
        assert (await telegram.answer_to(question)).text == "Hello, Robin."
        await all_taken(telegram)
        await telegram.wait_for(lambda: len(telegram.calls_of("sendMessage")) == 51)
        assert not codes(telegram)  # all of them are still on their way
        telegram.heal()
        await telegram.wait_for(lambda: len(codes(telegram)) == 50)
        first, *_ = told = codes(telegram)
        await telegram.wait_for(lambda: telegram.polls)
        await clock.advance(3_601)
        telegram.say(SAID, user=first)
        question = telegram.say("and now?")
        assert (await telegram.answer_to(question)).text == "Still here."
        again = await telegram.receive(2, first)
    assert len(model.prompts) == 2
    assert not telegram.calls_of("getFile", "file", "getChat")
    assert not telegram.messages(GROUP)
    assert sorted(map(len, told.values())) == [1] * 50
    assert all("Your pairing code" in text for [text] in told.values())
    assert len(set(again)) == len(again) == 2
    assert codes(telegram) == {**told, first: again}  # an hour later there is another code
    assert not telegram.violations
    assert files_with(tmp_path, SAID) == []
    asked = (tmp_path / "state" / "documents.json").read_bytes()
    assert len(json.loads(asked)["documents"]["access"]["requests"]) == 1  # those of the last hour
    assert len(asked) < 20_000


async def test_the_code_of_a_group_is_shown_to_the_person_alone_who_asked(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    telegram.group(GROUP)
    async with talking(tmp_path, telegram, ScriptedModel(), settings={"groups": "mention"}):
        telegram.say(f"@{telegram.username} hello", user=OWNER, chat=GROUP)
        await telegram.wait_for(lambda: telegram.ephemeral(GROUP))
    (sent,) = telegram.ephemeral(GROUP)
    assert sent.only == OWNER
    assert "this group has no access" in sent.text
    assert telegram.messages(GROUP) == []
    assert not telegram.violations


async def test_the_memory_that_strangers_take_is_bounded(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    async with talking(tmp_path, telegram, ScriptedModel()) as gateway:
        sizes = []
        for first in (10_000, 20_000):
            for stranger in range(first, first + 300, 2):
                telegram.say(SAID, user=stranger)
                telegram.block(telegram.person(stranger + 1))
            await all_taken(telegram)
            await telegram.wait_for(lambda: len(telegram.calls_of("sendMessage")) >= 50)
            await telegram.wait_for(lambda: telegram.polls)
            sizes.append(_size(gateway))
    assert sizes[1] - sizes[0] < 50, sizes


def _size(gateway: Gateway) -> int:
    """Return the number of objects of a nanobot."""
    gc.collect()
    ends = (ModuleType, type, asyncio.AbstractEventLoop, FakeTelegram, SystemClock)
    seen: dict[int, object] = {}
    found: list[object] = [gateway]
    while found:
        one = found.pop()
        if id(one) in seen or isinstance(one, ends):
            continue
        seen[id(one)] = one
        found += [one.__closure__] if isinstance(one, FunctionType) else gc.get_referents(one)
    return len(seen)
