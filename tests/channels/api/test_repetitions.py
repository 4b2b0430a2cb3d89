"""A repeated request gets the same answer, and its actions run once, even after a kill."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import AsyncIterator

import aiohttp
import pytest

from nanobot.bus.events import Media
from nanobot.testing import FakeClock, ScriptedModel, calls, says
from nanobot_api.answers import KEEP_ALIVE_SECONDS
from nanobot_api.exchanges import TICK_SECONDS
from nanobot_api.records import Records
from nanobot_api.requests import Attachment
from tests.channels.api.support import Api, chat, repeat
from tests.doubles.openai.answers import Answer
from tests.doubles.openai.faults import HeldStep
from tests.doubles.openai.server import FakeOpenAI
from tests.support import Gate, Probe, read_stored, write_config

AGAIN = {"Idempotency_Key": "order-1"}


async def test_a_repetition_gets_the_same_answer_and_runs_no_second_turn(api: Api) -> None:
    probe = Probe(effects=True)
    model = ScriptedModel(calls("probe", text="buy"), says("Bought."))
    request = chat("Buy flour.", conversation="me")
    async with api.running(model, tools=(probe,)):
        first = await api.post("chat/completions", request, **AGAIN)
        second = await api.post("chat/completions", request, **AGAIN)
        streamed = await api.post("chat/completions", {**request, "stream": True}, **AGAIN)
    assert first.data["choices"] == second.data["choices"]
    assert first.data["id"] == second.data["id"] == streamed.events[0]["id"]
    texts = [event["choices"][0]["delta"].get("content", "") for event in streamed.events]
    assert "".join(texts) == "Bought."
    assert probe.called == ["buy"]
    assert len(read_stored(api.home, "api:laptop:me")) == 4


async def test_the_same_request_many_times_at_once_is_one_turn(api: Api) -> None:
    model = ScriptedModel(says("Once."))
    request = chat("Do it.", conversation="me")
    async with api.running(model):
        asking = (api.post("chat/completions", request, **AGAIN) for _ in range(20))
        answers = await asyncio.gather(*asking)
    assert {answer.data["choices"][0]["message"]["content"] for answer in answers} == {"Once."}


async def test_it_is_repeated_without_a_conversation_and_after_a_restart_as_well(api: Api) -> None:
    async with api.running(ScriptedModel(says("One."))):
        first = await api.post("chat/completions", chat("Once"), **AGAIN)
    async with api.running(ScriptedModel()):
        again = await api.post("chat/completions", chat("Once"), **AGAIN)
    assert again.data == first.data


async def test_the_files_of_a_repetition_during_the_answer_are_deleted(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, repeated, is_answered = Gate(), asyncio.Event(), threading.Event()
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    request = chat("", conversation="me")
    request["messages"][0]["content"] = [{"type": "text", "text": "See."}, image]
    keep, loop = Records.keep_files, asyncio.get_running_loop()

    def keep_late(records: Records, id: str, files: tuple[Attachment, ...]) -> tuple[Media, ...]:
        if gate.reached.is_set():
            loop.call_soon_threadsafe(repeated.set)
            is_answered.wait(10)
        return keep(records, id, files)

    monkeypatch.setattr(Records, "keep_files", keep_late)
    async with api.running(ScriptedModel(says("Seen."), hold=gate)):
        first = asyncio.create_task(api.post("chat/completions", request, **AGAIN))
        await gate.reached.wait()
        again = asyncio.create_task(api.post("chat/completions", request, **AGAIN))
        await repeated.wait()
        gate.opened.set()
        await first
        is_answered.set()
        assert (await again).data == first.result().data
        assert not list((api.home / "state" / "channels" / "api" / "files").iterdir())


async def test_the_same_key_with_another_question_is_refused(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        await api.post("chat/completions", chat("one", conversation="me"), **AGAIN)
        other = await api.post("chat/completions", chat("two", conversation="me"), **AGAIN)
        assert (other.status, other.code) == (422, "idempotency_key_reused")
        elsewhere = await api.post("chat/completions", chat("two", conversation="you"), **AGAIN)
        assert elsewhere.status == 200


async def test_a_repetition_after_a_cut_connection_hears_the_turn_that_goes_on(api: Api) -> None:
    gate = Gate()
    probe = Probe(effects=True)
    model = ScriptedModel(calls("probe", text="buy"), says("Bought."), hold=gate)
    request = chat("Buy flour.", conversation="me", stream=True)
    async with api.running(model, tools=(probe,)):
        cut = asyncio.create_task(api.post("chat/completions", request, **AGAIN))
        await gate.reached.wait()
        cut.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await cut
        again = asyncio.create_task(api.post("chat/completions", request, **AGAIN))
        both = asyncio.create_task(api.post("chat/completions", request, **AGAIN))
        gate.opened.set()
        for answer in (await again, await both):
            texts = [e["choices"][0]["delta"].get("content", "") for e in answer.events]
            assert "".join(texts) == "Bought."
    assert probe.called == ["buy"]
    assert [m.role for m in read_stored(api.home, "api:laptop:me")].count("user") == 1


async def test_what_waits_on_one_machine_does_not_look_for_its_answer(api: Api) -> None:
    clock, gate = FakeClock(), Gate()
    model = ScriptedModel(says("Done."), hold=gate)
    request = chat("Do it.", conversation="me")
    async with api.running(model, clock=clock):
        asking = [asyncio.create_task(api.post("chat/completions", request, **AGAIN))]
        await gate.reached.wait()
        asking.append(asyncio.create_task(api.post("chat/completions", request, **AGAIN)))
        before = len(clock.slept)
        for _ in range(int(KEEP_ALIVE_SECONDS) - 1):
            await clock.advance(1.0)
            await asyncio.wait(asking, timeout=0.02)  # until the second one waits, too
        assert set(clock.slept[before:]) == {TICK_SECONDS}
        gate.opened.set()
        for answer in await asyncio.gather(*asking):
            assert answer.data["choices"][0]["message"]["content"] == "Done."


@contextlib.asynccontextmanager
async def kill_at_the_end(api: Api, model: FakeOpenAI) -> AsyncIterator[None]:
    """Run a gateway in a separate process, which gets SIGKILL."""
    settings = {
        "model": {
            "provider": "openai", "name": "m", "api_key": "k", "base_url": model.base_url,
        },
    }  # fmt: skip
    write_config(api.home, {**api.config, **settings})
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "nanobot", "gateway"),
        env={**os.environ, "NANOBOT_HOME": str(api.home)},
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await api.until_reached()
        yield
    finally:
        process.kill()
        await process.wait()


async def test_killed_between_request_and_answer_the_repetition_gets_the_answer(api: Api) -> None:
    never = asyncio.Event()
    requests = [
        ("chat/completions", chat("Do it.", conversation="me")),
        ("chat/completions", chat("Do it alone.")),
        ("responses", {"model": "nanobot", "input": "Do it too.", "conversation": "me2"}),
    ]
    async with FakeOpenAI(lambda _: HeldStep(never, Answer("too late"))) as silent:
        async with kill_at_the_end(api, silent):
            asking = [asyncio.create_task(api.post(path, body, **AGAIN)) for path, body in requests]
            while len(silent.requests) < len(requests):
                done, _ = await asyncio.wait(asking, timeout=0.05)
                assert not done
        for task in asking:
            with contextlib.suppress(aiohttp.ClientError):
                await task
        never.set()
    async with FakeOpenAI() as model, kill_at_the_end(api, model):
        answers = [await api.post(path, body, **AGAIN) for path, body in requests]
        assert [answer.status for answer in answers] == [200, 200, 200]
        assert answers[0].data["choices"][0]["message"]["content"].endswith("Do it.")
        assert answers[1].data["choices"][0]["message"]["content"].endswith("Do it alone.")
        assert answers[2].data["output"][0]["content"][0]["text"].endswith("Do it too.")
        asked = len(model.requests)
    async with FakeOpenAI() as model, kill_at_the_end(api, model):
        again = [await api.post(path, body, **AGAIN) for path, body in requests]
        assert [one.data for one in again] == [one.data for one in answers]
        assert model.requests == []
    assert asked == len(requests)
    said = [message.role for message in read_stored(api.home, "api:laptop:me")]
    assert said == ["user", "assistant"]
