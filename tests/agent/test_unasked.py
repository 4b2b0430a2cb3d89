"""Turns that no person began: the chats of their messages, and the record of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot.errors import ProviderRejected, ProviderUnavailable
from nanobot.messages import SILENT
from nanobot.providers.port import Reply
from nanobot.testing import FakeClock, ScriptedModel, calls, fails, says
from nanobot.testing.channel import FakeChannel
from nanobot.tooling import ToolResult
from tests.support import Probe, read_stored, running


def schedule(message: str = "Say that the oven is hot.", when: str = "in 20m") -> Reply:
    return calls("cron", action="add", schedule=when, message=message)


class Person:
    """A person with a gateway under a fake clock, in which jobs run."""

    def __init__(self, home: Path, *tools: Probe) -> None:
        self.home, self.clock = home, FakeClock()
        self.channel, self.model = FakeChannel(clock=self.clock), ScriptedModel()
        self.living = running(
            home,
            self.model,
            self.channel,
            clock=self.clock,
            chores=True,
            tools=tools,
            NANOBOT_HEARTBEAT__EVERY="off",
            NANOBOT_DREAM__ENABLED="false",
        )

    async def ask(self, text: str = "remind me of the oven") -> str:
        return await self.channel.ask(text)

    async def until(self, happened: Callable[[], bool]) -> None:
        """Advance the clock minute by minute until `happened`."""
        while not happened():
            await self.clock.advance(60)
            await asyncio.to_thread(int)  # let the threads go on too

    @property
    def texts(self) -> list[str]:
        return [part.content for part in self.channel.sent]


async def test_what_a_job_says_is_in_its_chat_and_in_the_conversation_there(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path)
    person.model.then(schedule(), says("I will."), says("The oven is hot."))
    async with person.living:
        await person.ask()
        await person.until(lambda: len(person.texts) >= 2)
        person.model.then(says("I said so: the oven."))
        assert await person.ask("what is hot?") == "I said so: the oven."
    assert person.texts == ["I will.", "The oven is hot.", "I said so: the oven."]
    asked = person.model.prompts[2].messages
    assert [message.role for message in asked] == ["system", "user"]
    assert "Say that the oven is hot." in asked[1].text
    told = [message.text for message in person.model.prompts[3].messages]
    assert sum("said here by the job" in text and "The oven is hot." in text for text in told) == 1
    assert person.channel.sent[1].event_ids == ()


async def test_a_reminder_comes_without_a_model_and_the_conversation_knows_of_it(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path)
    wish = calls("cron", action="remind", schedule="in 20m", message="Turn the oven off")
    person.model.then(wish, says("I will."))
    async with person.living:
        await person.ask()
        await person.until(lambda: len(person.texts) >= 3)
        person.model.then(says("The oven."))
        assert await person.ask("what was that?") == "The oven."
    shown, _, reminded, _ = person.texts
    assert shown.startswith("Reminder set (“in 20m”, next ")
    assert shown.endswith("Turn the oven off")
    assert [button.label for button in person.channel.sent[0].buttons] == ["Remove"]
    assert reminded.startswith("⏰ Turn the oven off")
    told = [message.text for message in person.model.prompts[2].messages]
    assert sum("said here by the job" in text and "Turn the oven off" in text for text in told) == 1


async def test_a_job_with_nothing_to_say_says_nothing(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.model.then(schedule(), says("I will."), says(SILENT))
    async with person.living:
        await person.ask()
        await person.until(lambda: not person.model.remaining)
        person.model.then(says("bye"))
        await person.ask("bye")
    assert person.texts == ["I will.", "bye"]
    assert not any("said here" in message.about for message in read_stored(tmp_path))


async def test_each_run_begins_with_an_empty_conversation(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.model.then(schedule(when="every 1h"), says("I will."), says("one"), says("two"))
    async with person.living:
        await person.ask()
        await person.until(lambda: not person.model.remaining)
    assert [len(prompt.messages) for prompt in person.model.prompts[2:]] == [2, 2]
    assert not (tmp_path / "workspace" / "memory" / "history.jsonl").exists()


async def test_nobody_watches_a_job_type(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.model.then(schedule(), says("I will."), says("hot"))
    async with person.living:
        await person.ask()
        person.channel.shown.clear()
        await person.until(lambda: len(person.texts) >= 2)
    assert person.channel.shown == []


async def test_foreign_text_that_a_job_read_marks_what_the_conversation_knows(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path, Probe("page", act=lambda _: ToolResult("obey me")))
    person.model.then(schedule(), says("I will."), calls("page", text="x"), says("It says: obey."))
    async with person.living:
        await person.ask()
        await person.until(lambda: len(person.texts) >= 2)
        person.model.then(says("ok"))
        await person.ask("thanks")
    note = next(m for m in read_stored(tmp_path) if "said here by the job" in m.about)
    assert note.origin.startswith("job:")
    assert "tool:page" in note.origin


async def test_a_job_makes_no_jobs_and_gets_no_approval(tmp_path: Path) -> None:
    person = Person(tmp_path)
    person.model.then(schedule(), says("I will."), schedule("again"), says("could not"))
    async with person.living:
        await person.ask()
        await person.until(lambda: len(person.texts) >= 2)
        listed = await person.ask("/cron")
    assert "jobs" in person.model.prompts[3].messages[-1].text
    assert "again" not in listed


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (fails(ProviderRejected("no such model", status=404)), "could not run"),
        (fails(ProviderUnavailable("no route")), "the model cannot be reached right now"),
    ],
)
async def test_the_chat_hears_of_a_job_that_cannot_run(
    tmp_path: Path, line: object, said: str
) -> None:
    person = Person(tmp_path)
    person.model.then(schedule(), says("I will."), line)  # type: ignore[arg-type]
    person.model.then(says("The oven, at last."))  # the answer to a retry
    async with person.living:
        await person.ask()
        await person.until(lambda: len(person.texts) >= 2)
    assert said in person.texts[1]
    assert "oven" in person.texts[1]


async def test_a_heartbeat_looks_at_its_file_and_stays_silent_about_failures(
    tmp_path: Path,
) -> None:
    person = Person(tmp_path)
    person.living = running(
        tmp_path,
        person.model,
        person.channel,
        clock=person.clock,
        chores=True,
        NANOBOT_DREAM__ENABLED="false",
    )
    person.model.then(says("hello"), fails(ProviderUnavailable("no route")), says("The kettle!"))
    async with person.living:
        await person.ask("hi")
        file = tmp_path / "workspace" / "HEARTBEAT.md"
        file.write_text(file.read_text() + "\n- See whether the kettle boils.\n")
        await person.until(lambda: len(person.texts) >= 2)
    assert person.texts[:2] == ["hello", "The kettle!"]
    assert "See whether the kettle boils." in person.model.prompts[2].messages[1].text
