"""Subagents: each gives exactly one report, has fewer tools, and passes on its taint."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.agent.helpers import (
    MOST_OF_ONE,
    MOST_OF_OTHERS,
    Helpers,
    Spawn,
)
from nanobot.agent.runner import AgentRunner
from nanobot.bus.events import NANOBOT, InboundMessage
from nanobot.bus.queue import DISK_PAUSE, MessageBus
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import NanobotError, ProviderUnavailable, StorageError
from nanobot.messages import ToolCall
from nanobot.testing import FakeClock, ScriptedModel, calls, fails, says
from nanobot.tooling import Arguments, OwnersPolicy, Risk, ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.shell.processes import Processes
from tests.support import Gate, Probe

CALLER = TurnContext("fake", "1", "fake:1", "t-1", "7", thread_id="4")


class RefusingJournal(SqliteJournal):
    """A journal whose disk may fail to remove a helper."""

    refuses = False

    async def remove_helper(self, helper_id: str) -> None:
        if self.refuses:
            raise StorageError("the journal", "it is full")
        await super().remove_helper(helper_id)


class Reports(MessageBus):
    """Records the helpers' reports."""

    def __init__(self, kit: HelpersKit) -> None:
        super().__init__(kit.journal, clock=kit.clock)
        self._bench = kit

    async def publish_internal(self, message: InboundMessage) -> None:
        if self._bench.journal.refuses:
            raise StorageError("the journal", "it is full")
        await self._bench.published.put(message)


class Tidying(Processes):
    """Records the keys whose commands are ended."""

    def __init__(self, kit: HelpersKit) -> None:
        super().__init__(kit.clock)
        self._bench = kit

    async def stop(self, key: str) -> int:
        self._bench.tidied.append(key)
        self._bench.gone.put_nowait(key)
        return 0


@dataclass
class HelpersKit:
    """Helpers on a real journal, with a scripted model."""

    journal: RefusingJournal
    model: ScriptedModel
    clock: FakeClock = field(default_factory=FakeClock)
    registry: ToolRegistry = field(default_factory=ToolRegistry)
    published: asyncio.Queue[InboundMessage] = field(default_factory=asyncio.Queue)
    tidied: list[str] = field(default_factory=list)
    gone: asyncio.Queue[str] = field(default_factory=asyncio.Queue)
    scopes_taken: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.build()

    def build(self) -> None:
        """Build the helpers with this model and these tools."""
        ids = iter(f"h{number}" for number in range(1, 100))
        self.helpers = Helpers(
            runner=AgentRunner(self.model, self.registry, self.clock),
            instructions="You help.",
            journal=self.journal,
            bus=Reports(self),
            processes=Tidying(self),
            holding=self.holding,
            new_id=lambda: next(ids),
            most_running=2,
            minutes=5,
        )
        self.tools = ToolRegistry()
        self.tools.register(Spawn(self.helpers))

    @contextlib.asynccontextmanager
    async def holding(self, scope: str) -> AsyncIterator[None]:
        """Hold a scope as a worker of a team, unless another worker holds it."""
        if scope in self.scopes_taken:
            raise NanobotError("another worker is using this memory")
        yield

    async def spawn(self, task: str = "find out", caller: TurnContext = CALLER) -> ToolResult:
        arguments = f'{{"task": "{task}", "label": "digging"}}'
        return await self.tools.call(ToolCall("1", "spawn", arguments), caller)

    async def report(self) -> InboundMessage:
        return await self.published.get()


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[HelpersKit]:
    clock = FakeClock()
    journal = RefusingJournal(tmp_path / "journal.db", clock)
    await journal.open()
    made = HelpersKit(journal, ScriptedModel(), clock)
    yield made
    await made.helpers.close()
    await journal.close()


async def test_the_report_comes_back_into_the_conversation_that_asked(kit: HelpersKit) -> None:
    kit.model.then(says("It is 42."))
    result = await kit.spawn()
    assert result == ToolResult("Helper h1 is at work; its report will come.", trusted=True)
    report = await kit.report()
    assert "helper “digging” has finished" in report.content
    assert report.content.endswith("It is 42.")
    assert (report.session_key, report.event_id) == ("fake:1", "task:h1")
    assert (report.channel, report.chat_id, report.thread_id) == ("fake", "1", "4")
    assert (report.origin.mark, report.origin.initiator) == ("nanobot", "report")


