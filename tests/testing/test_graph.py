"""`FakeGraphAPI` is as strict as Meta, remembers what it was asked, and signs what it posts."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from nanobot.testing import FakeClock
from tests.doubles.graph.media import PNG
from tests.doubles.graph.rules import message_problem
from tests.doubles.graph.server import FakeGraphAPI
from tests.doubles.graph.webhook import SIGNATURE
from tests.doubles.graph.world import PERSON
from tests.doubles.server import Served


@dataclass
class Business:
    """The other side: a client of the API, and a webhook that answers with `status`."""

    graph: FakeGraphAPI
    client: aiohttp.ClientSession
    url: str = ""
    status: int = 200
    bodies: list[bytes] = field(default_factory=list)
    signatures: list[str] = field(default_factory=list)
    called: asyncio.Event = field(default_factory=asyncio.Event)

    async def call(self, method: str, path: str, **more: Any) -> tuple[int, Any]:
        """The status and the JSON of an answer."""
        headers = {"Authorization": f"Bearer {self.graph.token}", **more.pop("headers", {})}
        url = path if path.startswith("http") else f"{self.graph.base_url}/v23.0/{path}"
        async with self.client.request(method, url, headers=headers, **more) as answer:
            body = await answer.read()
            return answer.status, json.loads(body) if answer.content_type.endswith("json") else body

    async def send(self, **fields: object) -> tuple[int, Any]:
        """Post to `messages`."""
        body = {"messaging_product": "whatsapp", "to": PERSON, **fields}
        return await self.call("POST", f"{self.graph.phone_number_id}/messages", json=body)

    async def heard(self, count: int) -> list[dict[str, Any]]:
        """The first `value` of each payload, once there are so many."""
        await self.graph.wait_for(lambda: len(self.graph.webhook.answers) >= count)
        payloads = [json.loads(body) for body in self.bodies]
        return [one["entry"][0]["changes"][0]["value"] for one in payloads]

    async def serve(self, http: web.Request) -> web.Response:
        if http.method == "GET":
            good = http.query["hub.verify_token"] == self.graph.verify_token
            return web.Response(text=http.query["hub.challenge"], status=200 if good else 403)
        self.bodies.append(await http.read())
        self.signatures.append(http.headers[SIGNATURE])
        self.called.set()
        return web.Response(status=self.status)


@contextlib.asynccontextmanager
async def business(graph: FakeGraphAPI) -> AsyncIterator[Business]:
    app = web.Application()
    async with graph, aiohttp.ClientSession() as client:
        one = Business(graph, client)
        app.router.add_route("*", "/hook", one.serve)
        served = await Served.start(app)
        one.url = f"http://127.0.0.1:{served.port}/hook"
        yield one
        await served.stop()


@pytest.fixture
async def other() -> AsyncIterator[Business]:
    async with business(FakeGraphAPI()) as one:
        yield one


def text(body: object = "hello", **more: object) -> dict[str, Any]:
    head = {"messaging_product": "whatsapp", "to": PERSON, "type": "text"}
    return {**head, "text": {"body": body}, **more}


def buttons(*titles: str, words: str = "Which?") -> dict[str, Any]:
    made = [{"type": "reply", "reply": {"id": f"id {one}", "title": one}} for one in titles]
    content = {"type": "button", "body": {"text": words}, "action": {"buttons": made}}
    return text(type="interactive", text=None) | {"interactive": content}


def listed(count: int, title: str = "row") -> dict[str, Any]:
    rows = [{"id": str(number), "title": f"{title} {number}"} for number in range(count)]
    action = {"button": "Choose", "sections": [{"rows": rows}]}
    content = {"type": "list", "body": {"text": "Which?"}, "action": action}
    return text(type="interactive") | {"interactive": content}


def without(body: dict[str, Any], name: str = "text") -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != name}


def file(kind: str, **content: object) -> dict[str, Any]:
    return without(text(type=kind)) | {kind: {"id": "1", **content}}


READ = {"messaging_product": "whatsapp", "status": "read", "message_id": "wamid.x"}
GOOD = {
    "text": text("😀" * 2048, context={"message_id": "wamid.x"}, recipient_type="individual"),
    "to a user id": without(text(recipient="US.134"), "to"),
    "three buttons": without(buttons("a", "b", "c")),
    "ten rows": without(listed(10)),
    "caption": file("image", caption="c" * 1024),
    "file name": file("document", filename="a.pdf"),
    "read": READ,
    "typing": READ | {"typing_indicator": {"type": "text"}},
}
BAD = {
    "too long": text("x" * 4097),
    "empty": text(" "),
    "no text": text(None),
    "unknown field": text(parse_mode="Markdown"),
    "unknown type": text(type="poll"),
    "no address": without(text(), "to"),
    "two addresses": text(recipient="US.134"),
    "user id as number": text(to="US.134"),
    "jid as number": text(to=f"{PERSON}@s.whatsapp.net"),
    "not whatsapp": text(messaging_product="sms"),
    "four buttons": without(buttons("a", "b", "c", "d")),
    "same title": without(buttons("a", "a")),
    "long title": without(buttons("x" * 21)),
    "long text over buttons": without(buttons("a", words="x" * 1025)),
    "eleven rows": without(listed(11)),
    "long row": without(listed(1, "x" * 24)),
    "long caption": file("image", caption="c" * 1025),
    "caption on audio": file("audio", caption="c"),
    "name on image": file("image", filename="a.png"),
    "link": file("image", link="https://example.org/a.png"),
    "bad context": text(context={"id": "wamid.x"}),
    "bad typing": READ | {"typing_indicator": True},
}


def test_only_what_the_api_takes_is_taken() -> None:
    assert {
        name: message_problem(body) for name, body in GOOD.items() if message_problem(body)
    } == {}
    assert [name for name, body in BAD.items() if not message_problem(body)] == []


async def test_what_people_do_is_posted_signed_until_it_is_taken(other: Business) -> None:
    graph, other.status = other.graph, 500
    assert await graph.subscribe(other.url, verify_token="wrong") == 403
    assert await graph.subscribe(other.url) == 200
    graph.say("grüße/1")
    await graph.wait_for(lambda: graph.webhook.answers)
    other.status = 200
    graph.webhook.hurry()
    await graph.wait_for(lambda: not graph.webhook.pending)
    assert graph.webhook.answers[-1] == 200
    assert b"gr\\u00fc\\u00dfe\\/1" in other.bodies[0]
    secret = graph.app_secret.encode()
    digest = hmac.digest(secret, other.bodies[-1], "sha256").hex()
    assert set(other.signatures) == {f"sha256={digest}"}


async def test_what_happens_together_is_one_request_and_a_hidden_number_stays_hidden(
    other: Business,
) -> None:
    graph = other.graph
    other_person = graph.person("US.134", name="Kim")
    await graph.subscribe(other.url)
    with graph.together():
        graph.say("one")
        graph.put({"nonsense": True})
        graph.say("two", person=other_person)
    (value,) = await other.heard(1)
    assert [message.get("from") for message in value["messages"]] == [PERSON, None, None]
    assert value["messages"][2]["from_user_id"] == "US.134"
    assert value["contacts"][1] == {"profile": {"name": "Kim"}, "user_id": "US.134"}


async def test_a_message_arrives_and_its_buttons_come_back_when_pressed(other: Business) -> None:
    graph = other.graph
    question = graph.say("which?")
    _, answer = await other.send(**without(buttons("Yes", "No")), context={"message_id": question})
    (sent,) = graph.messages()
    assert answer["messages"] == [{"id": sent.id}]
    assert (sent.text, sent.labels, sent.reply_to) == ("Which?", ("Yes", "No"), question)
    await graph.subscribe(other.url)
    graph.press(sent.id, "No")
    pressed = (await other.heard(2))[1]["messages"][0]
    assert pressed["interactive"]["button_reply"] == {"id": "id No", "title": "No"}
    assert pressed["context"]["id"] == sent.id
    assert graph.violations == []


async def test_what_is_not_the_apis_is_refused_and_remembered(other: Business) -> None:
    graph = other.graph
    status, body = await other.send(type="text", text={"body": ""})
    assert (status, body["error"]["code"]) == (400, 100)
    nobody = {"Authorization": ""}
    assert (await other.call("GET", graph.phone_number_id, headers=nobody))[0] == 401
    assert (await other.call("DELETE", "123"))[0] == 404
    assert len(graph.violations) == 3
    graph.token = "EAAnew"
    wrong = {"Authorization": "Bearer EAAold"}
    status, body = await other.call("GET", graph.phone_number_id, headers=wrong)
    assert (status, body["error"]["code"]) == (401, 190)
    assert len(graph.violations) == 3
    assert graph.texts(None) == []


async def test_a_file_is_had_with_the_token_and_for_five_minutes() -> None:
    clock = FakeClock()
    async with business(FakeGraphAPI(clock=clock)) as other:
        graph = other.graph
        form = aiohttp.FormData({"messaging_product": "whatsapp", "type": "image/png"})
        form.add_field("file", PNG, filename="a.png", content_type="image/png")
        _, made = await other.call("POST", f"{graph.phone_number_id}/media", data=form)
        _, where = await other.call("GET", made["id"])
        assert await other.call("GET", where["url"]) == (200, PNG)
        status, _ = await other.call("GET", where["url"], headers={"Authorization": "Bearer no"})
        assert status == 401
        await clock.advance(301)
        assert (await other.call("GET", where["url"]))[0] == 404


async def test_who_wrote_long_ago_gets_nothing_and_the_business_is_told_later() -> None:
    clock = FakeClock()
    async with business(FakeGraphAPI(clock=clock, receipts=("sent",))) as other:
        graph = other.graph
        graph.say("hello")
        await other.send(**text("in time"))
        await clock.advance(24 * 3600 + 1)
        status, _ = await other.send(**text("late"))
        assert (status, graph.texts()) == (200, ["in time"])
        await graph.subscribe(other.url)
        fates = [value["statuses"][0] for value in (await other.heard(3))[1:]]
        assert [one["status"] for one in fates] == ["sent", "failed"]
        assert fates[1]["errors"][0]["code"] == 131047


async def test_a_fault_comes_as_often_as_armed_for_whom_it_was_meant(other: Business) -> None:
    graph = other.graph
    graph.person("15550003333")
    for person in (PERSON, "15550003333"):
        graph.say("hello", person=person)
    graph.fail("messages", 131056, person=PERSON)
    assert (await other.send(**text("x", to="15550003333")))[0] == 200
    status, body = await other.send(**text("one"))
    assert (status, body["error"]["code"]) == (400, 131056)
    graph.cut("messages", after="effect")
    with pytest.raises(aiohttp.ClientError):
        await other.send(**text("two"))
    gate = graph.hang("messages")
    async with asyncio.TaskGroup() as group:
        group.create_task(other.send(**text("three")))
        await graph.wait_for(lambda: len(graph.called("messages")) == 4)
        assert graph.texts() == ["two"]
        gate.set()
    assert graph.texts() == ["two", "three"]


async def test_it_can_be_played_by_hand(other: Business) -> None:
    module = [sys.executable, "-m", "tests.doubles.graph", "--webhook", other.url]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*module, stdin=pipe, stdout=pipe)
    assert process.stdin is not None
    assert process.stdout is not None
    printed: dict[str, str] = {}
    while b"challenge" not in (line := await process.stdout.readline()):
        key, _, value = line.decode().strip().partition(": ")
        printed[key] = value
    process.stdin.write(b"hello\n")
    await other.called.wait()
    url = f"{printed['base_url']}/v23.0/{printed['phone_number_id']}/messages"
    headers = {"Authorization": f"Bearer {printed['access_token']}"}
    async with other.client.post(url, json=text("hello yourself"), headers=headers) as answer:
        assert answer.status == 200
    assert await process.stdout.readline() == b"hello yourself\n"
    process.terminate()
    await process.wait()
