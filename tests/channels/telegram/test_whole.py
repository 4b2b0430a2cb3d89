"""A whole nanobot on Telegram under load."""

from __future__ import annotations

from pathlib import Path

from nanobot.providers.port import Prompt, Reply
from nanobot.testing import ScriptedModel, calls, says
from tests.channels.telegram.whole import OWNER, Writer, repeat
from tests.doubles.telegram import FakeTelegram
from tests.support import Gate, talking

QUEUE = "queue"
"""Each message has its own answer."""

GROUP = -500
PHOTO, FILE, COMMAND = 101, OWNER, 102
"""Senders of a photo, a file and a command first. The others talk."""
OTHERS = range(103, 149)


def answer(prompt: Prompt) -> Reply:
    newest = prompt.messages[-1]
    if newest.images:
        return says("re: a picture")
    if "send me my notes" in newest.text:
        return calls("message", text="look", media=["notes.txt"])
    if newest.role == "tool":
        return says("re: send me my notes")
    return repeat(prompt)


def everybody_talks(telegram: FakeTelegram, round_: int) -> None:
    for person in OTHERS:
        telegram.say(f"{person} says {round_}", user=person)
    telegram.say("nobody asks you", user=OWNER, chat=GROUP)
    telegram.say(f"@{telegram.username} group {round_}", user=OWNER, chat=GROUP)


async def test_fifty_chats_at_once_are_each_answered_in_order(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "notes.txt").write_text("rain")
    telegram.group(GROUP)
    people = {
        "allow_from": [str(person) for person in (PHOTO, COMMAND, *OTHERS)],
        "groups": "mention",
        "allow_groups": {str(GROUP): ["*"]},
    }
    gate = Gate()
    async with talking(
        tmp_path, telegram, Writer(answer, gate), settings=people, NANOBOT_AGENT__ON_BUSY=QUEUE
    ):
        telegram.photo(user=PHOTO, caption="what is this?")
        telegram.say("send me my notes", user=FILE)
        telegram.say("/help", user=COMMAND)
        for round_ in range(2):
            everybody_talks(telegram, round_)
        writing = [PHOTO, FILE, *OTHERS]
        await telegram.wait_for(lambda: all(telegram.drafts(chat) for chat in writing))
        gate.opened.set()
        for person in OTHERS:
            expected = [f"re: {person} says {round_}" for round_ in range(2)]
            assert await telegram.receive(2, person) == expected
        assert await telegram.receive(2, GROUP) == [
            f"re: [from Robin]\ngroup {round_}" for round_ in range(2)
        ]
        assert await telegram.receive(1, PHOTO) == ["re: a picture"]
        assert await telegram.receive(2, FILE) == ["look", "re: send me my notes"]
        (help_text,) = await telegram.receive(1, COMMAND)
    file = telegram.messages(FILE)[0].file
    assert file is not None
    assert (file.name, file.content) == ("notes.txt", b"rain")
    assert "/help" in help_text
    assert telegram.violations == []


BACKLOG = 120
"""More than the server's limit of 100 at once. Each takes some milliseconds of two servers, so the
thousands are in the bench."""


async def test_what_came_while_it_was_down_is_answered_in_order(
    tmp_path: Path, telegram: FakeTelegram
) -> None:
    chats = range(201, 221)
    for number in range(BACKLOG):
        telegram.say(f"message {number}", user=chats[number % 20])
    people = {"allow_from": [str(chat) for chat in chats]}
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, telegram, model, settings=people, NANOBOT_AGENT__ON_BUSY=QUEUE):
        await telegram.wait_for(lambda: len(telegram.calls_of("sendMessage")) >= BACKLOG)
        for offset, chat in enumerate(chats):
            expected = [f"re: message {number}" for number in range(offset, BACKLOG, 20)]
            assert await telegram.receive(len(expected), chat) == expected
        await telegram.wait_for(lambda: telegram.pending == 0)
    assert len(telegram.calls_of("sendMessage")) == BACKLOG
    assert telegram.violations == []
