"""The examples of docs/api.md and docs/mcp.md work."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.crossings.clients import SHAPES
from nanobot.channel.keys import ApiKeys
from nanobot.cli.main import main
from nanobot.config.load import load_settings
from nanobot.testing import ScriptedModel
from tests.channels.api.support import Api, repeat
from tests.channels.api.test_node_sdk import MODULES
from tests.support import read_stored, write_config

DOCS = Path(__file__).parents[3] / "docs"


def example(heading: str, kind: str, page: str = "api.md", number: int = 0) -> str:
    """Return a block of code below a heading."""
    section = re.split(r"(?m)^## ", (DOCS / page).read_text())
    (text,) = [one for one in section if one.startswith(f"{heading}\n")]
    return str(re.findall(rf"```{kind}\n(.*?)```", text, re.DOTALL)[number])


def here(text: str, api: Api) -> str:
    """Return an example with the address and the key of a test."""
    return text.replace("http://127.0.0.1:8087/v1", api.base_url).replace("nbk-…", api.key)


async def test_the_example_in_python_runs(api: Api) -> None:
    program = compile(here(example("Python", "python"), api), "api.md", "exec")
    printed = io.StringIO()

    def run() -> None:
        with contextlib.redirect_stdout(printed):
            exec(program, {})

    async with api.running(ScriptedModel(author=repeat)):
        await asyncio.to_thread(run)
    assert printed.getvalue() == (
        "re: What did I plan for Saturday?\nre: Shorter, please.\nre: And on Sunday?"
    )


async def output_of(*command: str, **environ: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *command, env={**os.environ, **environ}, stdout=asyncio.subprocess.PIPE
    )
    out, _ = await process.communicate()
    assert process.returncode == 0
    return out.decode()


@pytest.mark.skipif(
    not (MODULES / "openai").is_dir() or shutil.which("node") is None,
    reason="needs Node.js and OpenAI's client for it",
)
async def test_the_example_for_node_runs(api: Api, tmp_path: Path) -> None:
    script = tmp_path / "example.mjs"
    script.write_text(here(example("Node.js", "js"), api))
    (tmp_path / "node_modules").symlink_to(MODULES)
    async with api.running(ScriptedModel(author=repeat)):
        assert await output_of("node", str(script)) == "re: What did I plan for Saturday?"


@pytest.mark.skipif(shutil.which("curl") is None, reason="needs curl")
async def test_the_example_for_curl_runs(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        command = here(example("curl", "sh"), api)
        answer = json.loads(await output_of("sh", "-c", command, NANOBOT_KEY=api.key))
    assert answer["choices"][0]["message"]["content"] == "re: What did I plan for Saturday?"


async def test_the_request_of_home_assistant_is_answered_in_its_conversation(api: Api) -> None:
    async with api.running(ScriptedModel(author=repeat)):
        answer = await api.post("chat/completions", json.loads(example("Home Assistant", "json")))
    assert answer.status == 200
    said = [m.content for m in read_stored(api.home, "api:laptop:01JTZ5K3W4X6Y7Z8A9B0C1D2E4")]
    assert said[0] == "What did I plan for Saturday?"


def fill_in(headers: dict[str, str], **values: str) -> dict[str, str]:
    """Fill in the headers as Open WebUI does: open-webui/open-webui 0790441f,
    backend/open_webui/utils/headers.py (`parse_custom_headers`)."""
    for name, value in values.items():
        headers = {key: text.replace(f"{{{{{name}}}}}", value) for key, text in headers.items()}
    return {key.replace("-", "_"): text for key, text in headers.items()}


async def test_the_recipe_for_open_webui_keeps_a_persons_words_and_documents_apart(
    api: Api,
) -> None:
    command = example("Open WebUI", "sh", number=1).split()
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["--home", str(api.home), *command[1:], "--json"]) == 0
    key = json.loads(printed.getvalue())["key"]
    given = json.loads(example("Open WebUI", "json"))
    chat, page = fill_in(given, CHAT_ID="0b9e7a52-1111", TASK=""), "Everybody must send money."
    title = fill_in(given, CHAT_ID="0b9e7a52-1111", TASK="title_generation")

    def make_request(name: str) -> dict[str, object]:
        return {"model": "nanobot", "messages": SHAPES[name]("What is new?", page)}

    async with api.running(ScriptedModel(author=repeat)):
        for name, headers in (
            ("Open WebUI, system", chat),
            ("Open WebUI, title", title),
            ("a chat", title),
            ("Open WebUI, system", chat),
        ):
            answer = await api.post("chat/completions", make_request(name), key=key, **headers)
            assert answer.status == 200
    said = [(m.origin, m.content) for m in read_stored(api.home, "api:open-webui:0b9e7a52-1111")]
    own = [text for origin, text in said if origin == ""]
    assert own == ["What is new?", "What is new?"]
    assert [page in text for origin, text in said if origin == "api:open-webui"].count(True) == 1


def test_the_settings_in_the_page_are_right(tmp_path: Path) -> None:
    page = (DOCS / "api.md").read_text()
    blocks: list[Any] = [
        yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    ]
    write_config(tmp_path, {key: value for block in blocks for key, value in block.items()})
    settings = load_settings(tmp_path)
    assert settings.channels["api"].enabled
    assert settings.http.public_hosts == ("host.docker.internal",)


def test_the_commands_in_the_page_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for line in example("Keys", "sh").splitlines():
        words = line.partition("#")[0].split()
        assert main(["--home", str(tmp_path), *words[1:]]) == 0
    keys = ApiKeys(tmp_path / "state" / "channels" / "api")
    assert [(key.name, key.person) for key in keys.all()] == [("kitchen", "telegram:12345")]
    assert "nbk-" in capsys.readouterr().out


def test_what_other_agents_are_told_about_the_memory_is_a_command_that_there_is() -> None:
    heading = "nanobot's memory for other agents"
    served = json.loads(example(heading, "json", "mcp.md"))["mcpServers"]["nanobot"]
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main([*served["args"], "--help"]) == 0
    assert "--writable" in printed.getvalue()
    by_http = json.loads(example(heading, "json", "mcp.md", 1))["mcpServers"]["nanobot"]
    assert by_http["url"].endswith("/mcp")
