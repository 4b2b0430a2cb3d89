"""The conversation of `bench.crash_whatsapp`. Its model is that of `telegram_talk`."""

from __future__ import annotations

import asyncio
import base64
import re
from typing import Any

from bench.telegram_talk import LONG
from bench.whatsapp_side import People
from tests.doubles.telegram.media import PNG

GROUP = "120363000000000001@g.us"
OWNER, MEMBER, FRIEND, STRANGER = "ann", "bob", "lee", "eve"
NUMBERS = {
    OWNER: "15557770000",
    MEMBER: "4915550001",
    FRIEND: "4915550002",
    STRANGER: "15559990000",
}
LIDS = {OWNER: "888000111", MEMBER: "777000111", FRIEND: "555000111", STRANGER: "666000111"}
_BOT_LID = "999000111"

_NOTED = re.compile("Noted in|I was interrupted")
_AT_ONCE = 515
"""Code with which WhatsApp ends the connection and asks the device to reconnect."""


async def prepare(people: People) -> None:
    """Create the people."""
    for key, number in NUMBERS.items():
        await people.meet(key, number, LIDS[key])
    members = [OWNER, MEMBER]
    await people.fake.do("group", group=GROUP, subject="Friends", members=members, addressing="lid")
    await people.link()


async def converse(people: People) -> None:
    """Run all chats at once."""
    async with asyncio.TaskGroup() as group:
        group.create_task(_in_private(people))
        group.create_task(_in_the_group(people))
        group.create_task(_without_a_number(people))
        group.create_task(people.say(STRANGER, "s1: let me in", heard=False))


async def converse_briefly(people: People) -> None:
    """Run the short form: a tool, a picture, a duplicate, a group."""
    await _first_words(people)
    await _address(people, "g1: hello")
    await people.until_answered(GROUP, "g1")


async def _first_words(people: People) -> None:
    await people.say(OWNER, "p1: write it down")
    await people.say(OWNER, "p2: and this too")
    await people.until_answered(OWNER, "p2")
    await people.say(OWNER, "p3: what is this?", file=_picture(0))
    await people.until_answered(OWNER, "p3")
    twice = await people.say(OWNER, "p4: the frist")
    await people.say(OWNER, "p4: the frist", message=twice)
    await people.until_answered(OWNER, "p4")


async def _in_private(people: People) -> None:
    answered = people.until_answered
    await _first_words(people)
    await people.say(OWNER, "x4: the first", edit=await people.say(OWNER, "p6: a typo"))
    await answered(OWNER, "p6")
    typo = await people.say(OWNER, "p5: the secnod")
    await people.say(OWNER, "x5: the second", edit=typo)
    await answered(OWNER, "p5")
    await people.say(OWNER, "/note n1 is a note")
    await people.fake.until(lambda: _NOTED.match(people.texts(OWNER)[-1]))
    await people.fake.do("stream_error", code=_AT_ONCE)
    await people.say(OWNER, "p8: tell me all")
    await answered(OWNER, LONG[-1])
    await people.say(OWNER, "p9: send it")
    await answered(OWNER, "p9")
    await people.say(OWNER, "/help")
    await people.say(OWNER, "p10: that was all")
    await answered(OWNER, "p10")


async def _in_the_group(people: People) -> None:
    await _address(people, "g1: tell me slowly")
    await people.say(MEMBER, "nobody is meant", group=GROUP, heard=False)
    await people.until_answered(GROUP, "g1")
    await _address(people, "g2: what is this?", file=_picture(1))
    await people.until_answered(GROUP, "g2")
    await _address(people, "g3: that was all")
    await people.until_answered(GROUP, "g3")


async def _address(people: People, text: str, **more: Any) -> None:
    mentioned = [f"{_BOT_LID}@lid"]
    text = f"@{_BOT_LID} {text}"
    await people.say(MEMBER, text, group=GROUP, mentions=mentioned, **more)


async def _without_a_number(people: People) -> None:
    """Talk as a person whose number becomes known later."""
    for mark, more in (("b1", {"as": "lid", "hidden": True}), ("b2", {"as": "lid"}), ("b3", {})):
        await people.say(FRIEND, f"{mark}: a question", **more)
        await people.until_answered(FRIEND, mark)


def _picture(number: int) -> dict[str, str]:
    content = base64.b64encode(PNG + bytes([number])).decode()
    return {"kind": "image", "mime": "image/png", "name": "", "base64": content}
