"""The conversation of `bench.crash_routines`, its model over HTTP, and its clock."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import os
import re
import signal
import socket
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from bench.wire import Platform, Wire
from nanobot.channel import ChannelHost
from nanobot.clock import SystemClock
from nanobot.messages import ToolCall
from tests.doubles.openai.answers import Answer, ChatRequest
from tests.doubles.openai.server import FakeOpenAI

JUMPS = {"j1": 3_700.0, "j2": 7_300.0}
"""Jumps of the clock in seconds: past the first due times, and past two of the recurring job."""

EFFECTS = "effects.txt"
NO_QUESTION = "No such question is pending"

_TEXTS = {
    "s1": "s1: schedule a tick and an alarm",
    "e0": "e0: look at the file, then add a line to it",
    "e1": "e1: in 2 hours the second alarm",
    "e2": "e2: let a helper look about",
    "e3": "e3: a plain question meanwhile",
    "e4": "e4: the last one",
}
_SCHEDULED = {
    "s1": (("every 1h", "the tick"), ("in 1h", "the first alarm")),
    "e1": (("in 2h", "the second alarm"),),
}
_CODE = re.compile(r"/approve (\w+)")
_MARK = re.compile(r"\b([es]\d): ")
_REPORT = re.compile(r"the helper “(h\d)” (has finished|was interrupted|ran out|failed)")
_REPORT_TOLD = re.compile(r"\bh1 (has finished|was interrupted|ran out|failed)")
_JOB = re.compile(
    r"\[scheduled job .* due ([^;\]]*)(?:; it is now [^,\]]*, so this is late( and covers .*)?)?\]"
    r"\n(.*)"
)
_SAID = re.compile(r"(the .*) due (.*) missed (\d) (\w+) #\d+")


@dataclass(frozen=True, slots=True)
class Alarm:
    """A job's message, with the words of one answer of the model."""

    text: str
    what: str
    due: str
    missed: int
    how: str


@dataclass
class Chat(Platform):
    """The platform, which is never killed, with the time.

    `behind` is its delay to the real time. `seen` and `tried_in` are the lives in which a question
    first arrived and was first answered."""

    behind: float = 0.0
    life: int = 0
    jumped: dict[str, float] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    tried_in: dict[str, int] = field(default_factory=dict)

    def hear(self, line: str) -> bool:
        """Process one line from the gateway."""
        told = json.loads(line)
        if "jump" in told:
            self.jumped[told["jump"]] = JUMPS[told["jump"]]
        if "try" in told:
            self.tried_in.setdefault(told["try"], self.life)
        if "sent" in told and told["text"].startswith("**"):
            self.seen.setdefault(_CODE.findall(told["text"])[0], self.life)
        return super().hear(line)

    def look_at(self, home: object) -> None:
        """Record that a process has ended."""
        self.life += 1

    @property
    def ahead(self) -> float:
        """Return the seconds by which the clock is ahead of the real one."""
        return sum(self.jumped.values()) - self.behind

    @property
    def alarms(self) -> set[Alarm]:
        """Return the jobs' messages. The same words that came twice count once."""
        found = [(text, _SAID.fullmatch(text)) for _, text in self.delivered]
        return {Alarm(t, m[1], m[2], int(m[3]), m[4]) for t, m in found if m is not None}

    def has_reported(self) -> bool:
        """True if the subagent's report arrived in the chat."""
        return any(_REPORT_TOLD.search(text) for _, text in self.delivered)


class ChatClock(SystemClock):
    """The time of a chat, which passes normally and jumps."""

    def __init__(self, chat: Chat) -> None:
        super().__init__("UTC")
        self._chat, self._jump_event = chat, asyncio.Event()

    def now(self) -> datetime:
        return super().now() + timedelta(seconds=self._chat.ahead)

    def monotonic(self) -> float:
        return super().monotonic() + self._chat.ahead

    async def sleep(self, seconds: float) -> None:
        until = self.monotonic() + seconds
        while (left := until - self.monotonic()) > 0:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self._jump_event.wait()

    def wake_sleepers(self) -> None:
        """Wake the sleepers that are due."""
        sleeping, self._jump_event = self._jump_event, asyncio.Event()
        sleeping.set()


class Talk(Wire):
    """The conversation. A question is answered when it arrives. Questions of an earlier life are
    answered first, and must not count any more."""

    platform: Chat

    def __init__(self, link: socket.socket, platform: Chat, clock: ChatClock) -> None:
        super().__init__(link, platform)
        self._clock = clock

    async def talk(self, host: ChannelHost) -> None:
        chat = self.platform
        await self._answer_to(host, "e0")
        await self._answer_to(host, "e1")
        await self._answer_to(host, "e2")
        if "at work" in chat.answer_to("e2"):
            await self.until(chat.has_reported)
        self._jump("j1")
        await self.until(lambda: len(chat.alarms) >= 2)
        self._jump("j2")
        await self._answer_to(host, "e3")
        last = 4 if "scheduled" in chat.answer_to("e1") else 3
        await self.until(lambda: len(chat.alarms) >= last)
        await self._answer_to(host, "e4")

    async def say_it(self, host: ChannelHost, event: str) -> None:
        """Send the message of this event."""
        await self.say(host, event, _TEXTS[event])

    async def _answer_to(self, host: ChannelHost, event: str) -> None:
        await self.say_it(host, event)
        chat = self.platform
        while not chat.has_answered(event):
            asked = (code for code in chat.seen if not chat.has_answered(code))
            code = next(asked, None)
            if code is not None:
                await self.ask(host, code, f"/approve {code}")
                continue
            known = len(chat.seen)
            await self.until(lambda: chat.has_answered(event) or len(chat.seen) > known)  # noqa: B023

    def _jump(self, name: str) -> None:
        if name not in self.platform.jumped:
            self._tell({"jump": name})
            self._clock.wake_sleepers()


