"""OpenAI's client for Node.js, unmodified, against a whole gateway."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from nanobot.testing import ScriptedModel, calls, says
from tests.channels.api.support import Api, repeat
from tests.channels.api.test_python_sdk import PICTURE, pictures
from tests.support import Probe

MODULES = Path(__file__).parents[3] / ".node-clients" / "node_modules"

_MISSING = not (MODULES / "openai").is_dir() or shutil.which("node") is None
pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(
        _MISSING, reason="needs Node.js and its client: npm install --prefix .node-clients openai"
    ),
]


async def run(api: Api, script: str) -> Any:
    """Return the JSON that a script prints with `client`."""
    program = """
      const OpenAI = require('openai');
      const client = new OpenAI({maxRetries: 0});
      const say = value => console.log(JSON.stringify(value));
      (async () => {%s})().catch(error => {
        say({status: error.status, code: error.code, message: error.message});
      });
    """
    process = await asyncio.create_subprocess_exec(
        *("node", "-e", program % script),
        env={
            **os.environ,
            "NODE_PATH": str(MODULES),
            "OPENAI_API_KEY": api.key,
            "OPENAI_BASE_URL": api.base_url,
        },
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await process.communicate()
    return json.loads(out)


async def test_it_lists_models_chats_and_streams(api: Api) -> None:
    model = ScriptedModel(
        says("Hello."), calls("probe", text="flour"), says("There is enough flour for bread.")
    )
    async with api.running(model, tools=(Probe(),)):
        said = await run(
            api,
            """
            const models = [];
            for await (const model of client.models.list()) models.push(model.id);
            const chat = {model: 'nanobot', user: 'me'};
            const first = await client.chat.completions.create(
              {...chat, messages: [{role: 'user', content: 'Hi'}]});
            const stream = await client.chat.completions.create(
              {...chat, stream: true, messages: [{role: 'user', content: 'Is there flour?'}]});
            let text = '';
            for await (const chunk of stream) text += chunk.choices[0]?.delta?.content ?? '';
            say({models, first: first.choices[0].message.content, text});
            """,
        )
    assert said == {
        "models": ["nanobot"],
        "first": "Hello.",
        "text": "There is enough flour for bread.",
    }


async def test_it_sends_pictures_and_reads_errors(api: Api) -> None:
    async with api.running(ScriptedModel(pictures)):
        picture = await run(
            api,
            f"""
            const answer = await client.chat.completions.create({{
              model: 'nanobot', user: 'me', messages: [{{role: 'user', content: [
                {{type: 'text', text: 'What is this?'}},
                {{type: 'image_url', image_url: {{url: '{PICTURE}'}}}}]}}]}});
            say(answer.choices[0].message.content);
            """,
        )
        error = await run(
            api,
            """
            await client.chat.completions.create(
              {model: 'gpt-5', messages: [{role: 'user', content: 'Hi'}]});
            """,
        )
    assert picture == "1 pictures"
    assert (error["status"], error["code"]) == (404, "model_not_found")


async def test_responses_follow_each_other_and_are_streamed(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        said = await run(
            api,
            """
            const ask = more => client.responses.create({model: 'nanobot', ...more});
            const first = await ask({input: 'one'});
            const second = await ask({input: 'two', previous_response_id: first.id});
            const conversation = await client.conversations.create();
            const third = await ask({input: 'three', conversation: conversation.id});
            const stream = client.responses.stream(
              {model: 'nanobot', input: 'four', conversation: conversation.id});
            let text = '';
            stream.on('response.output_text.delta', event => { text += event.delta; });
            const final = await stream.finalResponse();
            say([first, second, third, final].map(one => one.output_text).concat(text));
            """,
        )
    assert said == ["re: one", "re: two", "re: three", "re: four", "re: four"]
