"""People's queries of a nanobot, and operations on its queue."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from nanobot.bus.journal import Completion
from nanobot.bus.queue import MessageBus
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.errors import NanobotError
from nanobot.gateway.operations import Operations
from nanobot.messages import Message, ToolCall
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.bus.support import end_turn, give_up, make_message, open_journal, reply


class OperationsKit:
    """A journal, sessions and their operations, with or without a running gateway."""

    def __init__(self, journal: SqliteJournal, folder: Path) -> None:
        self.journal = journal
        self.sessions = SessionManager(folder, FakeClock())
        self.live = live = MessageBus(journal)
        self.running, self.idle = (
            Operations("gpt-x", journal, self.sessions, bus) for bus in (live, None)
        )

    async def trouble(self) -> None:
        """Store a failed message, in-1, and a dead reply, out-1."""
        failed, answered = await self.journal.receive(
            "fake", (make_message("m1", "do it"), make_message("m2"))
        )
        await self.journal.complete(
            Completion("t1", "fake:1", (failed.id,), "failed", reason="it broke")
        )
        committed = await self.journal.complete(
            end_turn("t2", answered, outgoing=(reply("answer"),))
        )
        await give_up(self.journal, committed.parts[0])

    async def turn(self) -> None:
        """Store a turn with a tool call, t7, after another one."""
        (entry,) = await self.journal.receive("fake", (make_message("m7"),))
        self.journal.claim("t7", "fake:1", (entry.id,), at_once=True)
        self.journal.remember_prompt("p1", "You are nanobot.")
        session = await self.sessions.get_or_create("fake:1")
        session.add_message(Message("user", "before", turn_id="t6"))
        call = ToolCall("c1", "read_file", '{"path": "a"}')
        for message in (
            Message("user", "look", turn_id="t7"),
            Message("assistant", "", tool_calls=(call,), turn_id="t7"),
            Message("tool", "content of a", tool_call_id="c1", name="read_file", turn_id="t7"),
            Message("assistant", "done", turn_id="t7"),
        ):
            session.add_message(message)
        await self.sessions.save(session)
        report = (
            '{"system_id": "p1", "first_seq": 1, "memory": [["memory/MEMORY.md", 99]],'
            ' "tool_milliseconds": {"c1": 4}, "prompt_tokens": 10, "completion_tokens": 5,'
            ' "cost": 1500, "milliseconds": 1234}'
        )
        await self.journal.complete(end_turn("t7", entry, report=report))


@pytest.fixture
async def kit(tmp_path: Path) -> AsyncIterator[OperationsKit]:
    async with open_journal(tmp_path / "journal.db", FakeClock()) as journal:
        kit = OperationsKit(journal, tmp_path / "sessions")
        yield kit
        await kit.sessions.close()


async def test_the_queue_says_what_to_do_about_which_row(kit: OperationsKit) -> None:
    await kit.trouble()
    queue = await kit.idle.queue_list({})
    assert queue["inbox"] == [
        {
            "id": "in-1",
            "session": "fake:1",
            "state": "failed",
            "attempts": 0,
            "received_at": FakeClock().now().isoformat(),
            "text": "do it",
            "reason": "it broke",
        }
    ]
    assert queue["outbox"] == [
        {
            "id": "out-1",
            "channel": "fake",
            "chat_id": "1",
            "state": "dead",
            "attempts": 0,
            "text": "answer",
            "reason": "blocked",
        }
    ]


async def test_retry_in_a_running_gateway_starts_at_once(kit: OperationsKit) -> None:
    await kit.trouble()
    assert await kit.running.queue_retry({"id": "in-1"}) == {"text": "in-1 is being retried."}
    await kit.running.queue_retry({"id": "out-1"})
    assert [entry.message.event_id for entry in kit.live.unread_entries()] == ["m1"]
    assert [item.part.content for item in kit.live.unread_parts()] == ["answer"]


async def test_retry_without_a_gateway_waits_for_one(kit: OperationsKit) -> None:
    await kit.trouble()
    told = await kit.idle.queue_retry({"id": "in-1"})
    assert told == {"text": "in-1 will be retried once the gateway is running."}
    assert len((await kit.journal.leftovers()).entries) == 1


async def test_drop_is_final(kit: OperationsKit) -> None:
    await kit.trouble()
    assert await kit.running.queue_drop({"id": "in-1"}) == {"text": "in-1 was dropped."}
    await kit.running.queue_drop({"id": "out-1"})
    assert await kit.running.queue_list({}) == {"inbox": [], "outbox": []}
    with pytest.raises(NanobotError, match="not a failed message"):
        await kit.running.queue_drop({"id": "in-1"})


@pytest.mark.parametrize("arguments", [{}, {"id": ""}, {"id": 5}, {"id": None}])
@pytest.mark.parametrize("name", ["queue.retry", "queue.drop", "turn.show"])
async def test_an_operation_without_its_id_is_refused(
    kit: OperationsKit, name: str, arguments: Mapping[str, object]
) -> None:
    with pytest.raises(NanobotError, match="'id'"):
        await kit.running.table()[name](arguments)


async def test_a_turn_is_shown_with_what_it_was_asked_did_and_cost(kit: OperationsKit) -> None:
    await kit.turn()
    turn = await kit.running.turn_show({"id": "t7"})
    assert (turn["session"], turn["state"], turn["model"]) == ("fake:1", "done", "gpt-x")
    assert (turn["milliseconds"], turn["prompt_tokens"], turn["completion_tokens"]) == (1234, 10, 5)
    assert turn["cost"] == 0.0015
    assert turn["system_prompt"] == "You are nanobot."
    assert turn["memory"] == [{"path": "memory/MEMORY.md", "characters": 99}]
    assert turn["tools"] == [
        {
            "name": "read_file",
            "arguments": '{"path": "a"}',
            "result": "content of a",
            "milliseconds": 4,
        }
    ]
    assert [m["content"] for m in turn["messages"]] == ["before"]  # type: ignore[attr-defined]
    assert [m["role"] for m in turn["new_messages"]] == ["user", "assistant", "tool", "assistant"]  # type: ignore[attr-defined]


async def test_the_first_turn_of_a_session_is_shown_while_it_runs(kit: OperationsKit) -> None:
    kit.journal.claim("t1", "fake:new", (), at_once=True)
    turn = await kit.running.turn_show({"id": "t1"})
    assert (turn["state"], turn["new_messages"]) == ("running", [])


async def test_an_unknown_turn_is_refused(kit: OperationsKit) -> None:
    with pytest.raises(NanobotError, match="no turn"):
        await kit.idle.turn_show({"id": "nope"})
