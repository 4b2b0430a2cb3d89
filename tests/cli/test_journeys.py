"""What a person sees in the terminal, on the way through a task, at 80 and at 40 columns.

A real `nanobot agent` with a real model server in front of it. With `NANOBOT_PICTURES=FOLDER` each
journey leaves its pictures there."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from nanobot.clock import SystemClock
from nanobot.messages import TURN_STOPPED, Message, ToolCall
from nanobot.session.manager import SessionManager
from tests.doubles.openai.answers import Answer
from tests.doubles.openai.faults import Paused, Stall
from tests.doubles.openai.server import FakeOpenAI
from tests.screen import PATIENCE, ChatScreen, chat_screen
from tests.support import PICTURES

pytestmark = [pytest.mark.process, pytest.mark.parametrize("columns", [80, 40])]

LONG = """\
## Plan

Two steps, and **nothing** else:

1. Read the file
   - once
     - and never again
2. Count its lines

```python
def count(path: str) -> int:
    return len(open(path).readlines())
```

| file | lines |
|---|---|
| notes.txt | 12 |
| diary.txt | 1204 |

> That was all.
"""

Start = Callable[..., AsyncIterator[ChatScreen]]


class Journey:
    """A person at a terminal of `columns`, with a home and a model server."""

    def __init__(self, home: Path, columns: int, environ: dict[str, str], name: str) -> None:
        self.home, self.columns, self.environ, self.name = home, columns, environ, name
        self.model = FakeOpenAI([])
        self._pictures = 0

    def configure(self, **sections: object) -> None:
        """Write the configuration. The model is the server."""
        model = {
            "provider": "openai",
            "name": "fake-model",
            "base_url": self.model.base_url,
            "api_key": "k",
            "context_window": 32_000,
        }
        self.home.mkdir(mode=0o700, exist_ok=True)
        path = self.home / "config.yaml"
        path.write_text(json.dumps({"model": model, **sections}))
        path.chmod(0o600)

    @asynccontextmanager
    async def screen(self, *arguments: str, **variables: str) -> AsyncIterator[ChatScreen]:
        """Run the program until the prompt is there."""
        environ = {**self.environ, **variables}
        async with chat_screen(*arguments, environ=environ, size=(self.columns, 24)) as screen:
            await screen.wait_for("/help")
            await screen.rest()
            yield screen

    async def start_gateway(self) -> asyncio.subprocess.Process:
        """Start `nanobot gateway`, and return it when it takes messages."""
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "nanobot", "gateway",
            env=self.environ, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        )  # fmt: skip
        assert process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            said = b""
            while b"ready" not in said:
                said += (line := await process.stdout.readline())
                assert line, f"the gateway ended: {said!r}"
        return process

    def look(self, screen: ChatScreen) -> None:
        """Check what holds for every screen, and leave a picture."""
        width = screen.screen.columns
        assert all(len(line) <= width for line in screen.text.split("\n"))
        self._pictures += 1
        if PICTURES:
            drawn = screen.draw(self.name, name=f"j{self._pictures}")
            Path(PICTURES, f"{self.name}-{self.columns}-{self._pictures}.svg").write_text(drawn)

    @property
    def stored(self) -> list[Message]:
        """All messages of the terminal's conversations, oldest first."""
        sessions = SessionManager(self.home / "sessions", SystemClock())
        found = [
            one for info in sessions.list_sessions() for one in sessions.read_messages(info.key)
        ]
        return sorted(found, key=lambda one: str(one.timestamp))


@pytest.fixture
async def journey(
    home: Path, environment: dict[str, str], columns: int, request: pytest.FixtureRequest
) -> AsyncIterator[Journey]:
    name = re.sub(r"^test_|\[.*", "", request.node.name)
    one = Journey(home, columns, environment, name)
    async with one.model:
        one.configure()
        yield one


def count(screen: ChatScreen, text: str) -> int:
    """Return how often `text` was printed, wherever lines were wrapped."""
    return " ".join(screen.everything.split()).count(text)


async def test_a_long_answer_is_rendered_once_with_its_code_and_table(journey: Journey) -> None:
    journey.model.then(Answer(LONG))
    async with journey.screen() as screen:
        screen.type("How do I count lines?\r")
        await screen.wait_for("That was all.")
        await screen.rest()
        journey.look(screen)
        shown = screen.everything
        for text in ("Plan", "def count(path: str) -> int:", "diary.txt", "That was all."):
            assert count(screen, text) == 1, text
        for raw in ("##", "**", "```", "|---|"):
            assert raw not in shown


