"""Answers reach people through the Cloud API, in order and once, or the failure is reported."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nanobot.bus.events import Button, OutboundMessage
from nanobot.bus.journal import Outgoing
from nanobot.bus.sqlite_journal import SqliteJournal
from nanobot.cli.gateway import operate
from nanobot.testing import ScriptedModel
from tests.channels.telegram.support import PATIENCE, WatchedClock
from tests.channels.telegram.whole import newest_text, repeat, status_of
from tests.channels.whatsapp.cloud.whole import OWNER, channel_state, meta, talking, until
from tests.doubles.graph.server import FakeGraphAPI
from tests.support import Gate

QUEUE = "queue"
OTHER = "15550003333"
PEOPLE = {"allow_from": [OTHER]}
PAIR_SECONDS, TOKEN_SECONDS = 10.0, 300.0
"""Pauses before a retry: after a rate limit of the API, and after a failure that a person has to
fix."""


@pytest.fixture
def clock() -> WatchedClock:
    return WatchedClock()


@pytest.fixture
async def graph(clock: WatchedClock) -> AsyncIterator[FakeGraphAPI]:
    async with meta(clock) as server:
        yield server


async def test_a_pair_that_wrote_too_much_gets_its_answers_in_order_and_delays_nobody(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    model = ScriptedModel(author=repeat)
    async with talking(
        tmp_path, graph, model, clock, settings=PEOPLE, NANOBOT_AGENT__ON_BUSY=QUEUE
    ):
        graph.fail("messages", 131056, times=2, person=OWNER)
        for text in ("one", "two"):
            graph.say(text)
        await graph.wait_for(lambda: graph.calls_of("messages"))
        graph.say("hello", person=OTHER)
        assert await graph.receive(1, OTHER) == ["re: hello"]
        await clock.until_asked(PAIR_SECONDS)
        await clock.advance(PAIR_SECONDS)
        await clock.until_asked(PAIR_SECONDS, times=2)
        assert graph.texts() == []
        await clock.advance(PAIR_SECONDS)
        assert await graph.receive(2) == ["re: one", "re: two"]
    assert graph.violations == []


async def test_what_became_of_an_answer_is_no_matter(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        graph.close_window()
        graph.say("one")
        assert await graph.receive(1) == ["re: one"]
        (sent,) = graph.messages()
        for status in ("read", "sent", "delivered", "read", "played", "unheard of"):
            graph.status(sent.id, status)
        await graph.wait_for(lambda: not graph.webhook.pending)
        assert await channel_state(tmp_path) == ("running", "")
    assert set(graph.webhook.answers) <= {0, 200, 503}


async def test_an_answer_that_is_refused_is_kept_for_a_person_and_holds_up_none(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        graph.fail("messages", 131047, times=2)
        graph.say("one")
        await graph.wait_for(lambda: graph.calls_of("messages"))
        async with asyncio.timeout(PATIENCE):
            while (await status_of(tmp_path))["queue"]["dead"] == 0:
                pass
        graph.say("two")
        answer, told = await graph.receive(2)
        assert (answer, "“re: one” could not be delivered" in told) == ("re: two", True)


@pytest.mark.parametrize("code", [131047, 131026, 130472])
async def test_an_answer_that_meta_drops_afterwards_is_in_the_queue_and_can_be_sent_again(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock, code: int
) -> None:
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        graph.say("one")
        assert await graph.receive(1) == ["re: one"]
        (sent,) = graph.messages()
        for _ in range(2):  # Meta may repeat it
            graph.status(sent.id, "failed", code)
        async with asyncio.timeout(PATIENCE):
            while (await status_of(tmp_path))["queue"]["dead"] == 0:
                pass
        listed = await asyncio.to_thread(operate, tmp_path, "queue.list")
        (row,) = listed.records("outbox")
        assert row.fields("state", "text", "chat_id") == ["dead", "re: one", OWNER]
        assert str(code) in row.field("reason", 500)
        await asyncio.to_thread(operate, tmp_path, "queue.retry", id=row.field("id"))
        assert await graph.receive(2) == ["re: one", "re: one"]
        assert (await status_of(tmp_path))["queue"]["dead"] == 0


async def test_a_send_without_an_answer_is_tried_once_more_and_then_left_to_a_person(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    async with talking(tmp_path, graph, ScriptedModel(author=repeat), clock):
        graph.cut("messages", after="effect", times=2)
        graph.say("one")
        await graph.receive(1)
        await clock.until_asked(60.0)
        await clock.advance(60.0)
        await graph.receive(2)
        graph.say("two")
        *answers, told = sorted(await graph.receive(4))
        assert answers == ["re: one", "re: one", "re: two"]
        assert told.startswith("⚠️ A message that begins “re: one” may not have arrived here")
        assert (await status_of(tmp_path))["queue"]["dead"] == 1


@pytest.mark.parametrize("seconds", [3, 8, 60])
async def test_a_network_that_resets_every_connection_for_a_while_costs_no_answer(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock, seconds: int
) -> None:
    gate = Gate()
    async with talking(tmp_path, graph, ScriptedModel(author=repeat, hold=gate), clock):
        graph.say("one")
        await gate.reached.wait()
        graph.cut("", times=10_000)
        gate.opened.set()
        await graph.wait_for(lambda: graph.calls_of("messages"))
        for _ in range(seconds):
            await clock.advance(1.0)
        graph.heal()
        while not graph.texts():
            await clock.advance(1.0)
        assert await graph.receive(1) == ["re: one"]
        assert (await status_of(tmp_path))["queue"]["dead"] == 0


async def test_an_answer_waits_for_a_token_that_is_good(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    gate = Gate()
    async with talking(tmp_path, graph, ScriptedModel(author=repeat, hold=gate), clock):
        graph.say("one")
        await gate.reached.wait()
        graph.revoke_token()
        gate.opened.set()
        await until(tmp_path, "running", "access token")
    await clock.advance(TOKEN_SECONDS)
    async with talking(tmp_path, graph, ScriptedModel(), clock):
        assert await graph.receive(1) == ["re: one"]


async def test_a_button_is_good_after_a_restart_and_only_in_its_chat(
    tmp_path: Path, graph: FakeGraphAPI, clock: WatchedClock
) -> None:
    graph.say("hello")
    graph.say("hello", person=OTHER)
    choices = (Button("Yes", "yes, do it"), Button("No", "no"))
    question = OutboundMessage("whatsapp", OWNER, "Shall I?", buttons=choices)
    (tmp_path / "state").mkdir()
    journal = SqliteJournal(tmp_path / "state" / "journal.db", clock)
    await journal.open()
    await journal.add_outgoing("t-1", Outgoing("reply", (question,)))
    await journal.close()
    model = ScriptedModel(author=repeat)
    async with talking(tmp_path, graph, model, clock):
        await graph.receive(2)
    asked = next(one for one in graph.messages() if one.labels)
    assert asked.labels == ("Yes", "No")
    async with talking(tmp_path, graph, model, clock, settings=PEOPLE):
        graph.press(asked.id, "Yes", person=OTHER)
        await graph.wait_for(lambda: not graph.webhook.pending)
        graph.press(asked.id, "Yes")
        await graph.wait_for(lambda: "re: yes, do it" in graph.texts())
    assert "re: yes, do it" not in graph.texts(OTHER)
    assert "yes" not in asked.buttons[0].id
    assert "yes, do it" in map(newest_text, model.prompts)  # the other press may be answered last
    assert graph.violations == []