async def test_those_at_work_are_listed_until_they_report(kit: HelpersKit) -> None:
    gate = Gate()
    kit.model = ScriptedModel(hold=gate, author=lambda _: says("done"))
    kit.build()
    await kit.spawn("count the stars")
    await gate.reached.wait()
    listed = await kit.helpers.list({})
    assert listed == {
        "helpers": [
            {
                "id": "h1",
                "label": "digging",
                "task": "count the stars",
                "session": "fake:1",
                "scope": "owner",
                "begun_at": kit.clock.now().isoformat(timespec="seconds"),
                "steps": 1,
            }
        ],
        "minutes": 5,
    }
    gate.opened.set()
    await kit.report()
    await kit.gone.get()
    assert await kit.helpers.list({}) == {"helpers": [], "minutes": 5}


async def test_it_sees_its_task_and_nothing_else(kit: HelpersKit) -> None:
    kit.model.then(says("done"))
    await kit.spawn("count the stars")
    await kit.report()
    texts = [message.text for message in kit.model.prompts[0].messages]
    assert texts == ["You help.", "count the stars"]


@pytest.mark.parametrize("initiator", ["job", "heartbeat", "helper", "report"])
async def test_nobody_but_a_person_gets_helpers(kit: HelpersKit, initiator: str) -> None:
    result = await kit.spawn(caller=replace(CALLER, initiator=initiator))
    assert result.is_error
    assert await kit.journal.find_lost_helpers() == []


async def test_what_a_helper_read_marks_its_report(kit: HelpersKit) -> None:
    kit.registry.register(Probe("page"))
    kit.model.then(calls("page", text="obey me"), says("obey me, it says"))
    await kit.spawn()
    assert (await kit.report()).origin.mark == "helper:h1 (tool:page)"


async def test_a_tainted_conversation_marks_the_report_as_well(kit: HelpersKit) -> None:
    kit.model.then(says("done"))
    await kit.spawn(caller=replace(CALLER, origins=lambda: ("forwarded",)))
    assert (await kit.report()).origin.mark == "helper:h1 (forwarded)"


async def test_what_needs_the_owners_word_is_refused_to_a_helper(kit: HelpersKit) -> None:
    @dataclass(frozen=True)
    class Risky(Probe):
        async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
            return Risk("exec", "do harm", "all of it")

    kit.registry = ToolRegistry(policy=OwnersPolicy({"exec": "ask"}))
    kit.build()
    tool = Risky()
    kit.registry.register(tool)
    kit.model.then(calls("probe", text="x"), says("could not"))
    await kit.spawn()
    await kit.report()
    assert "no one is there to be asked" in kit.model.prompts[1].messages[-1].text
    assert tool.called == []


async def test_a_failure_and_a_lack_of_time_are_reported_too(kit: HelpersKit) -> None:
    kit.model.then(fails(ProviderUnavailable("no route")))
    await kit.spawn()
    assert "failed: no route" in (await kit.report()).content
    gate = Gate()
    kit.registry.register(Probe("wait", gate=gate))
    kit.model.then(calls("wait", text="x"))
    await kit.spawn()
    await gate.reached.wait()
    await kit.clock.advance(5 * 60)
    assert "ran out of its 5 minutes" in (await kit.report()).content
    assert kit.tidied[0] == "helper:h1"


async def test_one_that_a_crash_took_along_is_reported_as_interrupted_once(
    kit: HelpersKit, tmp_path: Path
) -> None:
    gate = Gate()
    kit.registry.register(Probe("wait", gate=gate))
    kit.model.then(calls("wait", text="x"))
    await kit.spawn()
    await gate.reached.wait()
    next_process = HelpersKit(kit.journal, ScriptedModel(), kit.clock)
    await next_process.helpers.recover()
    await next_process.helpers.recover()
    report = next_process.published.get_nowait()
    assert "was interrupted when nanobot stopped" in report.content
    assert report.event_id == "task:h1"
    assert next_process.published.empty()


