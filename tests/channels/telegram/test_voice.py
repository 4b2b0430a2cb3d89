"""A voice message is also answered aloud, by programs of this machine, once, and never without the
text."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from nanobot.app.gateway import Gateway
from nanobot.providers.port import Prompt, Reply
from nanobot.testing import ScriptedModel, calls, says
from tests.channels.telegram.support import WatchedClock
from tests.channels.telegram.whole import OWNER, repeat
from tests.doubles.telegram import FakeTelegram
from tests.doubles.telegram.values import Sent
from tests.support import read_stored, start_configured
from tests.voice.support import LISTENER, speaker, text_of_speech


@asynccontextmanager
async def gateway(
    home: Path,
    telegram: FakeTelegram,
    model: ScriptedModel,
    clock: WatchedClock,
    guests: Sequence[str] = (),
    **speech: Any,
) -> AsyncIterator[Gateway]:
    """Run a gateway with programs that listen and speak. `speech` are settings of the latter."""
    section = {"enabled": True, "token": telegram.token, "base_url": telegram.base_url}
    section |= {"allow_from": [*guests]}
    programs: Mapping[str, object] = {
        "transcription": {"command": LISTENER},
        "speech": {"command": speaker(home.parent), **speech},
    }
    config = {
        "model": programs, "owner": {"telegram": [str(OWNER)]}, "channels": {"telegram": section},
    }  # fmt: skip
    async with start_configured(home, config, model, clock=clock) as running:
        yield running


def aloud(telegram: FakeTelegram) -> list[str]:
    """Return the texts of voice messages."""
    return [text_of_speech(_content(sent)) for sent in telegram.messages() if sent.kind == "voice"]


def _content(sent: Sent) -> bytes:
    assert sent.file is not None
    return sent.file.content


@pytest.fixture
def home(disk_path: Path) -> Path:
    return disk_path / "home"


def answer(prompt: Prompt) -> Reply:
    """Return the first line of an answer, without the note about the file."""
    return says(repeat(prompt).text.splitlines()[0])


async def test_what_is_spoken_is_answered_in_text_and_then_aloud(
    home: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with gateway(home, telegram, ScriptedModel(author=answer), clock):
        telegram.voice(b"buy milk")
        await telegram.wait_for(lambda: len(telegram.messages()) == 2)
        telegram.say("and bread")
        await telegram.wait_for(lambda: len(telegram.messages()) == 3)
    kinds = [(sent.kind, sent.text) for sent in telegram.messages()]
    assert kinds == [("text", "re: buy milk"), ("voice", ""), ("text", "re: and bread")]
    assert aloud(telegram) == ["re: buy milk"]
    said = [message.content for message in read_stored(home, f"telegram:{OWNER}")]
    assert said[1::2] == ["re: buy milk", "re: and bread"]
    assert said[0] == "buy milk"


@pytest.mark.parametrize(("code", "pause"), [(429, 2.0), (502, 60.0)])
async def test_a_voice_message_that_telegram_refuses_for_a_while_arrives_once(
    home: Path, telegram: FakeTelegram, clock: WatchedClock, code: int, pause: float
) -> None:
    async with gateway(home, telegram, ScriptedModel(author=answer), clock):
        telegram.fail("sendVoice", code, parameters={"retry_after": 2} if code == 429 else None)
        telegram.voice(b"buy milk")
        await telegram.wait_for(lambda: telegram.calls_of("sendVoice"))
        await clock.until_asked(pause)
        await clock.advance(pause)
        await telegram.wait_for(lambda: aloud(telegram))
    assert [sent.kind for sent in telegram.messages()] == ["text", "voice"]


async def test_a_voice_message_that_an_end_interrupted_is_made_again_and_sent_once(
    home: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=answer)
    async with gateway(home, telegram, model, clock, command=["sleep", "1000"]):
        telegram.voice(b"buy milk")
        assert await telegram.receive(1) == ["re: buy milk"]
    for _ in range(2):
        async with gateway(home, telegram, model, clock):
            await telegram.wait_for(lambda: aloud(telegram))
    assert [sent.kind for sent in telegram.messages()] == ["text", "voice"]
    assert len(model.prompts) == 1


@pytest.mark.parametrize(
    "broken",
    [
        {"command": ["no-such-program"]},
        {"command": ["sh", "-c", "echo no voice >&2; exit 1"]},
        {"command": ["cat"]},
    ],
)
async def test_a_voice_that_fails_costs_no_text_and_holds_up_nothing(
    home: Path, telegram: FakeTelegram, clock: WatchedClock, broken: Mapping[str, Any]
) -> None:
    async with gateway(home, telegram, ScriptedModel(author=answer), clock, **broken):
        telegram.voice(b"buy milk")
        await telegram.receive(1)
        telegram.say("and bread")
        assert await telegram.receive(2) == ["re: buy milk", "re: and bread"]
        telegram.say("/voice")
        *_, told = await telegram.receive(3)
    assert aloud(telegram) == []
    assert "The last voice message failed: " in told


async def test_a_recording_that_a_program_cannot_read_is_a_file_and_a_note(
    home: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with gateway(home, telegram, ScriptedModel(author=repeat), clock):
        telegram.voice(b"\xff\xfe\0garbage")
        (heard,) = await telegram.receive(1)
    assert "could not be transcribed: its output is not text" in heard
    assert "garbage" not in heard


async def test_a_conversation_can_be_aloud_always_or_never(
    home: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    async with gateway(home, telegram, ScriptedModel(author=answer), clock):
        for text in ("/voice on", "one", "/voice off"):
            telegram.say(text)
        telegram.voice(b"two")
        telegram.say("/voice")
        telegram.say("/voice auto")
        telegram.voice(b"three")
        telegram.say("/voice loud")
        texts = await telegram.receive(10)
    assert aloud(telegram) == ["re: one", "re: three"]
    said = [text for text in texts if text and not text.startswith("re: ")]
    assert said == [
        "Replies here are also sent as voice messages. To stop this, send /voice off.",
        "Replies here are text only. To restore the default, send /voice auto.",
        "Replies here are text only. To restore the default, send /voice auto.",
        "Voice messages get a voice reply in addition to the text.",
        "Usage: /voice on, /voice off, or /voice auto",
    ]


async def test_only_the_owner_reads_what_a_program_complained_of(
    home: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    guest = 8
    model, broken = ScriptedModel(author=answer), ["sh", "-c", "echo /home/ada >&2; exit 1"]
    async with gateway(home, telegram, model, clock, guests=[str(guest)], command=broken):
        telegram.voice(b"one", user=guest, chat=guest)
        await telegram.receive(1, guest)
        telegram.say("/voice", user=guest, chat=guest)
        _, told = await telegram.receive(2, guest)
        telegram.say("/voice")
        (known,) = await telegram.receive(1)
    assert told == "Voice messages get a voice reply in addition to the text."
    assert "/home/ada" in known


@pytest.mark.parametrize(("when", "count"), [("off", 0), ("spoken", 1), ("always", 2)])
async def test_the_setting_says_which_replies_are_aloud(
    home: Path, telegram: FakeTelegram, clock: WatchedClock, when: str, count: int
) -> None:
    async with gateway(home, telegram, ScriptedModel(author=answer), clock, when=when):
        telegram.voice(b"one")
        telegram.say("two")
        await telegram.wait_for(lambda: len(telegram.messages()) == 2 + count)
        telegram.say("/status")
        await telegram.wait_for(lambda: len(telegram.messages()) == 3 + count)
    assert len(aloud(telegram)) == count


async def test_who_asks_in_words_hears_it_too(
    home: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    script = (
        calls("voice", when="once"), says("Good **morning**."), says("quiet"),
        calls("voice", when="on"), says("from now on"), says("still"),
        calls("voice", when="auto"), says("no more"),
    )  # fmt: skip
    async with gateway(home, telegram, ScriptedModel(*script), clock):
        for number in range(1, 6):
            telegram.say(f"question {number}")
            await telegram.wait_for(partial(_has_texts, telegram, number))
        await telegram.wait_for(lambda: len(aloud(telegram)) == 3)
    assert aloud(telegram) == ["Good morning.", "from now on", "still"]


def _has_texts(telegram: FakeTelegram, count: int) -> bool:
    return sum(sent.kind == "text" for sent in telegram.messages()) == count


async def test_there_is_neither_tool_nor_command_without_a_voice(
    home: Path, telegram: FakeTelegram, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=answer)
    async with gateway(home, telegram, model, clock, command=[]):
        telegram.say("hello")
        telegram.say("/voice on")
        _, told = await telegram.receive(2)
    assert "/voice" in told
    assert "no command" in told.lower() or "unknown" in told.lower()
    assert "voice" not in [tool.name for prompt in model.prompts for tool in prompt.tools.specs]
    assert json.dumps(telegram.commands.get("default", {})).find('"voice"') < 0
