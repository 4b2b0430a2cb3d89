"""The scopes that a worker keeps or gives to others, with one worker in this process and its
database."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from loguru import logger

from nanobot.app.gateway import Gateway
from nanobot.bus.events import Button, InboundMessage, OutboundPart, Receipt
from nanobot.bus.journal import NOTICE
from nanobot.bus.rows import encode_event
from nanobot.clock import Clock, SystemClock
from nanobot.errors import SendRefused
from nanobot.io import FENCE, Fence
from nanobot.providers.port import CallOptions, Prompt, Provider, Reply, TextSink
from nanobot.team.connection import DatabaseAddress
from nanobot.team.notifications import Heard, Notifications
from nanobot.testing import FakeChannel, FakeClock, ScriptedModel, calls, says
from nanobot.tooling import Tool, ToolResult, TurnContext
from tests.support import Gate, TextArguments, running, window, write_config
from tests.team.support import sql

OWNER = "owner"
GROUP = "groups/fake_g"


@pytest.fixture(autouse=True)
def fence() -> Iterator[None]:
    """Restore the fence of this process."""
    yield
    for name, value in vars(Fence()).items():
        setattr(FENCE, name, value)


@dataclass(frozen=True)
class Writing(Tool):
    """A tool with a thread that runs until the test releases it."""

    name = "writing"
    description = "For tests."
    arguments = TextArguments
    effects = True
    begun: threading.Event = field(default_factory=threading.Event)
    may_end: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, arguments: TextArguments, caller: TurnContext) -> ToolResult:
        await asyncio.to_thread(self._write)
        return ToolResult("written")

    def _write(self) -> None:
        self.begun.set()
        self.may_end.wait()


class DiggingModel(ScriptedModel):
    """Never answers a subagent."""

    task = "dig as deep as you can"

    def __init__(self, *script: Reply) -> None:
        super().__init__(*script)
        self.reached = asyncio.Event()

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        """Play the next line, except for a subagent."""
        if prompt.messages[-1].text == self.task:
            self.reached.set()
            await asyncio.Event().wait()
        return await super().complete(prompt, options, on_text)


@dataclass
class WorkerKit:
    """The worker's database, and another worker that requests its scopes."""

    dsn: str
    folder: Path
    channel: FakeChannel = field(default_factory=FakeChannel)
    tool: Writing = field(default_factory=Writing)
    clock: Clock | None = None

    def running(
        self, model: Provider, **settings: object
    ) -> contextlib.AbstractAsyncContextManager[Gateway]:
        """Run the worker."""
        home, team = self.folder / "home", {"database": self.dsn, "shared": f"{self.folder}/shared"}
        write_config(home, {"team": team, "agent": {"timezone": "UTC"}, **settings})
        return running(home, model, self.channel, tools=(self.tool,), clock=self.clock)

    @contextlib.asynccontextmanager
    async def other(self, heard: Heard = lambda _, __: None) -> AsyncIterator[Notifications]:
        """Connect another worker."""
        waking = Notifications(DatabaseAddress(self.dsn), heard)
        waking.channel = "nanobot_"
        try:
            yield waking
        finally:
            await waking.close()

    async def store(self, text: str, scope: str) -> None:
        """Store a message in the database, like another worker."""
        chat, now = scope.partition("_")[2] or "1", SystemClock("UTC").now()
        name = f"elsewhere {text}"
        said = InboundMessage("fake", chat, "person-1", text, name, now, is_group=chat != "1")
        place = (said.channel, chat, said.event_id, said.session_key)
        values = (*place, now.isoformat(), encode_event(said), scope)
        await asyncio.to_thread(sql, self.dsn, _TAKEN_ELSEWHERE, *values)

    async def leases(self) -> set[str]:
        """Return the leased scopes."""
        query = "SELECT scope FROM lease WHERE worker IS NOT NULL"
        return {scope for (scope,) in await asyncio.to_thread(sql, self.dsn, query)}

    async def until_given_back(self, *scopes: str) -> set[str]:
        """Request these scopes until the worker gives them back. Return the ones that it keeps."""
        async with self.other() as other:
            while (kept := await self.leases()).intersection(scopes):
                for scope in scopes:
                    other.tell("want", scope)
                await asyncio.sleep(0.05)
            return kept


