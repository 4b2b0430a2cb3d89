"""One conversation in the terminal and on the page: written from both, and shown in both once."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from nanobot.gateway import SOCKET_NAME
from nanobot.testing.model import ScriptedModel, says
from tests.channels.web.support import serving


class Terminal:
    """A connection to the control socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    def send(self, id: str, session: str, text: str = "", *, watch: bool = False) -> None:
        request = {"op": "chat", "id": id, "session": session, "text": text, "watch": watch}
        self._writer.write(json.dumps(request).encode() + b"\n")

    async def until(self, kind: str) -> dict[str, Any]:
        """Return the next event of a kind."""
        while True:
            event: dict[str, Any] = json.loads(await self._reader.readline())
            if event.get("event") == kind:
                return event


@asynccontextmanager
async def terminal(home: Path) -> AsyncIterator[Terminal]:
    reader, writer = await asyncio.open_unix_connection(home / "state" / SOCKET_NAME)
    yield Terminal(reader, writer)
    writer.close()
    await writer.wait_closed()


async def test_the_page_continues_the_terminals_chat(tmp_path: Path) -> None:
    model = ScriptedModel(says("from the *start*"), says("to the page"), says("and back"))
    async with (
        serving(tmp_path, model) as web,
        terminal(tmp_path) as here,
        web.visit() as visit,
    ):
        here.send("1", "cli:direct", "hello")
        assert (await here.until("reply"))["text"] == "from the *start*"
        here.send("w", "cli:direct", watch=True)
        await here.until("accepted")
        events = await visit.say("cli:direct", "I am on the page")
        assert events[-1]["kind"] == "end"
        assert (await here.until("notice"))["text"] == "You on the page: I am on the page"
        assert (await here.until("message"))["text"] == "to the page"
        status, page = await visit.get("/chat?c=cli:direct")
        assert (status, page.count("to the page")) == (200, 1)
        assert 'data-writable="yes"' in page
        await visit.say("cli:direct", "/title Both")
        await visit.say("cli:direct", "/remind every day at 8 tea")
        (job,) = (await web.ask("cron.list"))["jobs"]
        assert job["chat"] == "cli:direct"
        here.send("2", "cli:direct", "and I am back")
        assert (await here.until("reply"))["text"] == "and back"
        shown = await web.ask("conversations.show", key="cli:direct")
        listed = await web.ask("conversations.list")
    assert [one["content"] for one in shown["messages"]] == [
        *("hello", "from the *start*", "I am on the page", "to the page"),
        *("and I am back", "and back"),
    ]
    assert [(one["key"], one["title"]) for one in listed["conversations"]] == [
        ("cli:direct", "Both")
    ]


async def test_the_terminal_continues_the_pages_chat(tmp_path: Path) -> None:
    model = ScriptedModel(says("to the page"), says("to the terminal"))
    async with (
        serving(tmp_path, model) as web,
        terminal(tmp_path) as here,
        web.visit() as visit,
    ):
        chat = await visit.new_chat()
        await visit.say(chat, "hello")
        async with visit.open(f"/live?c={chat}&after=1000000") as live:
            await live.content.readline()
            here.send("1", chat, "from the terminal")
            assert (await here.until("reply"))["text"] == "to the terminal"
            here.send("2", chat, "/remind every day at 8 tea")
            await here.until("reply")
            assert [one["chat"] for one in (await web.ask("cron.list"))["jobs"]] == [chat]
            ended = False
            async for line in live.content:
                event = json.loads(line[6:]) if line.startswith(b"data: ") else {}
                ended = ended or event.get("kind") == "end"
                if ended:
                    break
        assert (await visit.get(f"/chat?c={chat}"))[1].count("to the terminal") == 1
        listed = await web.ask("conversations.list")
    assert [one["key"] for one in listed["conversations"]] == [chat]


async def test_others_cannot_write_in_the_terminals_chat(tmp_path: Path) -> None:
    model = ScriptedModel(says("hi"))
    async with (
        serving(tmp_path, model) as web,
        terminal(tmp_path) as here,
        web.visit("telegram:5") as visit,
    ):
        here.send("1", "cli:direct", "hello")
        await here.until("reply")
        data = {"c": "cli:direct", "event": "0123456789ab", "text": "hello"}
        assert (await visit.post("/chat/send", data))[0] in (403, 404)
    assert len(model.prompts) == 1
