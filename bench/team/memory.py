"""Memory while scopes move between workers, with speakers and faults.

Ann, who is the owner, Bob, and a group of both write on Telegram to all workers. In each round they
state facts, the conversation is consolidated by `/compact`, a line is typed into MEMORY.md by hand,
`/dream` learns, and now and then a fact is forgotten. While Dream asks its model, or writes its
results, the worker with the memory is killed, stopped beyond its lease and continued, or asked to
end. While a person confirms `/forget`, a worker is killed. In the end the owner has a fact erased.
The model words each learned fact differently every time, so that a fact learned twice shows. The
invariants are in `bench.team.memory_verdict`."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import random
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import psycopg
from aiohttp import web

from bench.team.database import team_database
from bench.team.memory_verdict import GROUP, MARKS, SCOPES, MemoryRecord, faults_of_memory
from bench.team.model import author
from bench.team.workers import Balancer, Worker, Workers
from nanobot.cli.client import Client
from nanobot.errors import NanobotError
from nanobot.messages import ToolCall
from nanobot.team.membership import TTL
from nanobot.team.schema import TABLES
from tests.doubles.openai.answers import Answer, ChatRequest, Exchange, Step
from tests.doubles.openai.server import FakeOpenAI, Scripted
from tests.doubles.telegram import TOKEN, FakeTelegram

KILL, PAUSE, END = HARMS = ("kill", "pause", "end")
FORGETTING, ERASING = "forgetting", "erasing"

_FACT = re.compile(r"\bknow (\w+[cd]\d+): ([^\n;\[(”]+)")
_ENTRY = re.compile(r"^\[(\d+)\] ", re.MULTILINE)
_UPDATE = re.compile(r"^\[\d+\] (?:add|replace): (.*)$", re.MULTILINE)
_PATIENCE = 90.0
"""Seconds after which an answer is considered lost."""
_FAILED = re.compile(
    "could not|cannot be reached|unavailable|using this memory|went wrong|interrupted|stop"
)
_LOOK_SECONDS = 0.1
_ERASED = "Erased|[Nn]othing|busy|not valid|interrupted|could not|answer to"
_SYLLABLES = [f"{one}{two}" for one in "bdfgklmnprstvz" for two in "aeiou"]


class Learner:
    """The model. `at_phase` gets the scope and the number of the phase of Dream (0 for the
    consolidation), and the answer waits for its result."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._calls = count(1)
        self.at_phase: Callable[[str, int], asyncio.Event | None] = lambda _, __: None

    def __call__(self, request: ChatRequest) -> Scripted:
        system, text = str(request.messages[0].get("content")), request.last_user_text
        if "save_memory" in json.dumps(request.body.get("tool_choice")):
            return self._hold(self._condense(text), text, 0)
        for number, answer in ((1, self._extract), (2, _integrate)):
            if system.startswith(f"# Dream, phase {number}"):
                return self._hold(Answer(json.dumps(answer(text))), text, number)
        return author(request)

    def _hold(self, answer: Answer, request: str, phase: int) -> Step:
        found = MARKS.search(request)
        until = self.at_phase(found[1], phase) if found else None
        return answer if until is None else DelayedAnswer(answer, until)

    def _condense(self, request: str) -> Answer:
        known, _, talk = request.partition("\n## Conversation to Process")
        memory = known.partition("## Current Long-term Memory\n")[2].strip()
        told = {mark: fact.strip() for mark, fact in _FACT.findall(talk)}
        marks = [mark for mark in told if _kind(mark) == "c"]
        # After messages of another person, lines are stored as written, or are pending.
        quoted = [mark for mark in marks if mark.startswith(GROUP)]
        lines = [self._word(mark, told[mark]) for mark in marks if mark not in quoted]
        entry = "; ".join(f"know {mark}: {fact}" for mark, fact in told.items())
        fields = {
            "history_entry": entry or "They spoke of this and that",
            "memory_update": "\n".join([memory.replace("(empty)", ""), *lines]),
            "quotes": [f"know {mark}" for mark in quoted],
        }
        call = ToolCall(f"save_{next(self._calls)}", "save_memory", json.dumps(fields))
        return Answer("", (call,))

    def _extract(self, request: str) -> Mapping[str, object]:
        entries = _ENTRY.split(request.partition("## New entries")[2])[1:]
        found = [
            {"text": self._word(mark, fact), "entry": int(number), "quote": f"know {mark}"}
            for number, text in zip(entries[::2], entries[1::2], strict=True)
            for mark, fact in dict(_FACT.findall(text)).items()
            if _kind(mark) == "d"
        ]
        read = [int(number) for number in entries[::2]]
        return {"memory_updates": found, "processed_entries": read}

    def _word(self, mark: str, fact: str) -> str:
        return f"- {mark} {fact.strip()}, as wording {self._rng.randrange(10**6)} says"