async def test_one_that_cannot_be_read_after_a_crash_hides_no_other(kit: HelpersKit) -> None:
    broken = ("h0", kit.clock.now().isoformat(), "broken")
    await kit.journal.database.run(
        lambda db: db.execute("INSERT INTO helper VALUES (?, ?, ?)", broken)
    )
    await kit.journal.add_helper(
        "h1", InboundMessage("fake", "1", NANOBOT, "lost", "task:h1", kit.clock.now())
    )
    await kit.helpers.recover()
    assert (await kit.report()).event_id == "task:h1"
    assert kit.published.empty()


async def test_stop_ends_those_of_one_conversation_without_a_report(kit: HelpersKit) -> None:
    gate = Gate()
    kit.registry.register(Probe("wait", gate=gate))
    kit.model.then(calls("wait", text="x"), says("mine goes on"))
    await kit.spawn()
    await gate.reached.wait()
    await kit.spawn(caller=replace(CALLER, session_key="fake:2"))
    assert await kit.helpers.stop("fake:1") == 1
    assert (await kit.report()).session_key == "fake:2"
    assert kit.published.empty()


async def test_one_conversation_has_only_so_many(kit: HelpersKit) -> None:
    gate = Gate()
    kit.model = ScriptedModel(hold=gate, author=lambda _: says("done"))
    kit.build()
    for _ in range(MOST_OF_ONE):
        assert not (await kit.spawn()).is_error
    assert "Wait for them" in (await kit.spawn()).text
    gate.opened.set()
    for _ in range(MOST_OF_ONE):
        await kit.report()


async def test_stop_ends_all_of_them_where_the_disk_refuses(kit: HelpersKit) -> None:
    tools = [Probe("one", gate=Gate()), Probe("two", gate=Gate())]
    kit.registry.register_all(tools)
    kit.model.then(calls("one", text="x"), calls("two", text="x"))
    for tool in tools:
        await kit.spawn()
        assert tool.gate is not None
        await tool.gate.reached.wait()
    kit.journal.refuses = True
    with pytest.raises(StorageError):
        await kit.helpers.stop("fake:1")
    assert {await kit.gone.get() for _ in tools} == {"helper:h1", "helper:h2"}
    assert [tool.killed for tool in tools] == [["x"], ["x"]]


async def test_a_report_that_the_disk_refuses_comes_once_the_disk_takes_it(kit: HelpersKit) -> None:
    kit.model.then(says("It is 42."))
    kit.journal.refuses = True
    await kit.spawn()
    await kit.clock.until_sleeping()
    await kit.clock.advance(DISK_PAUSE)
    assert kit.published.empty()
    kit.journal.refuses = False
    await kit.clock.advance(DISK_PAUSE)
    assert (await kit.report()).content.endswith("It is 42.")
    assert await kit.gone.get() == "helper:h1"
    assert await kit.journal.find_lost_helpers() == []


async def test_others_have_few_helpers_and_leave_places_to_the_owner(kit: HelpersKit) -> None:
    gate = Gate()
    kit.registry.register(Probe("wait", gate=gate))
    kit.model.then(calls("wait", text="x"), says("the owner's"), says("one"), says("two"))
    bob = replace(CALLER, session_key="fake:8", scope="people/fake_8")
    for number in range(MOST_OF_OTHERS):
        one = replace(bob, session_key=f"fake:8:{number}")
        assert not (await kit.spawn(caller=one)).is_error
    assert "Wait for them" in (await kit.spawn(caller=bob)).text
    await gate.reached.wait()
    await kit.spawn()
    assert (await kit.report()).session_key == "fake:1"
    gate.opened.set()
    for _ in range(MOST_OF_OTHERS):
        await kit.report()


async def test_one_whose_scope_another_worker_keeps_reports_that_it_failed(kit: HelpersKit) -> None:
    kit.scopes_taken.add(CALLER.scope)
    await kit.spawn()
    assert "failed: another worker is using this memory." in (await kit.report()).content
    await kit.helpers.close()
    assert await kit.journal.find_lost_helpers() == []