async def test_no_raw_markdown_is_on_the_screen_while_it_streams(journey: Journey) -> None:
    gate = asyncio.Event()
    answer = "A **bold** word.\n\n- one\n- two\n\n```python\nx = 1\n```\n\nAnd *this* is not done."
    journey.model.then(Paused(gate, Answer(answer), frames=len(answer) // 12 - 1))
    async with journey.screen() as screen:
        screen.type("Go on\r")
        await screen.wait_for("x = 1")
        await screen.rest()
        journey.look(screen)
        assert "**" not in screen.text
        assert "```" not in screen.text
        gate.set()
        await screen.wait_for("not done.")
        await screen.rest()
        assert [count(screen, one) for one in ("bold", "x = 1", "not done")] == [1, 1, 1]


async def test_what_was_written_before_a_stop_stays_and_the_model_goes_on_from_it(
    journey: Journey,
) -> None:
    begun = Answer("The first of three parts is about bread and butter, and the second one")
    journey.model.then(Stall(6, begun), Answer("is about jam."))
    async with journey.screen() as screen:
        screen.type("Tell me\r")
        await screen.wait_for("of three parts")
        screen.type("\x03")
        await screen.wait_for(lambda seen: "stopped" in seen.text.lower())
        await screen.rest()
        journey.look(screen)
        assert count(screen, "The first of three parts") == 1
        assert screen.everything.lower().count("stopped") == 1
        screen.type("go on\r")
        await screen.wait_for("about jam.")
        await screen.rest()
        journey.look(screen)
    asked = [str(one.get("content")) for one in journey.model.requests[-1].messages]
    assert any(one.startswith("The first of three parts") for one in asked)
    assert any(TURN_STOPPED in one or "(stopped)" in one for one in asked)
    kept = [(one.role, one.ended) for one in journey.stored]
    assert kept == [
        ("user", ""), ("assistant", ""), ("user", "stopped"), ("user", ""), ("assistant", "")
    ]  # fmt: skip


async def test_a_message_typed_during_an_answer_stands_below_it(journey: Journey) -> None:
    gate = asyncio.Event()
    first = Answer("This answer takes a while to write, word after word, until its end.")
    journey.model.then(Paused(gate, first, 4), Answer("And this is the second answer."))
    async with journey.screen() as screen:
        screen.type("one\r")
        await screen.wait_for("This answer takes")
        screen.type("two more\r")
        await screen.wait_for("two more")
        await screen.rest()
        journey.look(screen)
        gate.set()
        await screen.wait_for("second answer.")
        await screen.rest()
        journey.look(screen)
        flat = " ".join(screen.everything.split())
        assert "This answer takes a while to write, word after word, until its end." in flat
        assert flat.count("And this is the second answer.") == 1


async def test_a_long_paste_is_one_message_that_does_not_fill_the_screen(journey: Journey) -> None:
    text = "\n".join(f"line {number} of the log" for number in range(1, 121))
    journey.model.then(Answer("I have read it."))
    async with journey.screen() as screen:
        screen.type("What is wrong here? ")
        screen.paste(text)
        await screen.wait_for("120 lines")
        await screen.rest()
        journey.look(screen)
        screen.type("\r")
        await screen.wait_for("I have read it.")
        await screen.rest()
        journey.look(screen)
        assert screen.everything.count("of the log") <= 10
    assert journey.stored[0].content.count("\n") == 119
    assert journey.stored[0].content.endswith(text)


async def test_a_chat_of_last_week_is_found_by_a_word_in_it(journey: Journey) -> None:
    await tell_last_week(journey.home)
    journey.model.then(Answer("You wanted a green kettle."))
    async with journey.screen("--resume", "kettle") as screen:
        await screen.wait_for("kettle")
        await screen.rest()
        journey.look(screen)
        screen.type("\r")
        await screen.wait_for("continuing")
        screen.type("Which one was it?\r")
        await screen.wait_for("You wanted a green kettle.")
        await screen.rest()
        journey.look(screen)
    asked = [str(one.get("content")) for one in journey.model.requests[-1].messages]
    assert any("green kettle from the market" in one for one in asked)


async def tell_last_week(home: Path) -> None:
    """Store two conversations of last week."""
    sessions, then = SessionManager(home / "sessions", SystemClock()), SystemClock().now()
    for key, said in (
        ("cli:kitchen", ("I want the green kettle from the market.", "Noted.")),
        ("cli:garden", ("The roses need water.", "I will remind you.")),
    ):
        session = await sessions.get_or_create(key)
        session.set_metadata(scope="owner")
        for number, text in enumerate(said):
            when = then - timedelta(days=7, minutes=-number)
            role = "assistant" if number else "user"
            session.add_message(Message(role, text, when, turn_id=f"{key}-1"))  # type: ignore[arg-type]
        await sessions.save(session)
    await sessions.close()


async def test_a_command_is_approved_with_one_key(journey: Journey) -> None:
    journey.configure(tools={"approval": {"exec": "ask"}})
    command = {"command": "echo done-it", "network": True}
    ask = Answer("I'll look.", (ToolCall("c1", "exec", json.dumps(command)),))
    journey.model.then(ask, Answer("It worked."))
    async with journey.screen() as screen:
        screen.type("Run it\r")
        await screen.wait_for("y: Approve")
        await screen.rest()
        journey.look(screen)
        screen.type("y\r")
        await screen.wait_for("It worked.")
        await screen.rest()
        journey.look(screen)


async def test_while_the_model_is_away_one_sees_why_and_when_it_is_asked_again(
    journey: Journey,
) -> None:
    port = journey.model.port
    await journey.model.stop()
    async with journey.screen() as screen:
        screen.type("Are you there?\r")
        await screen.wait_for(lambda seen: count(seen, "trying again in") > 0)
        assert count(screen, "model unreachable: connection refused") == 1
        journey.look(screen)
        async with FakeOpenAI([Answer("I am back.")], port=port):
            await screen.wait_for("I am back.")
            await screen.rest()
            journey.look(screen)
            assert count(screen, "I am back.") == 1
            assert count(screen, "unreachable") == 0


async def test_a_resize_in_the_middle_prints_nothing_twice(journey: Journey) -> None:
    gate = asyncio.Event()
    journey.model.then(Paused(gate, Answer(LONG), 20))
    async with journey.screen() as screen:
        screen.type("How do I count lines?\r")
        await screen.wait_for("Plan")
        screen.resize(60, 18)
        await screen.rest()
        screen.resize(100, 30)
        await screen.rest()
        gate.set()
        await screen.wait_for("That was all.")
        await screen.rest()
        journey.look(screen)
        assert [count(screen, one) for one in ("diary.txt", "That was all.")] == [1, 1]


async def test_without_colour_nothing_is_lost(journey: Journey) -> None:
    journey.model.then(Answer(LONG))
    async with journey.screen(NO_COLOR="1") as screen:
        screen.type("How do I count lines?\r")
        await screen.wait_for("That was all.")
        await screen.rest()
        journey.look(screen)
        cells = [
            screen.screen.buffer[row][column]
            for row in range(screen.screen.lines)
            for column in range(screen.screen.columns)
        ]
        assert {cell.fg for cell in cells} | {cell.bg for cell in cells} == {"default"}


@pytest.mark.parametrize(
    ("asked", "answered"),
    [
        ("明日の天気は？", "明日は晴れです。傘はいりません。"),
        ("ما الطقس غدا؟", "الطقس غدا مشمس، ولا حاجة إلى مظلة."),
    ],
    ids=["japanese", "arabic"],
)
async def test_other_scripts_are_whole(journey: Journey, asked: str, answered: str) -> None:
    journey.model.then(Answer(answered))
    async with journey.screen() as screen:
        screen.type(f"{asked}\r")
        await screen.wait_for(lambda seen: count(seen, answered[-6:]) > 0)
        await screen.rest()
        journey.look(screen)
    assert [one.content for one in journey.stored] == [asked, answered]


async def test_the_first_start_without_a_model_says_how_to_connect_one(
    journey: Journey,
) -> None:
    (journey.home / "config.yaml").unlink()
    async with journey.screen() as screen:
        assert "nanobot onboard" in " ".join(screen.text.split())
        journey.look(screen)
        screen.type("My dentist is Dr. Kim, remember that.\r")
        await screen.wait_for(lambda seen: seen.text.count("Kim") > 1)
        await screen.rest()
        journey.look(screen)


async def test_when_the_gateway_is_killed_in_an_answer_the_terminal_goes_on_and_prints_it_once(
    journey: Journey,
) -> None:
    gate, answer = asyncio.Event(), Answer("The whole answer, from its first word to the last one.")
    journey.model.then(Paused(asyncio.Event(), answer, 4), Paused(gate, answer, 4))
    gateway = await journey.start_gateway()
    async with journey.screen() as screen:
        screen.type("Answer me\r")
        await screen.wait_for("The whole answer")
        gateway.kill()
        await gateway.wait()
        await screen.wait_for(lambda seen: count(seen, "The whole answer") > 1)  # it streams again
        gate.set()
        await screen.wait_for(lambda seen: count(seen, "to the last one.") > 0)
        await screen.rest()
        journey.look(screen)
        assert count(screen, "to the last one.") == 1
    assert [one.content for one in journey.stored] == ["Answer me", answer.text]


async def test_in_a_pipe_each_line_is_a_message_and_answers_are_plain_text(
    journey: Journey,
) -> None:
    journey.model.then(Answer("It is **blue**."), Answer("| a | b |\n|---|---|\n| 1 | 2 |"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "nanobot", "agent", env=journey.environ,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    printed, _ = await process.communicate(b"What colour is the sky?\nA table\n")
    assert process.returncode == 0
    shown = printed.decode()
    assert "\x1b" not in shown
    assert shown.index("blue") < shown.index("1")
    assert [one.content for one in journey.stored][::2] == ["What colour is the sky?", "A table"]
