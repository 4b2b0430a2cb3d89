"""OpenAI's client for Python, unmodified, against a whole gateway."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from nanobot.providers.port import Prompt, Reply, Usage
from nanobot.testing import ScriptedModel, calls, says
from tests.channels.api.support import Api, newest_text, repeat
from tests.doubles.telegram.media import PNG
from tests.files import files_with
from tests.support import Probe, read_stored

PICTURE = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"


def pictures(prompt: Prompt) -> Reply:
    return says(f"{sum(len(message.images) for message in prompt.messages)} pictures")


async def test_the_one_model_is_listed(api: Api) -> None:
    async with api.running(ScriptedModel()), api.client() as client:
        assert [one.id async for one in client.models.list()] == ["nanobot"]
        assert (await client.models.retrieve("nanobot")).owned_by == "nanobot"


async def test_a_chat_is_answered_with_what_it_used(api: Api) -> None:
    model = ScriptedModel(says("Hello.", usage=Usage(120, 7)))
    async with api.running(model), api.client() as client:
        answer = await client.chat.completions.create(
            model="nanobot",
            metadata={"session_id": "me"},
            messages=[{"role": "user", "content": "Hi"}],
        )
    assert answer.choices[0].message.content == "Hello."
    assert answer.choices[0].finish_reason == "stop"
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (120, 7)
    assert answer.usage.total_tokens == 127
    said = [message.content for message in read_stored(api.home, "api:laptop:me")]
    assert said == ["Hi", "Hello."]


async def test_a_chat_is_streamed_with_the_tools_that_run(api: Api) -> None:
    model = ScriptedModel(calls("probe", text="flour"), says("There is enough flour for bread."))
    async with api.running(model, tools=(Probe(),)), api.client() as client:
        stream = await client.chat.completions.create(
            model="nanobot",
            metadata={"session_id": "me"},
            messages=[{"role": "user", "content": "Is there flour?"}],
            stream=True,
            stream_options={"include_usage": True},
        )
        chunks = [chunk async for chunk in stream]
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    pieces = [delta.content for delta in deltas if delta.content]
    assert "".join(pieces) == "There is enough flour for bread."
    progress = [(delta.model_extra or {}).get("nanobot") for delta in deltas]
    assert {"type": "tool", "text": "probe flour"} in progress
    assert deltas[0].role == "assistant"
    assert chunks[-2].choices[0].finish_reason == "stop"
    assert chunks[-1].usage is not None
    assert {chunk.id for chunk in chunks} == {chunks[0].id}


async def test_a_picture_is_seen_and_one_elsewhere_is_not_fetched(api: Api) -> None:
    import openai

    async with api.running(ScriptedModel(pictures)), api.client() as client:

        async def ask(url: str) -> str | None:
            answer = await client.chat.completions.create(
                model="nanobot",
                metadata={"session_id": "me"},
                messages=[
                    {
                        "role": "user",
                        "content": [
                            {"type": "text", "text": "What is this?"},
                            {"type": "image_url", "image_url": {"url": url}},
                        ],
                    }
                ],
            )
            return answer.choices[0].message.content

        assert await ask(PICTURE) == "1 pictures"
        with pytest.raises(openai.BadRequestError, match="nanobot downloads nothing"):
            await ask("https://example.org/cat.png")
    assert not [*(api.home / "state" / "channels" / "api").glob("files/*")]


async def test_responses_follow_each_other_and_conversations_go_on(api: Api) -> None:
    import openai

    def lines(prompt: Prompt) -> Reply:
        return says(f"{sum(m.role == 'user' for m in prompt.messages)}: {newest_text(prompt)}")

    async with api.running(ScriptedModel(author=lines)), api.client() as client:
        first = await client.responses.create(model="nanobot", input="one")
        second = await client.responses.create(
            model="nanobot", input="two", previous_response_id=first.id
        )
        third = await client.responses.create(
            model="nanobot", input="three", previous_response_id=second.id
        )
        assert [r.output_text for r in (first, second, third)] == ["1: one", "2: two", "3: three"]
        assert second.previous_response_id == first.id
        conversation = await client.conversations.create()
        said = [
            (
                await client.responses.create(
                    model="nanobot", input=text, conversation=conversation.id
                )
            ).output_text
            for text in ("a", "b")
        ]
        assert said == ["1: a", "2: b"]
        again = await client.responses.create(
            model="nanobot", input="c", conversation={"id": conversation.id}
        )
        assert again.output_text == "3: c"
        assert again.conversation is not None
        assert again.conversation.id == conversation.id
        with pytest.raises(openai.BadRequestError, match="not found"):
            await client.responses.create(
                model="nanobot", input="x", previous_response_id="resp_" + "0" * 32
            )


async def test_a_response_is_streamed_as_the_helper_of_the_client_reads_it(api: Api) -> None:
    model = ScriptedModel(
        calls("probe", text="flour"), says("There is enough.", usage=Usage(50, 4))
    )
    async with (
        api.running(model, tools=(Probe(),)),
        api.client() as client,
        client.responses.stream(
            model="nanobot", input="Is there flour?", conversation="kitchen"
        ) as stream,
    ):
        kinds = [event.type async for event in stream]
        final = await stream.get_final_response()
    assert final.output_text == "There is enough."
    assert final.usage is not None
    assert final.usage.total_tokens == 54
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert "response.nanobot.progress" in kinds
    assert kinds[-4:] == [
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
        "response.completed",
    ]


async def test_a_request_for_itself_has_its_own_context_and_leaves_nothing(
    api: Api, tmp_path: Path
) -> None:
    model = ScriptedModel(author=lambda prompt: says(str([m.text for m in prompt.messages[1:]])))
    async with api.running(model), api.client() as client:
        answer = await client.chat.completions.create(
            model="nanobot",
            messages=[
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "I like figs."},
                {"role": "assistant", "content": "Noted."},
                {"role": "user", "content": "What do I like?"},
            ],
        )
        said = answer.choices[0].message.content or ""
        assert "Be brief." in said
        assert "I like figs." in said
        assert "What do I like?" in said
        alone = await client.responses.create(model="nanobot", input="Alone?", store=False)
        assert "figs" not in alone.output_text
    assert not [*(api.home / "sessions").glob("*.jsonl")]
    assert {path.suffix for path in files_with(api.home, "figs")} <= {".log", ".db-wal", ".db"}


async def test_a_wrong_key_gets_the_clients_own_error(api: Api) -> None:
    import openai

    async with api.running(ScriptedModel(author=repeat)):
        async with api.client("nbk-wrong") as client:
            with pytest.raises(openai.AuthenticationError, match="Incorrect API key"):
                await client.models.list()
        async with api.client() as client:
            with pytest.raises(openai.NotFoundError, match="does not exist"):
                await client.chat.completions.create(
                    model="gpt-5", messages=[{"role": "user", "content": "Hi"}]
                )
