"""The page People: channels, access, memories, and signed-in browsers."""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nanobot.session.records import Metadata, encode, stem_of
from tests.channels.web.support import Visit, Web, serving
from tests.doubles.telegram import FakeTelegram

HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=alert(2)>"


def _read_audit(home: Path, operation: str) -> list[dict[str, Any]]:
    lines = (home / "logs" / "audit.jsonl").read_text().splitlines()
    return [one for line in lines if (one := json.loads(line))["tool"] == operation]


@contextlib.asynccontextmanager
async def _with_strangers(home: Path, *names: str) -> AsyncIterator[Web]:
    """Run a nanobot on Telegram with the owner 7, and people who write to it for the first time."""
    async with FakeTelegram() as telegram:
        channel = {"enabled": True, "token": telegram.token, "base_url": telegram.base_url}
        config = {
            "owner": {"telegram": ["7"]},
            "channels": {"telegram": channel, "web": {"enabled": True}},
        }
        async with serving(home, config=config) as web:
            for id, name in enumerate(names, 100):
                telegram.person(id, first_name=name)
                telegram.say("hello", user=id)
                await telegram.receive(1, id)
            yield web


async def test_a_name_that_somebody_gave_themselves_is_text(tmp_path: Path) -> None:
    async with _with_strangers(tmp_path, HOSTILE) as web, web.visit() as visit:
        (asked,) = (await web.ask("pair.list"))["requests"]
        for _ in range(2):
            text = (await visit.get("/people"))[1]
            assert "&lt;script&gt;" in text
            assert not re.search(r"<script>alert|<img src=x", text)
            await visit.post("/people/approve", {"code": asked["code"]})
        assert (await web.ask("pair.list"))["requests"] == []


async def test_a_code_that_somebody_gave_is_typed_in_and_a_wrong_one_is_said(
    tmp_path: Path,
) -> None:
    async with _with_strangers(tmp_path, "Eve") as web, web.visit() as visit:
        (asked,) = (await web.ask("pair.list"))["requests"]
        await visit.post("/people/approve", {"code": "WRONG123"})
        assert "told" in (await visit.get("/people"))[1]
        assert (await web.ask("pair.list"))["approved"] == []
        await visit.post("/people/approve", {"code": asked["code"], "owner": "true"})
        (inside,) = (await web.ask("pair.list"))["approved"]
        assert not inside["owner"]


async def test_only_the_terminal_makes_an_owner_or_takes_it_back(tmp_path: Path) -> None:
    async with _with_strangers(tmp_path, "Eve") as web, web.visit() as visit:
        (asked,) = (await web.ask("pair.list"))["requests"]
        await web.ask("pair.approve", code=asked["code"], owner=True)
        text = (await visit.get("/people"))[1]
        assert "Revoke Eve" not in text
        for address in ("telegram:100", " telegram:100", "telegram:100\n"):
            await visit.post("/people/revoke", {"address": address})
            assert "is the owner" in (await visit.get("/people"))[1]
        assert len((await web.ask("pair.list"))["approved"]) == 1
        assert _read_audit(tmp_path, "pair.approve")[0]["by"] == "terminal"


async def test_who_is_shut_out_is_signed_out_as_well(tmp_path: Path) -> None:
    async with (
        _with_strangers(tmp_path, "Eve") as web,
        web.visit() as visit,
        web.visit("telegram:100") as eve,
    ):
        (asked,) = (await web.ask("pair.list"))["requests"]
        await web.ask("pair.approve", code=asked["code"])
        assert (await eve.get("/memory"))[0] == 200
        await visit.post("/people/revoke", {"address": "telegram:100"})
        assert (await eve.get("/memory"))[0] == 401
        assert (await visit.get("/people"))[0] == 200


async def test_browsers_are_listed(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7"), web.visit() as visit:
        text = (await visit.get("/people"))[1]
        assert text.count("this one") == 1
        assert "Sign out telegram:7" in text


async def test_whose_memory_is_whose_is_shown(tmp_path: Path) -> None:
    folder = tmp_path / "workspace" / "people" / "telegram_8" / "memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text("- Speaks Finnish\n")
    config = {"memory": {"identities": [["telegram:8", "whatsapp:9"]]}}
    async with serving(tmp_path, config=config) as web, web.visit() as visit:
        text = (await visit.get("/people"))[1]
        assert "people/telegram_8" in text
        assert "linked: telegram:8, whatsapp:9" in text


async def test_many_memories_are_shown_a_hundred_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    then = datetime(2026, 1, 1, tzinfo=UTC)
    for number in range(101):
        key = f"telegram:{number}"
        path = tmp_path / "sessions" / f"{stem_of(key)}.jsonl"
        path.write_text(encode(Metadata(key, then, then)))
    async with serving(tmp_path) as web, web.visit() as visit:
        shown = [(await visit.get(f"/people?offset={offset}"))[1] for offset in (0, 100)]
    found = [set(re.findall(r"scope=people/telegram_(\d+)", html)) for html in shown]
    assert len(found[0] | found[1]) == 101
    assert not found[0] & found[1]
    assert 'href="/people?offset=100"' in shown[0]


async def test_nobody_but_the_owner_sees_or_changes_people(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7") as visit, web.visit() as owner:
        assert (await visit.get("/people"))[0] == 404
        sessions = (await web.ask("web.list"))["sessions"]
        given = {"id": sessions[0]["id"], "code": "x", "address": "telegram:7"}
        forger = Visit(web.base, owner.session, "0" * 64)
        for action in ("approve", "revoke", "sign-out"):
            assert (await visit.post(f"/people/{action}", given))[0] == 404
            assert (await forger.post(f"/people/{action}", given))[0] == 403
        assert len((await web.ask("web.list"))["sessions"]) == 2