class Prelude(Talk):
    """The first life: jobs are created, and a question is pending when the process dies."""

    async def talk(self, host: ChannelHost) -> None:
        await self._answer_to(host, "s1")
        await self.say_it(host, "e0")
        await self.until(lambda: bool(self.platform.seen))
        os.kill(os.getpid(), signal.SIGKILL)


class ModelServer:
    """The model: a server in its own process, which ends with this one.

    Each answer has a unique number, so that an answer given twice shows."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair()
        if os.fork() == 0:
            self._link.close()
            _be_model(theirs)
        theirs.close()
        self.base_url = self._link.makefile().readline().strip()


def _be_model(link: socket.socket) -> None:
    """Run in the child. Does not return."""
    logging.disable()  # its clients are killed on purpose
    try:
        asyncio.run(_serve(link))
    except BaseException:  # noqa: BLE001 - a child must never return
        traceback.print_exc()
    finally:
        os._exit(0)


async def _serve(link: socket.socket) -> None:
    numbers = itertools.count(1)
    reader, writer = await asyncio.open_connection(sock=link)
    async with FakeOpenAI(lambda request: answer_to_request(request, next(numbers))) as server:
        writer.write(server.base_url.encode() + b"\n")
        await reader.read()


def answer_to_request(request: ChatRequest, number: int) -> Answer:
    said = [m for m in request.messages if m["role"] == "assistant" and not m.get("tool_calls")]
    start = list(request.messages).index(said[-1]) + 1 if said else 1
    tail = request.messages[start:]
    heard = "\n".join(_text(m) for m in tail if m["role"] == "user")
    results = [_text(m) for m in tail if m["role"] == "tool"]
    if job := _JOB.search(heard):
        return _of_job(job, results, number)
    if heard.startswith("h1 "):
        return Answer(f"h1 saw it #{number}") if results else _call("list_dir", path=".")
    marks = _MARK.findall(heard)
    outcome = next_step_for(marks[-1] if marks else "", results)
    if isinstance(outcome, Answer):
        return outcome
    about = " ".join((*marks, *(f"{h} {how}" for h, how in _REPORT.findall(heard))))
    return Answer(f"answer to {about} {outcome} #{number}".replace("  ", " "))


def next_step_for(mark: str, results: Sequence[str]) -> Answer | str:
    """Return the next call that a message needs, or a summary of the results."""
    match mark:
        case "s1" | "e1":
            return _schedule(_SCHEDULED[mark], results)
        case "e0" if not results:
            return _call("read_file", path=EFFECTS)
        case "e0" if len(results) == 1:
            return _call("exec", command=f"echo e0 >> {EFFECTS}")
        case "e2" if not results:
            return _call("spawn", task="h1 look about", label="h1")
    return _how(results[-1]) if results else ""


def _schedule(wanted: Sequence[tuple[str, str]], results: Sequence[str]) -> Answer | str:
    """Add the jobs. If it is unknown whether one was added, list the jobs first."""
    made, sure = 0, True
    for result in results:
        if not sure:
            made, sure = made + (wanted[made][1] in result), True
        elif "interrupted" in result:
            sure = False
        elif "is scheduled" in result:
            made += 1
        else:
            return "refused"
    if not sure:
        return _call("cron", action="list")
    if made < len(wanted):
        return _call("cron", action="add", schedule=wanted[made][0], message=wanted[made][1])
    return "scheduled"


def _of_job(job: re.Match[str], results: Sequence[str], number: int) -> Answer:
    due, missed, what = job[1], int(bool(job[2])), job[3]
    if "tick" in what and not results:
        return _call("exec", command=f"echo '{due}' >> {EFFECTS}")
    return Answer(
        f"{what} due {due} missed {missed} {_how(results[0]) if results else 'said'} #{number}"
    )


def _how(result: str) -> str:
    """Return the outcome of a call in a word or two."""
    if "interrupted" in result:
        return "unknown"
    if "is at work" in result:
        return "at work"
    return "refused" if result.startswith("Error") else "done"


def _call(tool: str, **arguments: str) -> Answer:
    return Answer("", (ToolCall(f"call-{os.urandom(4).hex()}", tool, json.dumps(arguments)),))


def _text(message: Mapping[str, object]) -> str:
    content = message.get("content")
    parts = content if isinstance(content, list) else [{"text": content or ""}]
    return "".join(str(part.get("text", "")) for part in parts)
