"""Rejections in OpenAI's shape, and a client's possible reactions."""

from __future__ import annotations

import asyncio
import errno
import os

import pytest

from nanobot.errors import ContextTooLong, ProviderRejected, ProviderUnavailable
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing import ScriptedModel, fails, says
from nanobot.testing.clock import FakeClock
from tests.channels.api.support import PERSON, Api, chat, repeat
from tests.faults.test_disk import journal_size, no_file_grows_beyond
from tests.support import Gate, read_stored

BAD: list[tuple[str, object, str]] = [
    ("chat/completions", b"{", "not valid JSON"),
    ("chat/completions", [], "an object is expected"),
    ("chat/completions", chat("x", n=2), "only one choice"),
    ("chat/completions", {"model": "nanobot"}, "must be a list"),
    ("chat/completions", {"model": "nanobot", "messages": []}, "must be a list"),
    ("chat/completions", {"model": "nanobot", "messages": [7]}, "an object is expected"),
    (
        "chat/completions",
        {"model": "nanobot", "messages": [{"role": "system", "content": "x"}]},
        "no message with the role `user`",
    ),
    ("chat/completions", chat(""), "is empty"),
    ("chat/completions", chat("x", conversation=7), "must be text"),
    ("chat/completions", chat("x", metadata={"session_id": "u" * 600}), "at most 512"),
    (
        "chat/completions",
        {"model": "nanobot", "messages": [{"role": "user", "content": [{"type": "video"}]}]},
        "are not supported",
    ),
    (
        "chat/completions",
        {
            "model": "nanobot",
            "messages": [
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,!!"}}
                    ],
                }
            ],
        },
        "not valid base64",
    ),
    ("responses", {"model": "nanobot"}, "must be text or a list"),
    ("responses", {"model": "nanobot", "input": "x", "background": True}, "background responses"),
    (
        "responses",
        {"model": "nanobot", "input": "x", "conversation": "a", "previous_response_id": "resp_1"},
        "not both",
    ),
]


@pytest.mark.parametrize(("path", "body", "words"), BAD)
async def test_what_cannot_be_taken_is_told(api: Api, path: str, body: object, words: str) -> None:
    async with api.running(ScriptedModel()):
        answer = await api.post(path, body)
    assert answer.status == 400
    assert words in answer.data["error"]["message"]
    assert answer.data["error"]["type"] == "invalid_request_error"


async def test_without_a_right_key_nothing_is_answered(
    api: Api,
) -> None:
    paths = ("models", "models/nanobot", "chat/completions", "responses", "conversations", "x")
    async with api.running(ScriptedModel(author=repeat), clock=FakeClock()):
        for path in paths:
            for method in ("GET", "POST", "OPTIONS", "DELETE"):
                answer = await api.ask(method, path, None if method == "GET" else {}, key="")
                assert (answer.status, answer.code) == (401, "invalid_api_key")
        assert (await api.ask("GET", "models")).status == 200


