"""An answer after a wait for the model names its message: the sender got a notice, and may have
written another message since."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from nanobot.cli.agent import replies
from nanobot.cli.client import Client
from nanobot.errors import ProviderUnavailable
from nanobot.testing import FakeChannel
from nanobot.testing.clock import FakeClock
from nanobot.testing.model import ScriptedModel, fails, says
from nanobot_cli.wire import DEFAULT_SESSION, AgentMessage, Reply
from tests.support import PATIENCE, running, start_configured, window

MORNING = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
OVEN = "is the oven on? I left the house at eight and am not sure whether I turned it off"


def ask_in_terminal(home: Path, text: str) -> Reply:
    """Return the output of `nanobot agent -m`."""
    with Client(home) as client:
        *_, reply = replies(client, client.send_message(text, DEFAULT_SESSION), DEFAULT_SESSION)
    assert isinstance(reply, Reply)
    return reply


def open_chat(home: Path, count: int) -> list[str]:
    """Return the chat as a person sees it when opening it now."""
    found: list[str] = []
    with Client(home) as client:
        client.watch(DEFAULT_SESSION)
        while len(found) < count:
            found += [one.text for one in client.read_events() if isinstance(one, AgentMessage)]
    return found


async def test_in_a_terminal_that_is_opened_later_its_words_and_time_stand_above_it(
    tmp_path: Path,
) -> None:
    out = fails(ProviderUnavailable("it is out"))
    model = ScriptedModel(out, says("It is off."), says("It is on."), says("Gladly."))
    clock = FakeClock(MORNING)
    async with asyncio.timeout(PATIENCE), start_configured(tmp_path, {}, model, clock=clock):
        first = await asyncio.to_thread(ask_in_terminal, tmp_path, OVEN)
        assert (first.outcome, "will be answered if" in first.text) == ("waiting", True)
        behind = await asyncio.to_thread(ask_in_terminal, tmp_path, "and the light?")
        assert (behind.outcome, "is saved" in behind.text) == ("waiting", True)
        await clock.advance(16)
        assert await asyncio.to_thread(open_chat, tmp_path, 2) == [
            "Answer to “is the oven on? I left the house at eight and am not sure w…” (09:00):\n\n"
            "It is off.",
            "Answer to “and the light?” (09:00):\n\nIt is on.",
        ]
        assert (await asyncio.to_thread(ask_in_terminal, tmp_path, "thanks")).text == "Gladly."
    texts = [text for _, text in await window(tmp_path, DEFAULT_SESSION)]
    assert texts == [OVEN, "It is off.", "and the light?", "It is on.", "thanks", "Gladly."]


async def test_on_a_platform_it_is_a_reply_to_the_message(tmp_path: Path) -> None:
    out = fails(ProviderUnavailable("it is out"))
    model = ScriptedModel(out, says("It is off."), says("It is on."), says("Gladly."))
    clock = FakeClock(MORNING)
    channel = FakeChannel(clock=clock)
    async with asyncio.timeout(PATIENCE), running(tmp_path, model, channel, clock=clock):
        asked = []
        for number, text in enumerate((OVEN, "and the light?"), 1):
            asked.append(await channel.say(text))
            await channel.receive(number)  # which gets a notice to wait
        await clock.advance(16)
        await channel.receive(4)
        await channel.ask("thanks")
    answers = [
        (part.content, part.reply_to) for part in channel.sent if "/stop" not in part.content
    ]
    assert answers == [*zip(["It is off.", "It is on."], asked, strict=True), ("Gladly.", "")]


async def test_after_a_restart_it_is_still_known_which_one_had_to_wait(tmp_path: Path) -> None:
    clock = FakeClock(MORNING)
    out = ScriptedModel(fails(ProviderUnavailable("it is out")))
    async with asyncio.timeout(PATIENCE), start_configured(tmp_path, {}, out, clock=clock):
        for text in (OVEN, "and the light?"):
            assert (await asyncio.to_thread(ask_in_terminal, tmp_path, text)).outcome == "waiting"
    back = ScriptedModel(says("It is off."), says("It is on."))
    later = FakeClock(MORNING.replace(day=3))
    async with asyncio.timeout(PATIENCE), start_configured(tmp_path, {}, back, clock=later):
        texts = await asyncio.to_thread(open_chat, tmp_path, 2)
    assert texts[0].startswith("Answer to “is the oven on?")
    assert texts[0].endswith("(2026-03-02 09:00):\n\nIt is off.")
    assert texts[1] == "Answer to “and the light?” (2026-03-02 09:00):\n\nIt is on."
