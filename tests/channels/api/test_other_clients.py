"""Requests of Open WebUI and Home Assistant, in the shapes of their sources, and their reading of
the answer.

Sources, read in November 2026 and described in our own words:

- Open WebUI, `backend/open_webui/routers/openai.py` (`get_headers_and_cookies`,
  `generate_chat_completion`, `get_models`), and the prompts for titles in
  `backend/open_webui/config.py`.
- Home Assistant, `homeassistant/components/openai_conversation/entity.py` (the integration of the
  core, by Responses), and the integration for local servers,
  `custom_components/local_openai/entity.py` of `skye-harris/hass_local_openai_llm` (by Chat
  Completions)."""

from __future__ import annotations

from typing import Any

import pytest

from nanobot.providers.port import Prompt, Reply, Usage
from nanobot.testing import ScriptedModel, calls, says
from tests.channels.api.support import Answer, Api, repeat
from tests.channels.api.test_python_sdk import PICTURE, pictures
from tests.support import Probe, read_stored

FORWARDED = {
    "X_OpenWebUI_User_Name": "Robin%20R",
    "X_OpenWebUI_User_Id": "9d3b0c0e-0000-4000-8000-000000000001",
    "X_OpenWebUI_User_Email": "robin@example.org",
    "X_OpenWebUI_User_Role": "admin",
    "X_OpenWebUI_Chat_Id": "0b9e7a52-1111-4222-8333-444455556666",
}
CHAT = "api:laptop:0b9e7a52-1111-4222-8333-444455556666"

TITLE = """### Task:
Make a title of three words.
### Chat History:
<chat_history>
USER: Is there flour?
</chat_history>"""


def web_ui(*messages: dict[str, Any]) -> dict[str, Any]:
    """Return Open WebUI's request for a chat: the whole history, always with the usage of a
    stream."""
    return {
        "stream": True,
        "model": "nanobot",
        "messages": list(messages),
        "stream_options": {"include_usage": True},
    }


def text_of(answer: Answer) -> str:
    """Read a stream as Open WebUI does: the content of each delta, and the usage anywhere."""
    assert answer.status == 200
    assert "text/event-stream" in answer.headers["Content-Type"]
    assert answer.body.rstrip().endswith(b"data: [DONE]")
    choices = [choice for event in answer.events for choice in event.get("choices", [])]
    assert any("usage" in event for event in answer.events)
    return "".join(choice["delta"].get("content") or "" for choice in choices)


async def test_open_webui_finds_the_model(api: Api) -> None:
    async with api.running(ScriptedModel()):
        listed = await api.ask("GET", "models", **FORWARDED)
    assert [model["id"] for model in listed.data["data"]] == ["nanobot"]
    assert listed.data["object"] == "list"


async def test_open_webui_chats_and_its_history_is_the_context(api: Api) -> None:
    def all_said(prompt: Prompt) -> Reply:
        return says(" | ".join(m.text.splitlines()[-1] for m in prompt.messages[1:]))

    async with api.running(ScriptedModel(author=all_said)):
        answer = await api.post(
            "chat/completions",
            web_ui(
                {"role": "user", "content": "I like figs."},
                {"role": "assistant", "content": "Good."},
                {"role": "user", "content": "What do I like?"},
            ),
        )
    assert text_of(answer) == "I like figs. | Good. | What do I like?"
    assert not [*(api.home / "sessions").glob("*.jsonl")]


async def test_open_webui_that_names_its_chats_gets_conversations_and_titles_beside_them(
    api: Api,
) -> None:
    probe = Probe()
    model = ScriptedModel(calls("probe", text="flour"), says("Enough."), says("Flour at home"))
    async with api.running(model, tools=(probe,)):
        question = {"role": "user", "content": "Is there flour?"}
        answer = await api.post("chat/completions", web_ui(question), **FORWARDED)
        assert text_of(answer) == "Enough."
        title = {"model": "nanobot", "messages": [{"role": "user", "content": TITLE}]}
        titled = await api.post("chat/completions", {**title, "stream": False}, **FORWARDED)
        assert titled.data["choices"][0]["message"]["content"] == "Flour at home"
        model.then(repeat)
        more = web_ui(question, {"role": "assistant", "content": "Enough."},
                      {"role": "user", "content": "And sugar?"})  # fmt: skip
        assert text_of(await api.post("chat/completions", more, **FORWARDED)) == "re: And sugar?"
    said = [m.content for m in read_stored(api.home, CHAT) if m.role == "user"]
    assert said == ["Is there flour?", "And sugar?"]