@pytest.fixture
def kit(team_database: str, tmp_path: Path) -> Iterator[WorkerKit]:
    kit = WorkerKit(team_database, tmp_path)
    yield kit
    kit.tool.may_end.set()


async def test_a_scope_stays_until_the_thread_of_a_turn_that_was_stopped_has_ended(
    kit: WorkerKit,
) -> None:
    model = ScriptedModel(calls("writing"), says("hello all"))
    async with kit.running(model), kit.other() as other:
        await kit.channel.say("write")
        await asyncio.to_thread(kit.tool.begun.wait)
        assert await kit.channel.ask("/stop") == "Stopped."
        await kit.channel.say("hello", "g", is_group=True)
        await kit.channel.receive(1, "g")
        other.tell("want", OWNER)
        assert OWNER in await kit.until_given_back(GROUP)
        kit.tool.may_end.set()
        await kit.until_given_back(OWNER)


async def test_at_the_end_what_a_thread_still_writes_is_not_given_to_others(kit: WorkerKit) -> None:
    async with kit.running(ScriptedModel(calls("writing"), says("hello all"))):
        await kit.channel.say("write")
        await asyncio.to_thread(kit.tool.begun.wait)
        await kit.channel.say("hello", "g", is_group=True)
        await kit.channel.receive(1, "g")
    assert await kit.leases() == {OWNER}
    kit.tool.may_end.set()
    await kit.until_given_back(OWNER)


async def test_a_helper_keeps_its_scope_until_it_has_ended_or_was_stopped_anywhere(
    kit: WorkerKit,
) -> None:
    model = DiggingModel(calls("spawn", task=DiggingModel.task), says("it digs"), says("hello all"))
    async with kit.running(model), kit.other() as other:
        assert await kit.channel.ask("dig") == "it digs"
        await model.reached.wait()
        await kit.channel.say("hello", "g", is_group=True)
        await kit.channel.receive(1, "g")
        other.tell("want", OWNER)
        assert OWNER in await kit.until_given_back(GROUP)
        other.tell("stop", f"1000 {OWNER} fake:1")
        await kit.until_given_back(OWNER)


async def test_a_stop_that_another_worker_took_ends_the_turn_here(kit: WorkerKit) -> None:
    gate = Gate()
    async with kit.running(ScriptedModel(says("never said"), hold=gate)):
        await kit.channel.say("hello")
        await gate.reached.wait()
        await kit.store("/stop", OWNER)
        assert await kit.channel.answer_to("elsewhere /stop") == "Stopped."


async def test_where_all_places_are_taken_who_waits_longest_is_next(kit: WorkerKit) -> None:
    thinking, sending = Gate(), Gate()
    model = ScriptedModel(*map(says, ("one", "two", "three", "four")), hold=thinking)
    async with kit.running(model, agent={"max_concurrent_turns": 1, "timezone": "UTC"}):
        thinking.opened.set()
        kit.channel.hold = lambda _: sending()
        await kit.channel.say("first")
        await sending.reached.wait()  # so that its scope stays here
        thinking.opened.clear()
        thinking.reached.clear()
        await kit.channel.say("second", "g", is_group=True)
        await thinking.reached.wait()
        await kit.channel.say("third", "h", is_group=True)
        await kit.channel.say("fourth")
        sending.opened.set()
        await kit.until_given_back(OWNER)
        thinking.opened.set()
        assert await kit.channel.receive(2) == ["one", "four"]
        assert await kit.channel.receive(1, "g") == ["two"]
        assert await kit.channel.receive(1, "h") == ["three"]


async def test_what_only_one_worker_could_send_is_sent_by_any_once_that_has_changed(
    kit: WorkerKit,
) -> None:
    part = OutboundPart("t/reply/0", "fake", "g", "from before")
    await asyncio.to_thread(sql, kit.dsn, _PART, "channel:fake", part.channel, encode_event(part))
    async with kit.running(ScriptedModel()):
        assert await kit.channel.receive(1, "g") == ["from before"]