async def test_a_page_of_another_origin_is_refused_with_a_right_key_too(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        for origin in ("https://evil.example", "null", "http://127.0.0.1:1", "http://localhost"):
            answer = await api.ask("GET", "models", Origin=origin)
            assert (answer.status, answer.code) == (403, "origin_refused")
            assert not [name for name in answer.headers if name.startswith("Access-Control")]
        assert (await api.ask("GET", "models", Host="evil.example")).status == 421
        own = await api.ask("GET", "models", Origin=f"http://127.0.0.1:{api.port}")
        assert own.status == 200


async def test_a_revoked_key_is_refused_at_once_and_its_name_stays_its_persons(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        assert (await api.ask("GET", "models")).status == 200
        api.keys.revoke("laptop")
        assert (await api.ask("GET", "models")).status == 401
        new = api.add_key("laptop")
        assert (await api.ask("GET", "models", key=new)).status == 200
        assert (await api.ask("GET", "models")).status == 401


async def test_a_person_who_may_not_talk_is_refused_with_their_key(api: Api) -> None:
    stranger = api.add_key("stranger", "telegram:6")
    friend = api.add_key("friend", PERSON)
    async with api.running(ScriptedModel(author=repeat)):
        refused = await api.ask("GET", "models", key=stranger)
        assert (refused.status, refused.code) == (403, "access_revoked")
        assert (await api.ask("GET", "models", key=friend)).status == 200


async def test_what_is_not_there_is_told_too(api: Api) -> None:
    async with api.running(ScriptedModel()):
        assert (await api.ask("GET", "files")).code == "not_found"
        assert (await api.ask("GET", "chat/completions")).code == "method_not_allowed"
        unknown = await api.post("chat/completions", {**chat("x"), "model": "gpt-5"})
        assert (unknown.status, unknown.code) == (404, "model_not_found")


async def test_a_request_that_is_too_large_is_refused_before_it_is_read(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        answer = await api.post("chat/completions", chat("x" * 31_000_000))
        assert (answer.status, answer.code) == (413, "request_too_large")
        assert (await api.chat("x" * 10)).startswith("re: x")


async def test_a_model_that_is_out_is_a_503_and_the_message_is_not_answered_later(
    api: Api,
) -> None:
    model = ScriptedModel(fails(ProviderUnavailable("no route")), repeat)
    async with api.running(model, clock=FakeClock()):
        answer = await api.post("chat/completions", chat("one", conversation="me"))
        assert (answer.status, answer.code) == (503, "model_unavailable")
        assert answer.headers["Retry-After"] == "15"
        assert await api.chat("two", conversation="me") == "re: two"
    assert [m.content for m in read_stored(api.home, "api:laptop:me")] == ["two", "re: two"]


class Pausing(ScriptedModel):
    """Reports an outage, then writes a text and reports thinking, before each answer or failure."""

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        assert options.on_outage is not None
        assert on_text is not None
        options.on_outage("connection refused", 3, 7.0)
        if prompt.messages[-1].text.endswith("two"):
            on_text("Let me see. ", False)
            options.on_outage("connection refused", 1, 2.0)
        return await super().complete(prompt, options, on_text)


async def test_a_stream_shows_a_wait_for_the_model_once_it_has_begun(api: Api) -> None:
    model = Pausing(fails(ProviderUnavailable("no route")), says("Yes."))
    async with api.running(model, clock=FakeClock()):
        answer = await api.post("chat/completions", chat("one", stream=True))
        assert (answer.status, answer.code) == (503, "model_unavailable")
        answer = await api.post("chat/completions", chat("two", stream=True))
    deltas = [event["choices"][0]["delta"] for event in answer.events if event["choices"]]
    assert [delta["nanobot"] for delta in deltas if "nanobot" in delta] == [
        {
            "type": "waiting",
            "text": "model unreachable: connection refused, trying again in 2 s (1)",
        }
    ]


async def test_with_a_key_for_repetitions_it_waits_for_the_model(api: Api) -> None:
    clock = FakeClock()
    model = ScriptedModel(fails(ProviderUnavailable("no route")), repeat)
    async with api.running(model, clock=clock):
        first = await api.post(
            "chat/completions", chat("one", conversation="me"), Idempotency_Key="k"
        )
        assert first.status == 503
        again = asyncio.create_task(
            api.post("chat/completions", chat("one", conversation="me"), Idempotency_Key="k")
        )
        while not again.done():
            await clock.advance(1.0)
            await asyncio.wait([again], timeout=0.01)
        assert (await again).data["choices"][0]["message"]["content"] == "re: one"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (ContextTooLong("too long", status=400), 400, "context_length_exceeded"),
        (ProviderRejected("bad key", status=401), 502, "model_failed"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_refuses_is_told_with_a_status(
    api: Api, error: ProviderRejected, status: int, code: str, stream: bool
) -> None:
    async with api.running(ScriptedModel(author=lambda _: fails(error))):
        answer = await api.post("chat/completions", chat("one", stream=stream))
        assert (answer.status, answer.code) == (status, code)


async def test_an_error_in_the_middle_of_a_stream_is_its_last_event(api: Api) -> None:
    broken = fails(ProviderRejected("no", status=400), after="Once upon")
    async with api.running(ScriptedModel(author=lambda _: broken)):
        answer = await api.post("chat/completions", chat("Tell", stream=True))
        assert answer.status == 200
        assert answer.events[-1]["error"]["code"] == "model_failed"
        assert b"[DONE]" not in answer.body
        response = await api.post(
            "responses", {"model": "nanobot", "input": "Tell", "stream": True}
        )
        assert response.events[-1]["type"] == "response.failed"
        assert response.events[-1]["response"]["error"]["code"] == "server_error"


async def test_a_full_disk_is_a_503_and_nothing_waits(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        await api.chat("one", conversation="me")
        with no_file_grows_beyond(journal_size(api.home)):
            answer = await api.post("chat/completions", chat("two", conversation="me"))
        assert (answer.status, answer.code) == (503, "storage_unavailable")
        assert os.strerror(errno.EFBIG).encode() not in answer.body, "only the owner reads why"
        assert answer.headers["Retry-After"]
        assert await api.chat("three", conversation="me") == "re: three"
    assert "two" not in [m.content for m in read_stored(api.home, "api:laptop:me")]


async def test_a_request_waits_so_long_and_no_longer_while_a_stream_shows_that_it_lives(
    api: Api,
) -> None:
    clock, gate = FakeClock(), Gate()
    async with api.running(ScriptedModel(author=repeat, hold=gate), clock=clock):
        asking = asyncio.create_task(api.post("chat/completions", chat("one", conversation="me")))
        streaming = asyncio.create_task(
            api.post("chat/completions", chat("two", conversation="you", stream=True))
        )
        while not (asking.done() and streaming.done()):
            await clock.advance(15.0)
            await asyncio.wait([asking, streaming], timeout=0.01)
        answer = await asking
        assert (answer.status, answer.code) == (504, "timeout")
        assert answer.headers["x-should-retry"] == "false"
        stream = await streaming
        assert stream.body.count(b": keep-alive\n\n") >= 2
        assert stream.events[-1]["error"]["code"] == "timeout"
        gate.opened.set()
        assert await api.chat("three", conversation="me") == "re: three"
    said = [m.content for m in read_stored(api.home, "api:laptop:me")]
    assert said == ["one", "re: one", "three", "re: three"]


async def test_a_person_who_sends_too_much_is_told_so(api: Api) -> None:
    friend = api.add_key("friend", PERSON)
    async with api.running(ScriptedModel(author=repeat), NANOBOT_LIMITS__MESSAGES_PER_MINUTE="2"):
        answers = [
            await api.post("chat/completions", chat(str(number), conversation="me"), key=friend)
            for number in range(4)
        ]
    assert [answer.status for answer in answers] == [200, 200, 429, 429]
    assert answers[2].code == "rate_limit_exceeded"


async def test_of_what_was_refused_nothing_stays_on_disk(api: Api) -> None:
    friend = api.add_key("friend", PERSON)
    image = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
    content = [{"type": "input_text", "text": "look"}, image]
    async with api.running(ScriptedModel(author=repeat), NANOBOT_LIMITS__MESSAGES_PER_MINUTE="1"):
        for number in range(3):
            text = {"role": "user", "content": [*content, {"type": "input_text", "text": "x"}]}
            body = {"model": "nanobot", "input": [text], "conversation": f"c{number}"}
            answer = await api.post("responses", body, key=friend)
        assert answer.status == 429
        folder = api.home / "state" / "channels" / "api"
        assert len(list((folder / "records").iterdir())) == 1
        assert list((folder / "files").iterdir()) == []


async def test_an_origin_that_is_none_is_refused_as_any_other(api: Api) -> None:
    async with api.running(ScriptedModel()):
        answer = await api.ask("GET", "models", Origin="http://[::1")
        assert (answer.status, answer.code) == (403, "origin_refused")


async def test_the_same_words_are_not_said_by_an_answer_that_was_shown_before(api: Api) -> None:
    """The model's text is streamed once, with or without tools in between."""
    async with api.running(ScriptedModel(says("A long answer, in pieces."))):
        answer = await api.post("chat/completions", chat("Hi", conversation="me", stream=True))
    texts = [event["choices"][0]["delta"].get("content", "") for event in answer.events]
    assert "".join(texts) == "A long answer, in pieces."
    assert len([text for text in texts if text]) >= 1


@pytest.mark.parametrize(
    ("path", "field", "last"),
    [
        ("chat/completions", "messages", {"role": "assistant", "content": "Once upon"}),
        ("chat/completions", "messages", {"role": "tool", "tool_call_id": "1", "content": "4"}),
        ("chat/completions", "messages", {"role": "function", "name": "look", "content": "4"}),
        ("responses", "input", {"role": "assistant", "content": "Once upon"}),
        ("responses", "input", {"type": "function_call_output", "call_id": "1", "output": "4"}),
        (
            "responses",
            "input",
            {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        ),
    ],
)
async def test_an_earlier_message_is_not_answered_again(
    api: Api, path: str, field: str, last: dict[str, object]
) -> None:
    asked = {"model": "nanobot", field: [{"role": "user", "content": "Buy flour."}, last]}
    async with api.running(ScriptedModel()):
        answer = await api.post(path, asked)
    assert (answer.status, answer.code) == (400, "last_message_not_user")


@pytest.mark.parametrize(
    "last", [{"role": "assistant", "content": ""}, {"role": "system", "content": "Be brief."}]
)
async def test_an_empty_placeholder_or_instructions_may_come_last(
    api: Api, last: dict[str, object]
) -> None:
    asked = {"model": "nanobot", "messages": [{"role": "user", "content": "Hi"}, last]}
    async with api.running(ScriptedModel(author=repeat)):
        answer = await api.post("chat/completions", asked)
    assert answer.data["choices"][0]["message"]["content"] == "re: Hi"


async def test_a_conversation_is_not_filled_when_it_is_made(api: Api) -> None:
    items = {"items": [{"role": "user", "content": "Hi"}]}
    async with api.running(ScriptedModel()):
        assert (await api.post("conversations", items)).status == 400
        assert (await api.post("conversations", {"metadata": {}})).status == 200
        assert (await api.ask("POST", "conversations")).status == 200


async def test_a_key_in_the_header_of_azures_clients_is_accepted(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        asked = chat("Hi")
        answer = await api.post("chat/completions", asked, key="", api_key=api.key)
        assert answer.status == 200
        wrong = await api.post("chat/completions", asked, key="", api_key="nbk-wrong")
        assert (wrong.status, wrong.code) == (401, "invalid_api_key")