async def test_open_webui_sends_a_picture(api: Api) -> None:
    async with api.running(ScriptedModel(pictures)):
        content = [
            {"type": "text", "text": "What is this?"},
            {"type": "image_url", "image_url": {"url": PICTURE}},
        ]
        answer = await api.post("chat/completions", web_ui({"role": "user", "content": content}))
    assert text_of(answer) == "1 pictures"


TURN_ON = {
    "type": "function",
    "name": "HassTurnOn",
    "parameters": {"type": "object", "properties": {"name": {"type": "string"}}},
    "description": "Turns on a device",
    "strict": False,
}


async def test_home_assistants_own_integration_streams_responses(api: Api) -> None:
    from openai.types import responses

    """It makes an assistant's message of each output message, adds every delta to it, reads the
    usage at the end, and raises for error events."""
    model = ScriptedModel(
        calls("probe", text="lamp"), says("The lamp is on.", usage=Usage(80, 6)), repeat
    )
    async with api.running(model, tools=(Probe(),)), api.client() as client:

        async def turn(text: str) -> tuple[list[str], int]:
            messages, used = list[str](), 0
            request: dict[str, Any] = {
                "model": "nanobot",
                "input": [
                    {"type": "message", "role": "developer", "content": "You are a voice."},
                    {"type": "message", "role": "user", "content": text},
                ],
                "max_output_tokens": 3000,
                "top_p": 1.0,
                "temperature": 1.0,
                "user": "01JTZ5K3W4X6Y7Z8A9B0C1D2E3",
                "store": False,
                "stream": True,
                "tools": [TURN_ON],
            }
            stream = await client.responses.create(**request)
            async for event in stream:
                assert not isinstance(
                    event, responses.ResponseFailedEvent | responses.ResponseErrorEvent
                )
                if isinstance(event, responses.ResponseOutputItemAddedEvent):
                    assert isinstance(event.item, responses.ResponseOutputMessage)
                    messages.append("")
                elif isinstance(event, responses.ResponseTextDeltaEvent):
                    messages[-1] += event.delta
                elif isinstance(event, responses.ResponseCompletedEvent):
                    assert event.response.usage is not None
                    used = event.response.usage.output_tokens
            return messages, used

        assert await turn("Is the lamp on?") == (["The lamp is on."], 6)
        assert (await turn("And now?"))[0] == ["re: And now?"]
    assert not [*(api.home / "sessions").glob("*.jsonl")], "its `user` is no conversation"


async def test_home_assistants_integration_for_servers_of_ones_own_streams_chats(api: Api) -> None:
    """It reads the role from the first delta and text from each, skips chunks without a choice, and
    looks for `<think>` and calls of its own tools, which do not occur."""
    model = ScriptedModel(calls("probe", text="lamp"), says("The lamp is on."), repeat)
    tool = {"type": "function", "function": {k: TURN_ON[k] for k in ("name", "parameters")}}
    async with api.running(model, tools=(Probe(),)), api.client() as client:

        async def turn(text: str) -> tuple[str | None, str]:
            request: dict[str, Any] = {
                "model": "nanobot",
                "temperature": 0.6,
                "parallel_tool_calls": False,
                "messages": [
                    {"role": "system", "content": "You are a voice."},
                    {"role": "user", "content": [{"type": "text", "text": text}]},
                ],
                "tools": [tool],
                "stream": True,
                "extra_headers": {
                    "HTTP-Referer": "https://example.org",
                    "X-Title": "Home Assistant",
                },
                "extra_body": {"metadata": {"session_id": "01JTZ5K3W4X6Y7Z8A9B0C1D2E4"}},
            }
            stream = await client.chat.completions.create(**request)
            deltas = [chunk.choices[0].delta async for chunk in stream if chunk.choices]
            assert not any(delta.tool_calls for delta in deltas)
            return deltas[0].role, "".join(delta.content or "" for delta in deltas)

        assert await turn("Is the lamp on?") == ("assistant", "The lamp is on.")
        assert await turn("And now?") == ("assistant", "re: And now?")
    said = [m.content for m in read_stored(api.home, "api:laptop:01JTZ5K3W4X6Y7Z8A9B0C1D2E4")]
    assert [text for text in said if "?" in text] == [
        "Is the lamp on?", "And now?", "re: And now?",
    ]  # fmt: skip


async def test_home_assistant_reads_our_errors(api: Api) -> None:
    import openai

    async with api.running(ScriptedModel(author=repeat)):
        async with api.client("nbk-wrong") as client:
            with pytest.raises(openai.AuthenticationError):
                await client.models.list()
        async with api.client() as client:
            with pytest.raises(openai.NotFoundError):
                await client.models.retrieve("gpt-4o")