async def test_parts_for_a_channel_that_is_off_wait_and_keep_no_scope(kit: WorkerKit) -> None:
    part = OutboundPart("t/reply/0", "switched-off", "g", "for later")
    await asyncio.to_thread(sql, kit.dsn, _PART, GROUP, part.channel, encode_event(part))
    async with kit.running(ScriptedModel(says("hello"), says("hello all"))):
        assert await kit.channel.ask("hello") == "hello"
        assert GROUP not in await kit.leases()
        await kit.channel.say("hello", "g", is_group=True)
        assert await kit.channel.receive(1, "g") == ["hello all"]
        await kit.until_given_back(GROUP)
    assert await asyncio.to_thread(sql, kit.dsn, "SELECT 1 FROM outbox WHERE state = 'pending'")


async def test_where_all_places_are_taken_a_chat_keeps_its_order(kit: WorkerKit) -> None:
    gate, sending = Gate(), Gate()
    model = ScriptedModel(*map(says, ("one", "two", "three", "four")), hold=gate)
    gate.opened.set()

    async def hold(part: OutboundPart) -> None:
        if part.content == "one":
            await sending()

    kit.channel.hold = hold  # while an answer is being sent, the scope stays
    out = "SELECT 1 FROM outbox WHERE state IN ('pending', 'sending')"
    async with kit.running(model, agent={"max_concurrent_turns": 1, "timezone": "UTC"}):
        await kit.channel.say("first")
        await sending.reached.wait()
        gate.opened.clear()
        gate.reached.clear()
        await kit.channel.say("second", "g", is_group=True)
        await gate.reached.wait()
        texts = "third", "/status", "fourth"  # one of them need not wait
        await asyncio.gather(*(kit.channel.say(text) for text in texts))
        while len(await asyncio.to_thread(sql, kit.dsn, out)) < 2:
            pass
        sending.opened.set()
        gate.opened.set()
        await kit.channel.receive(4)
    said = [text for role, text in await window(kit.folder / "shared") if role == "user"]
    assert [text.splitlines()[-1] for text in said] == ["first", "third", "fourth"]


async def test_a_conversation_that_cannot_be_written_holds_up_its_own_memory_alone(
    kit: WorkerKit,
) -> None:
    async with kit.running(ScriptedModel(says("hello all"))):
        await kit.channel.say("hello", "g", is_group=True)
        await kit.channel.receive(1, "g")
    file = next((kit.folder / "shared" / "sessions").glob("fake*g.jsonl"))
    file.rename(file.with_suffix(".aside"))
    file.mkdir()
    left = "INSERT INTO unfiled (scope, session_key, lines) VALUES (%s, 'fake:g', %s)"
    line = file.with_suffix(".aside").read_text().splitlines()[-1]
    await asyncio.to_thread(sql, kit.dsn, left, GROUP, line)
    async with kit.running(ScriptedModel(says("hello"))):
        assert await kit.channel.ask("hello") == "hello"
        while GROUP in await kit.leases():
            pass
    assert await asyncio.to_thread(sql, kit.dsn, "SELECT 1 FROM unfiled")


def leave_half_done(kit: WorkerKit) -> Path:
    """Write the history of a group whose worker died during the write, and which is unusable
    now."""
    history = kit.folder / "shared" / "workspace" / GROUP / "memory" / "history.jsonl"
    history.mkdir(parents=True)
    sql(kit.dsn, "INSERT INTO lease VALUES (%s, NULL)", GROUP)
    return history


def is_mended(history: Path) -> bool:
    """Check whether the truncated line was set aside."""
    return bool(list(history.parent.glob("history.jsonl.corrupt-*")))


async def test_a_recovery_that_failed_is_tried_again_while_its_chat_goes_on(kit: WorkerKit) -> None:
    history = await asyncio.to_thread(leave_half_done, kit)
    async with kit.running(ScriptedModel(says("hello all"))):
        await kit.channel.say("hello", "g", is_group=True)
        assert await kit.channel.receive(1, "g") == ["hello all"]
        history.rmdir()
        history.write_text('{"cursor": 1')
        while not await asyncio.to_thread(is_mended, history):
            pass


