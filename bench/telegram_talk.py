"""The conversation of `bench.crash_telegram`, and its model."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path

from bench.telegram_side import People
from nanobot.clock import SystemClock
from nanobot.errors import ProviderUnavailable
from nanobot.messages import ToolCall
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from tests.doubles.telegram.media import PNG

OWNER, STRANGER, MEMBER = 7, 99, 8
GROUP = -1_000_000_000_500
LONG = [f"l{number}" for number in range(1, 131)]
"""The lines of the long reply, which has four parts."""

THOUGHT = 0.1
"""Seconds that the model takes for a message that may be edited in this time."""
HANGS = "h1"
"""The mark of a message that the model never answers."""

SPEED = 10
"""Factor by which pauses are shorter: an album is complete after a tenth of a second."""

AWAY = "the model server cannot be reached"
"""Text of the notice while the model is down."""

_WAITING = re.compile(r"\bw\d\b")
_NOTED = re.compile("Noted in|I was interrupted")
_TOOLS = {
    "p1": ("edit_file", {"path": "effects.txt", "old_text": "END", "new_text": "first\nEND"}),
    "p9": ("message", {"text": "f1", "media": ["effects.txt"]}),
}


class HastyClock(SystemClock):
    """The time passes normally, but sleeps are `speed` times shorter."""

    def __init__(self, speed: float = SPEED) -> None:
        super().__init__()
        self._speed = speed

    def monotonic(self) -> float:
        return super().monotonic() * self._speed

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds / self._speed)


class Model:
    """Answers the messages since its last answer, by their marks: some with a tool, at length,
    slowly, or with the earlier marks (w) that it sees. While there is a file at `outage`, its
    server cannot be reached."""

    def __init__(self, outage: Path | None = None) -> None:
        self._outage = outage

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        if self._outage is not None and self._outage.exists():
            raise ProviderUnavailable(AWAY)
        spoken = [m for m in prompt.messages if m.role == "assistant" and not m.tool_calls]
        start = prompt.messages.index(spoken[-1]) + 1 if spoken else 1
        tail = prompt.messages[start:]
        said = [mark for m in tail if m.role == "user" for mark in _requests_of(m.text)]
        done = sum(m.role == "tool" for m in tail)
        wanted = [_TOOLS[mark] for mark in said if mark in _TOOLS]
        if done < len(wanted):
            tool, arguments = wanted[done]
            return Reply("", (ToolCall(f"call-{said[0]}", tool, json.dumps(arguments)),))
        if any(mark.startswith("q") for mark in said):
            await asyncio.sleep(THOUGHT)
        if HANGS in said:
            await asyncio.Event().wait()
        if said == ["g1"] and on_text is not None:
            await self._slowly(on_text)
        lines = [f"{mark} is a line of a reply. {'All of it matters. ' * 4}" for mark in LONG]
        more = "\n\n".join(lines) if "p8" in said else ""
        before = [
            mark
            for m in prompt.messages[:start]
            if m.role == "user"
            for mark in _WAITING.findall(m.text)
        ]
        seen = f" after {' '.join(before)}" if _WAITING.match(said[0]) and before else ""
        return Reply(f"answer to {' '.join(said)}{seen}\n\n{more}".strip())

    async def close(self) -> None:
        """Do nothing."""

    async def _slowly(self, on_text: TextSink) -> None:
        for _ in range(3):
            on_text("a word ", False)
            await asyncio.sleep(0.5 / SPEED)


def _requests_of(text: str) -> list[str]:
    """Return the requests in a person's message. An edit (x) of an answered message has none."""
    return [mark for mark in re.findall(r"\b([a-z]+\d+): ", text) if mark[0] != "x"]


async def converse(people: People) -> None:
    """Run all chats at once."""
    people.telegram.group(GROUP, "The group")
    async with asyncio.TaskGroup() as group:
        group.create_task(_in_private(people))
        group.create_task(_in_the_group(people))
        group.create_task(_as_a_stranger(people))


async def _in_private(people: People) -> None:
    telegram, answered = people.telegram, people.until_answered
    await answered(OWNER, "o1")
    offer = telegram.messages(OWNER)[0]
    people.say(OWNER, "p1: write it down")
    people.say(OWNER, "p2: and this too")
    await answered(OWNER, "p2")
    photo = telegram.photo(caption="p3: what is this?")
    people.note(OWNER, [photo])
    await answered(OWNER, "p3")
    typo = people.say(OWNER, "p4: the frist")
    await answered(OWNER, "p4")
    people.edit(OWNER, typo, "x4: the first")
    people.edit(OWNER, people.say(OWNER, "p5: the secnod"), "x5: the second")
    await answered(OWNER, "p5")
    people.say(OWNER, "/note n1 is a note")
    await telegram.wait_for(lambda: _NOTED.match(telegram.texts(OWNER)[-1]), patience=None)
    query = telegram.press(offer.message_id, "Yes")
    people.note(OWNER, [f"callback:{query}"])
    await answered(OWNER, "p7")
    people.say(OWNER, "p8: tell me all")
    await answered(OWNER, LONG[-1])
    people.say(OWNER, "p9: send it")
    await answered(OWNER, "p9")
    people.say(OWNER, "/help")
    people.say(OWNER, "p10: that was all")
    await answered(OWNER, "p10")


async def _in_the_group(people: People) -> None:
    telegram, answered = people.telegram, people.until_answered
    people.say(GROUP, "@nanobot_test_bot g1: tell me slowly", user=MEMBER)
    telegram.say("nobody is meant", user=MEMBER, chat=GROUP)
    await answered(GROUP, "g1")
    pictures = [("photo", PNG + bytes([number])) for number in range(3)]
    caption = "@nanobot_test_bot g2: three pictures"
    people.note(GROUP, telegram.album(pictures, caption=caption, user=MEMBER, chat=GROUP))
    await answered(GROUP, "g2")
    people.say(GROUP, "@nanobot_test_bot g3: that was all", user=MEMBER)
    await answered(GROUP, "g3")


async def _as_a_stranger(people: People) -> None:
    people.telegram.say("s1: let me in", user=STRANGER)
