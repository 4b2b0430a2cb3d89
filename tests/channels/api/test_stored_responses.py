"""Stored responses: reading and deleting them later."""

from __future__ import annotations

import asyncio

import pytest

from nanobot.cli.gateway import operate
from nanobot.errors import ProviderRejected
from nanobot.testing import ScriptedModel, fails
from tests.channels.api.support import PERSON, Api, chat, repeat
from tests.support import Gate, read_stored, window


async def test_the_sdk_retrieves_a_response_and_deletes_it(api: Api) -> None:
    from openai import NotFoundError

    async with api.running(ScriptedModel(author=repeat)), api.client() as client:
        first = await client.responses.create(model="nanobot", input="Hi", conversation="plans")
        second = await client.responses.create(
            model="nanobot", input="Go on", previous_response_id=first.id
        )
        assert await client.responses.retrieve(first.id) == first
        assert await client.responses.retrieve(second.id) == second
        await client.responses.delete(first.id)
        with pytest.raises(NotFoundError):
            await client.responses.retrieve(first.id)
        with pytest.raises(NotFoundError):
            await client.responses.delete(first.id)
        assert await client.responses.retrieve(second.id) == second
    assert [m.content for m in read_stored(api.home, "api:laptop:plans")][:2] == ["Hi", "re: Hi"]


async def test_no_key_reaches_the_response_of_another(api: Api) -> None:
    others = [api.add_key("guest", PERSON), api.add_key("desk")]
    async with api.running(ScriptedModel(author=repeat)):
        asked = {"model": "nanobot", "input": "The code is Birnbaum."}
        id = (await api.post("responses", asked)).data["id"]
        for key in others:
            for method in ("GET", "DELETE"):
                refused = await api.ask(method, f"responses/{id}", key=key)
                assert (refused.status, refused.code) == (404, "not_found")
                assert b"Birnbaum" not in refused.body
        assert (await api.ask("GET", f"responses/{id}", key="")).status == 401
        assert (await api.ask("GET", f"responses/{id}")).status == 200
        for name in (id.removeprefix("resp_"), "resp_", "resp_../keys", "resp_%2e%2e%2fkeys"):
            assert (await api.ask("GET", f"responses/{name}")).status in (404, 405)
        assert (await api.ask("PUT", f"responses/{id}")).status == 405


async def test_what_was_not_to_be_stored_is_not_given(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        asked = {"model": "nanobot", "input": "Hi", "store": False}
        first = await api.post("responses", asked, Idempotency_Key="one")
        assert (await api.ask("GET", f"responses/{first.data['id']}")).status == 404
        again = await api.post("responses", asked, Idempotency_Key="one")
        assert again.data == first.data
        chatted = await api.post("chat/completions", chat("Hi"), Idempotency_Key="two")
        id = chatted.data["id"].replace("chatcmpl-", "resp_")
        assert (await api.ask("GET", f"responses/{id}")).status == 404


async def test_of_a_deleted_response_nothing_is_left_and_nothing_is_done_again(api: Api) -> None:
    model = ScriptedModel(author=repeat)
    async with api.running(model):
        asked = {"model": "nanobot", "input": "The code is Birnbaum."}
        first = await api.post("responses", asked, Idempotency_Key="one")
        await api.ask("DELETE", f"responses/{first.data['id']}")
        records = api.home / "state" / "channels" / "api" / "records"
        assert not [path for path in records.iterdir() if b"Birnbaum" in path.read_bytes()]
        again = await api.post("responses", asked, Idempotency_Key="one")
        assert (again.status, again.code) == (409, "deleted")
        follow = {"model": "nanobot", "input": "And?", "previous_response_id": first.data["id"]}
        assert (await api.post("responses", follow)).code == "previous_response_not_found"
    assert len(model.prompts) == 1


async def test_a_response_that_failed_says_why(api: Api) -> None:
    refused = ProviderRejected("bad key", status=401)
    async with api.running(ScriptedModel(author=lambda _: fails(refused, after="Hello"))):
        asked = {"model": "nanobot", "input": "Hi", "stream": True}
        failed = (await api.post("responses", asked)).events[-1]["response"]
        again = (await api.ask("GET", f"responses/{failed['id']}")).data
    assert (again["status"], again["error"]) == ("failed", failed["error"])


async def test_one_that_is_worked_on_says_so_and_a_deleted_one_stays_deleted(api: Api) -> None:
    gate = Gate()
    async with api.running(ScriptedModel(author=repeat, hold=gate)):
        asked = {"model": "nanobot", "input": "Hi", "stream": True}
        asking = asyncio.create_task(api.post("responses", asked))
        await gate.reached.wait()
        records = api.home / "state" / "channels" / "api" / "records"
        (path,) = records.iterdir()
        place = f"responses/resp_{path.stem}"
        assert (await api.ask("GET", place)).data["status"] == "in_progress"
        await api.ask("DELETE", place)
        gate.opened.set()
        assert (await asking).events[-1]["type"] == "response.completed"
        assert (await api.ask("GET", place)).status == 404


@pytest.mark.parametrize("when", ["answered", "followed", "being worked on"])
async def test_a_deleted_response_is_in_no_conversation_and_not_found(api: Api, when: str) -> None:
    gate = Gate()
    hold = gate if when == "being worked on" else None
    more = {} if when == "followed" else {"conversation": "c"}
    secret = "The code is Birnbaum."

    async def search() -> str:
        data = await asyncio.to_thread(operate, api.home, "memory.search", text="Birnbaum")
        return str(data)

    async with api.running(ScriptedModel(author=repeat, hold=hold)):
        asked = {"model": "nanobot", "input": secret, "stream": True, **more}
        asking = asyncio.create_task(api.post("responses", asked))
        if hold:
            await gate.reached.wait()
            records = api.home / "state" / "channels" / "api" / "records"
            id = f"resp_{next(records.iterdir()).stem}"
        else:
            id = (await asking).events[-1]["response"]["id"]
        if when == "followed":
            follow = {"model": "nanobot", "input": "Go on", "previous_response_id": id}
            await api.post("responses", follow)
        while hold is None and "Birnbaum" not in await search():
            pass  # its file is written after the answer
        assert (await api.ask("DELETE", f"responses/{id}")).status == 200
        gate.opened.set()
        await asking
        if when != "followed":
            assert await api.chat("Well?", conversation="c") == "re: Well?"
        assert "Birnbaum" not in await search()
    key = f"api:laptop:resp-{id.removeprefix('resp_')}" if when == "followed" else "api:laptop:c"
    said = [text for _, text in await window(api.home, key)]
    assert said == (["Go on", "re: Go on"] if when == "followed" else ["Well?", "re: Well?"])