async def test_a_recovery_that_failed_is_left_to_the_next_worker(kit: WorkerKit) -> None:
    history = await asyncio.to_thread(leave_half_done, kit)
    async with kit.running(ScriptedModel(says("hello all"))):
        await kit.channel.say("hello", "g", is_group=True)
        assert await kit.channel.receive(1, "g") == ["hello all"]
        await kit.until_given_back(GROUP)
        history.rmdir()
        history.write_text('{"cursor": 1')
    assert not is_mended(history)
    async with kit.running(ScriptedModel(says("hello again"))):
        await kit.channel.say("hello", "g", is_group=True)
        assert await kit.channel.receive(2, "g") == ["hello all", "hello again"]
        while not await asyncio.to_thread(is_mended, history):
            pass


async def test_what_belongs_to_no_memory_is_taken_over_without_a_complaint(kit: WorkerKit) -> None:
    part = OutboundPart("t/reply/0", "fake", "g", "from before")
    await asyncio.to_thread(sql, kit.dsn, _PART, "", part.channel, encode_event(part))
    await asyncio.to_thread(sql, kit.dsn, "INSERT INTO lease VALUES ('', NULL)")
    complaints: list[str] = []
    sink = logger.add(complaints.append, level="ERROR", format="{message}")
    async with kit.running(ScriptedModel()):
        assert await kit.channel.receive(1, "g") == ["from before"]
    logger.remove(sink)
    assert complaints == []


async def test_a_notice_that_was_refused_is_sent_once_its_chat_takes_something(
    kit: WorkerKit,
) -> None:
    held, refused = Gate(), set[str]()

    async def hold(part: OutboundPart) -> None:
        if part.key.startswith(NOTICE):
            await held()

    def refuse(part: OutboundPart) -> Exception | None:
        if part.content == "two" or part.key in refused:
            return None
        refused.add(part.key)
        return SendRefused("not this")

    kit.channel.hold, kit.channel.refuse = hold, refuse
    waiting = "SELECT 1 FROM outbox WHERE payload LIKE '%two%'"
    async with kit.running(ScriptedModel(says("one"), says("two"))):
        await kit.channel.say("first")
        await held.reached.wait()
        await kit.channel.say("second")
        while not await asyncio.to_thread(sql, kit.dsn, waiting):
            pass
        held.opened.set()
        assert (await kit.channel.receive(2))[0] == "two"


async def test_what_was_refused_is_sent_again_when_its_notice_is_answered(kit: WorkerKit) -> None:
    refusals = [SendRefused("not now")]
    kit.channel.refuse = lambda _: refusals.pop() if refusals else None
    async with kit.running(ScriptedModel(says("one"))):
        await kit.channel.say("first")
        (notice,) = await kit.channel.receive(1)
        (button,) = kit.channel.sent[0].buttons
        assert button.value in notice
        for _ in range(2):
            await kit.channel.say(button.value)
        assert sorted((await kit.channel.receive(4))[1:]) == [
            "I'm sending it again.",
            "It was already resent or dropped.",
            "one",
        ]


async def test_what_a_dead_worker_left_half_written_is_removed_by_the_next_that_starts(
    kit: WorkerKit,
) -> None:
    left = kit.folder / "shared" / "workspace" / "site" / f".{'a' * 16}.7.nanobot-tmp"
    left.parent.mkdir(parents=True)
    left.touch()
    async with kit.running(ScriptedModel()), asyncio.timeout(10):
        while left.exists():  # noqa: ASYNC110 - nobody tells
            await asyncio.sleep(0.05)


async def test_no_file_from_before_a_death_is_taken_for_one_that_this_worker_made(
    kit: WorkerKit,
) -> None:
    """The dead worker may have made another one in the meantime, under the same number."""
    await asyncio.to_thread(sql, kit.dsn, "INSERT INTO lease VALUES (%s, NULL)", GROUP)
    async with kit.running(ScriptedModel(says("hello"), says("hello all"))):
        FENCE.made.add(earlier := (0, 7))
        assert await kit.channel.ask("hello") == "hello"
        assert earlier in FENCE.made
        await kit.channel.say("hello", "g", is_group=True)
        assert await kit.channel.receive(1, "g") == ["hello all"]
        assert earlier not in FENCE.made


