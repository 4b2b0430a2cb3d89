"""A conversation of the page belongs to one scope even before its first message."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from aiohttp import ClientPayloadError, ClientResponse

from nanobot.providers.port import Prompt, Reply
from nanobot.session.records import Metadata, encode, stem_of
from nanobot.testing import ScriptedModel, says
from tests.channels.web.support import Visit, serving

GUEST, OTHER = "telegram:12", "telegram:13"
CONFIG: Mapping[str, Any] = {
    "channels": {
        "web": {"enabled": True},
        "telegram": {"enabled": False, "token": "1:" + "x" * 35, "allow_from": ["12", "13"]},
    }
}
SECRET = "the vault opens with 4711"
READERS = ("/chat", "/chat/older", "/chat/find", "/chat/export", "/live", "/file")


async def statuses(visit: Visit, chat: str) -> set[int]:
    """Return the statuses of all addresses that show a conversation."""
    return {(await visit.get(f"{path}?c={chat}&q=vault&seq=1"))[0] for path in READERS}


async def try_to_send(visit: Visit, chat: str, text: str = "hello") -> int:
    """Return the status of an attempt to write in a conversation."""
    data = {"c": chat, "event": "a" * 32, "text": text}
    return (await visit.post("/chat/send", data))[0]


@pytest.mark.parametrize("follower", [GUEST, "owner", OTHER])
async def test_nobody_follows_or_begins_a_conversation_that_was_made_for_another(
    tmp_path: Path, follower: str
) -> None:
    async with (
        serving(tmp_path, config=CONFIG) as web,
        web.visit() as owner,
        web.visit(GUEST) as guest,
        web.visit(follower if follower != "owner" else "") as visit,
    ):
        makers = [one for one, account in ((owner, "owner"), (guest, GUEST)) if account != follower]
        for maker in makers:
            chat = await maker.new_chat()
            assert await statuses(visit, chat) == {404}
            assert await try_to_send(visit, chat) == 404
            assert await try_to_send(maker, chat) == 200


@pytest.mark.parametrize("account", ["", GUEST])
async def test_a_conversation_that_does_not_exist_is_nobodys(tmp_path: Path, account: str) -> None:
    chats = ("web:" + "0" * 12, "web:" + "0" * 32, "web:", "web:x", "web", "api:k:x", "cron:x")
    async with serving(tmp_path, config=CONFIG) as web, web.visit(account) as visit:
        for chat in chats:
            assert await statuses(visit, chat) == {404}, chat
            assert await try_to_send(visit, chat) == 404, chat


@pytest.mark.parametrize("spelling", ["{} ", " {}", "{}\n", "\u00a0{}"])
async def test_a_chat_has_one_name_only(tmp_path: Path, spelling: str) -> None:
    async with serving(tmp_path, config=CONFIG) as web, web.visit() as visit:
        chat = await visit.new_chat()
        assert await try_to_send(visit, chat) == 200
        other = spelling.format(chat)
        assert await statuses(visit, quote(other)) == {404}
        assert await try_to_send(visit, other) == 404


async def test_the_owner_reads_a_guests_conversation_by_name_and_does_not_write_in_it(
    tmp_path: Path,
) -> None:
    model = ScriptedModel(author=lambda _: says("fine"))
    async with (
        serving(tmp_path, model, config=CONFIG) as web,
        web.visit() as owner,
        web.visit(GUEST) as guest,
    ):
        chat = await guest.new_chat()
        await guest.say(chat, "Remember that the door is blue.")
        _, page = await owner.get(f"/chat?c={chat}")
        assert "This conversation belongs to people/telegram_12" in page
        assert 'id="compose"' not in page
        asked = len(model.prompts)
        assert await try_to_send(owner, chat, SECRET) == 403
        assert (await owner.post("/chat/press", {"c": chat, "button": "x"}))[0] == 403
        async with guest.open(f"/live?c={chat}&after=0") as live:
            await guest.say(chat, "And now?")
            heard = await until(live, "messages")
        assert SECRET not in json.dumps(heard)
        assert SECRET not in "".join(message.text for message in model.prompts[-1].messages)
        assert len(model.prompts) == asked + 1


async def until(live: ClientResponse, kind: str) -> list[dict[str, Any]]:
    """Return the events of a stream up to the first of that kind with content."""
    heard: list[dict[str, Any]] = []
    async for line in live.content:
        if line.startswith(b"data: "):
            heard.append(json.loads(line[6:]))
            if heard[-1]["kind"] == kind and heard[-1].get("html", "").strip():
                return heard
    raise AssertionError(f"the stream ended: {heard}")


class HeldModel:
    """A model whose answers wait."""

    def __init__(self) -> None:
        self.asked, self.free = asyncio.Event(), asyncio.Event()

    def model(self) -> ScriptedModel:
        async def hold() -> None:
            self.asked.set()
            await self.free.wait()

        def author(_: Prompt) -> Reply:
            return says(SECRET)

        return ScriptedModel(author=author, hold=hold)


async def rest(live: ClientResponse) -> str:
    """Return the rest of a stream."""
    return (await live.content.read()).decode()


async def test_who_is_signed_out_hears_no_more(tmp_path: Path) -> None:
    held = HeldModel()
    async with (
        serving(tmp_path, held.model(), config=CONFIG) as web,
        web.visit(GUEST) as guest,
        web.visit(GUEST) as other,
    ):
        chat = await guest.new_chat()
        assert await try_to_send(guest, chat) == 200
        await held.asked.wait()
        async with other.open(f"/live?c={chat}&after=0") as live:
            await live.content.readline()
            await web.ask("web.revoke", id=GUEST)
            held.free.set()
            assert SECRET not in await rest(live)


async def test_each_event_of_a_stream_is_for_whom_the_conversation_is_by_then(
    tmp_path: Path,
) -> None:
    held = HeldModel()
    async with serving(tmp_path, held.model(), config=CONFIG) as web, web.visit(GUEST) as guest:
        chat = await guest.new_chat()
        assert await try_to_send(guest, chat) == 200
        await held.asked.wait()
        path = tmp_path / "sessions" / f"{stem_of(chat)}.jsonl"
        while not (path.exists() and path.stat().st_size):  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(0.01)
        async with guest.open(f"/live?c={chat}&after=0") as live:
            await live.content.readline()
            then, whose = datetime.now(UTC), {"scope": "people/telegram_13"}
            with path.open("a") as file:
                file.write(encode(Metadata(chat, then, then, metadata=whose)))
            held.free.set()
            with contextlib.suppress(ClientPayloadError):
                assert SECRET not in await rest(live)
        assert await statuses(guest, chat) == {404}


async def test_a_search_that_fails_names_no_place_on_the_disk_to_others(tmp_path: Path) -> None:
    (tmp_path / "state" / "index.db").mkdir(parents=True)  # in place of the index
    async with serving(tmp_path, config=CONFIG) as web, web.visit(GUEST) as guest:
        page = (await guest.get("/memory/search?q=tea"))[1]
        assert "only the owner can see why" in page
        assert str(tmp_path) not in page