def _integrate(request: str) -> Mapping[str, object]:
    return {"edits": [{"old": "", "new": f"- {text}"} for text in _UPDATE.findall(request)]}


def _kind(mark: str) -> str:
    return mark.rstrip("0123456789")[-1]


@dataclass(frozen=True, slots=True)
class DelayedAnswer:
    """An answer that waits for an event."""

    step: Step
    until: asyncio.Event

    async def play(self, exchange: Exchange) -> web.StreamResponse:
        """Answer after the event."""
        await self.until.wait()
        return await self.step.play(exchange)


@dataclass(frozen=True, slots=True)
class MemoryCampaign:
    """Size of the test. `harms` counts the harms to a worker while it learns, by kind, and
    `FORGETTING` the kills while a person confirms `/forget`. `share` is the share of these moments
    with a harm. `erases` erases a fact in the end."""

    workers: int
    rounds: int
    harms: Mapping[str, int]
    share: float = 0.25
    erases: bool = True


class MemoryPlay:
    """The people in their chats, and the harms to the workers."""

    def __init__(
        self,
        workers: Workers,
        telegram: FakeTelegram,
        model: Learner,
        dsn: str,
        rng: random.Random,
        size: MemoryCampaign,
    ) -> None:
        self._workers, self._telegram, self._dsn, self._rng = workers, telegram, dsn, rng
        self._size, self._left = size, Counter(size.harms)
        self._harming: set[asyncio.Task[None]] = set()
        self._numbers = count(1)
        self._words = (f"{''.join(rng.choices(_SYLLABLES, k=4))}" for _ in count())
        self.told = MemoryRecord()
        self.done: Counter[str] = Counter()
        model.at_phase = self._at_phase

    async def run(self) -> None:
        """Run everything. Raise `TimeoutError` if an answer does not arrive."""
        looking = asyncio.create_task(self._look())
        try:
            async with asyncio.TaskGroup() as group:
                for scope in SCOPES:
                    group.create_task(self._remember(scope))
            await asyncio.gather(*self._harming)
        finally:
            looking.cancel()
        if self._size.erases:
            await self._erase()

    async def _remember(self, scope: str) -> None:
        for number in range(1, self._size.rounds + 1):
            for kind in "cd":
                await self._tell(scope, f"{scope}{kind}{number}")
            await self._say(scope, "hello")
            await self._until(scope, "/compact", "[Cc]onsolidated|[Nn]othing")
            self._type(scope, f"{scope}h{number}")
            await self._until(scope, "/dream", "dreaming I learned|[Nn]othing new")
            if number % 2:
                await self._forget(scope, f"{scope}{'cdh'[number // 2 % 3]}{number}")
            await self._until(scope, "/dream-restore --list", "Version|version")

    async def _tell(self, scope: str, mark: str) -> None:
        """State a fact, and in the group a message of another person after it."""
        thing, place = next(self._words), next(self._words)
        self.told.facts[mark] = f"the {thing} of {mark} is a {place}"
        await self._say(scope, f"know {mark}: {self.told.facts[mark]}")
        if scope == GROUP and self._rng.random() < 0.3:
            await self._say(scope, "hello", user=2)

    async def _say(self, scope: str, text: str, user: int = 0) -> None:
        mark = f"m{next(self._numbers)}"
        self.told.said.setdefault(scope, []).append(mark)
        answer = rf"answer to .*\b{mark}\b"
        await self._until(scope, f"{mark}: {text}", answer, user=user, again=False)

    async def _forget(self, scope: str, mark: str) -> None:
        """Have a fact forgotten completely."""
        words = self.told.facts[mark]
        self.told.forgotten.add(mark)
        while "I remember nothing" not in await self._until(
            scope, f"/forget {words}", "will be forgotten|I remember nothing"
        ):
            idle = [one for one in self._workers.all if not one.busy]
            if idle and self._left[FORGETTING]:
                self._left[FORGETTING] -= 1
                self._start(self._harm(self._rng.choice(idle), FORGETTING))
            await self._until(
                scope, "y", "Forgotten: |interrupted|not valid|answer to", again=False
            )

    async def _erase(self) -> None:
        """Have a word of every chat erased, while another worker is killed."""
        self.told.erased = next(self._words)
        for scope in SCOPES:
            await self._say(scope, f"my word is {self.told.erased}")
            await self._until(scope, f"/note the word is {self.told.erased}", "Noted")
        while True:
            await self._until("ann", f"/forget --erase {self.told.erased}", "will be erased")
            holder = await self._holder("ann")
            others = [one for one in self._workers.all if one.name != holder]
            harm = asyncio.create_task(self._harm(self._rng.choice(others), ERASING))
            answer = await self._until("ann", "y", _ERASED, again=False)
            await harm
            if answer.startswith("Erased"):
                break
            self.done["erasures given again"] += 1
        for worker in self._workers.all:
            self.told.kept += str(await _ask(worker, "memory.search", text="what is the word"))
        query = " UNION ALL ".join(f"SELECT {name}::text FROM {name}" for name in TABLES)
        async with await psycopg.AsyncConnection.connect(self._dsn) as db:
            self.told.kept += str(await (await db.execute(query.encode())).fetchall())

    async def _look(self) -> None:
        """Read the versions of memories at any worker, as the page does, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            worker, scope = self._rng.choice(self._workers.all), self._rng.choice([*SCOPES])
            if worker.is_ready and not worker.busy:
                with contextlib.suppress(NanobotError, OSError):  # a fault is in progress
                    await _ask(worker, "memory.timeline", scope=SCOPES[scope].name)
                    self.done["looks"] += 1

    def _type(self, scope: str, mark: str) -> None:
        """Add a line to the file by hand, as an editor saves it."""
        path = SCOPES[scope].folder(self._workers.shared) / "memory" / "MEMORY.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        text = path.read_text() if path.exists() else ""
        self.told.facts[mark] = f"{next(self._words)} of {mark} by {next(self._words)}"
        line = f"- {self.told.facts[mark]}\n"
        new = path.with_name("MEMORY.md~")
        new.write_text(text + ("" if text.endswith("\n") or not text else "\n") + line)
        new.replace(path)

    async def _until(
        self, scope: str, text: str, pattern: str, *, user: int = 0, again: bool = True
    ) -> str:
        """Send `text` until an answer to it matches, and return that answer."""
        chat = SCOPES[scope].chat
        while True:
            sent = self._telegram.say(text, user=user or SCOPES[scope].user, chat=chat)

            def answers(after: int = sent) -> list[str]:
                later = (one for one in self._telegram.messages(chat) if one.message_id > after)
                wanted = f"{pattern}|{_FAILED.pattern}" if again else pattern
                return [one.text for one in later if re.search(wanted, one.text)]

            found = await self._telegram.wait_for(answers, patience=_PATIENCE)
            if re.search(pattern, found[0]):
                return found[0]
            self.done["commands given again"] += 1
            await asyncio.sleep(0.2)

    # Faults

    def _at_phase(self, scope: str, phase: int) -> asyncio.Event | None:
        """Now and then harm the worker that learns from a scope, before it is answered or while it
        writes the results."""
        due = [kind for kind in HARMS for _ in range(self._left[kind])]
        if not due or self._rng.random() > self._size.share * (1.0 if phase else 0.25):
            return None
        kind, done = self._rng.choice(due), asyncio.Event()
        self._left[kind] -= 1
        before = self._rng.random() < 0.5
        self._start(self._harm_holder(scope, kind, done, before=before))
        return done if before else None

    async def _harm_holder(
        self, scope: str, kind: str, done: asyncio.Event, *, before: bool
    ) -> None:
        if not before:
            await asyncio.sleep(self._rng.uniform(0.0, 0.08))
        while True:
            name = await self._holder(scope)
            worker = next((one for one in self._workers.all if one.name == name), None)
            if worker is not None and worker.is_ready and not worker.busy:
                break
            await asyncio.sleep(0.1)
        await self._harm(worker, kind, done)

    async def _holder(self, scope: str) -> str:
        """Return the name of the worker with a scope's memory."""
        query = "SELECT name FROM lease JOIN worker ON worker.id = worker WHERE scope = %s"
        async with await psycopg.AsyncConnection.connect(self._dsn) as db:
            row = await (await db.execute(query, (SCOPES[scope].name,))).fetchone()
        return str(row[0]) if row else ""

    async def _harm(self, worker: Worker, kind: str, done: asyncio.Event | None = None) -> None:
        worker.busy = True
        self.done[kind] += 1
        numbers = {PAUSE: signal.SIGSTOP, END: signal.SIGTERM}
        try:
            worker.signal(numbers.get(kind, signal.SIGKILL))
            if done is not None:
                done.set()
            if kind == PAUSE:
                await asyncio.sleep(TTL + self._rng.uniform(1.0, 3.0))
            else:
                await self._workers.until_gone(worker)
        finally:
            worker.signal(signal.SIGCONT)
        await asyncio.sleep(0.5)
        await self._workers.until_ready(worker)
        worker.busy = False

    def _start(self, harm: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(harm)
        self._harming.add(task)


async def remember(
    size: MemoryCampaign, seed: int, keep: str = "", dsn: str = ""
) -> tuple[dict[str, object], list[str]]:
    """Run it, on a given database or a new one. Return the figures and the broken promises."""
    rng = random.Random(seed)
    logging.getLogger("aiohttp.server").setLevel(logging.CRITICAL)  # clients that are killed
    async with contextlib.AsyncExitStack() as stack:
        folder = Path(keep or stack.enter_context(tempfile.TemporaryDirectory()))
        dsn = dsn or stack.enter_context(team_database()).dsn
        telegram = await stack.enter_async_context(FakeTelegram(webhook_retry=0.2))
        model = Learner(rng)
        server = await stack.enter_async_context(FakeOpenAI(model, latency=0.05))
        workers = Workers(folder, [f"worker{number}" for number in range(1, size.workers + 1)])
        balancer = await stack.enter_async_context(Balancer(workers, rng))
        _configure(workers, dsn, server.base_url, balancer.url, telegram)
        play = MemoryPlay(workers, telegram, model, dsn, rng, size)
        stack.push_async_callback(workers.stop)
        began = time.monotonic()
        await workers.start()
        await play.run()
        await workers.stop()
        faults = await asyncio.to_thread(faults_of_memory, workers.shared, play.told)
        faults += [f"Telegram: {one}" for one in telegram.violations]
    done = play.done
    figures: dict[str, object] = {
        "workers": size.workers,
        "facts told, or typed by hand": len(play.told.facts),
        "facts forgotten": len(play.told.forgotten),
        "workers killed while they learned": done[KILL],
        "workers stopped beyond their lease and continued": done[PAUSE],
        "workers told to end": done[END],
        "workers killed while something was forgotten, or erased": done[FORGETTING] + done[ERASING],
        "commands given again": done["commands given again"],
        "looks at versions": done["looks"],
        "workers that ended as others had taken over": sum(one.code == 75 for one in workers.ends),
        "seconds": round(time.monotonic() - began),
    }
    return figures, faults


def _configure(
    workers: Workers, dsn: str, model: str, balancer: str, telegram: FakeTelegram
) -> None:
    for user in (1, 2):
        telegram.person(user, first_name=f"P{user}")
    telegram.group(SCOPES[GROUP].chat)
    telegram.webhook.route = f"{balancer}/telegram"
    off = ("phone_number_id", "access_token", "app_secret", "verify_token")
    workers.configure(
        [dsn] * len(workers.all),
        model=model,
        balancer=balancer,
        telegram=telegram.base_url,
        token=TOKEN,
        telegram_people=["1", "2"],
        whatsapp_people=[],
        whatsapp="\n    ".join(("transport: cloud", *(f"{key}: '1234567'" for key in off))),
        has_telegram=True,
        has_whatsapp=False,
        has_api=False,
        grace=2.0,
        turns=16,
    )


async def _ask(worker: Worker, operation: str, **arguments: object) -> object:
    """Return the result of an operation at a worker."""

    def ask() -> object:
        with Client(worker.home) as client:
            return client.ask(operation, arguments)

    return await asyncio.to_thread(ask)