async def test_a_lease_given_back_elsewhere_makes_no_worker_look_that_was_not_refused_it(
    kit: WorkerKit,
) -> None:
    kit.clock = clock = FakeClock(start=SystemClock("UTC").now())  # so no look at all is due
    async with kit.running(ScriptedModel(says("hello"), says("one"))), kit.other() as other:
        assert await kit.channel.ask("hello") == "hello"
        await kit.store("m1", GROUP)
        for scope in ("people/fake_9", GROUP, ""):
            other.tell("free", scope)
        kept = await kit.until_given_back(OWNER)  # all notifications have arrived by then
        assert GROUP not in kept
        await clock.advance(0.5)
        assert await kit.channel.receive(1, "g") == ["one"]


async def test_who_was_refused_a_lease_has_it_as_soon_as_it_is_given_back(kit: WorkerKit) -> None:
    kit.clock = FakeClock(start=SystemClock("UTC").now())
    told = asyncio.Queue[tuple[str, str]]()
    row = "INSERT INTO worker (name, version, until) VALUES ('w', '1', 'infinity') RETURNING id"
    async with (
        kit.running(ScriptedModel(says("hello"), says("hello all"))),
        kit.other(lambda *what: told.put_nowait(what)) as other,
    ):
        other.start()
        ((holder,),) = await asyncio.to_thread(sql, kit.dsn, row)
        await asyncio.to_thread(sql, kit.dsn, "INSERT INTO lease VALUES (%s, %s)", GROUP, holder)
        assert await kit.channel.ask("hello") == "hello"
        await kit.channel.say("hello", "g", is_group=True)
        while await told.get() != ("work", GROUP):
            pass
        await asyncio.to_thread(sql, kit.dsn, "DELETE FROM lease WHERE worker = %s", holder)
        other.tell("free", GROUP)
        assert await kit.channel.receive(1, "g") == ["hello all"]


async def test_a_message_that_another_worker_took_reaches_who_has_the_lease_at_once(
    kit: WorkerKit,
) -> None:
    kit.clock = FakeClock(start=SystemClock("UTC").now())
    async with kit.running(ScriptedModel(says("hello"), says("one"))), kit.other() as other:
        assert await kit.channel.ask("hello") == "hello"
        await kit.store("m1", OWNER)
        other.tell("work", OWNER)
        assert await kit.channel.receive(2) == ["hello", "one"]


_PART = """INSERT INTO outbox (scope, turn_id, call, part, channel, chat_id, payload, created_at)
    VALUES (%s, 't', 'reply', 0, %s, 'g', %s, '2026')"""
_TAKEN_ELSEWHERE = """INSERT INTO inbox
    (channel, chat_id, event_id, session_key, received_at, payload, scope)
    VALUES (%s, %s, %s, %s, %s, %s, %s)"""


class Closing(FakeChannel):
    """Reports when a question has lost its buttons."""

    def __init__(self) -> None:
        super().__init__()
        self.has_closed = asyncio.Event()

    async def close_choices(self, part: OutboundPart, receipt: Receipt, outcome: str) -> None:
        await super().close_choices(part, receipt, outcome)
        self.has_closed.set()


async def test_the_question_of_a_worker_that_is_gone_is_withdrawn_by_who_gets_its_chat(
    kit: WorkerKit,
) -> None:
    kit.channel = channel = Closing()
    part = OutboundPart("ask-A1/reply/0", "fake", "1", "May I?", buttons=(Button("Yes", "y"),))
    await asyncio.to_thread(sql, kit.dsn, _QUESTION, encode_event(part))
    async with kit.running(ScriptedModel(says("hello all"), says("hello"))):
        await kit.channel.say("hello", "g", is_group=True)
        assert await kit.channel.receive(1, "g") == ["hello all"]
        assert kit.channel.closed == {}
        assert await kit.channel.ask("hello") == "hello"
        await asyncio.wait_for(channel.has_closed.wait(), 30)
    assert kit.channel.closed == {"p7": "No longer needed."}


_QUESTION = """INSERT INTO outbox
    (scope, turn_id, call, part, channel, chat_id, payload, created_at, state, platform_id)
    VALUES ('owner', 'ask-A1', 'reply', 0, 'fake', '1', %s, '9999', 'sent', 'p7')"""
