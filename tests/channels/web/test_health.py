"""The page Health: status, queue, backups, disk, and checks."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from nanobot.providers.port import Prompt, Reply
from nanobot.testing.model import ScriptedModel
from nanobot.upkeep.backups import exclusive_backup
from tests.channels.web.support import Web, serving
from tests.ports import free_port
from tests.support import start_configured

HOSTILE = '<script>alert(1)</script>"\u202e'


def _raise_hostile(_: Prompt) -> Reply:
    raise RuntimeError(HOSTILE)


async def test_a_failed_message_is_shown_as_text_and_who_dropped_it_is_recorded(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path, ScriptedModel(_raise_hostile)) as web, web.visit() as visit:
        await visit.say(await visit.new_chat(), HOSTILE)
        text = (await visit.get("/health"))[1]
        assert "Try in-1 again" in text
        assert "&lt;script&gt;" in text
        assert "<script>alert" not in text
        await visit.post("/health/queue", {"row": "in-1", "do": "drop"})
        (record,) = (await web.ask("audit.list", tool="queue.drop"))["records"]
        assert (record["by"], record["changed"]) == ("web:owner", "id in-1")


async def test_what_waits_for_nothing_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        for row in ("in-99", HOSTILE):
            form = {"row": row, "do": "drop"}
            assert (await visit.post("/health/queue", form))[0] == 303
            text = (await visit.get("/health"))[1]
            assert "is not a failed message or an undelivered reply" in text
            assert "<script>alert" not in text
        assert (await visit.post("/health/queue", {"row": "in-1", "do": "list"}))[0] == 400


async def test_a_backup_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        with exclusive_backup(tmp_path):
            assert (await visit.post("/health/backup"))[0] == 303
            while (await web.ask("backup.list"))["making"]:
                pass
        assert "The last backup failed: " in (await visit.get("/health"))[1]
        assert (await web.ask("backup.list"))["backups"] == []


@pytest.mark.parametrize("path", ["/health", "/health/doctor"])
async def test_health_is_the_owners_alone(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7") as visit:
        assert (await visit.get(path))[0] == 404
        for change in ("/health/queue", "/health/backup"):
            assert (await visit.post(change, {"row": "in-1", "do": "drop"}))[0] == 404


async def test_the_page_is_not_said_to_run_before_it_can_be_opened(tmp_path: Path) -> None:
    port = free_port()
    async with start_configured(tmp_path, {"http": {"port": port}}, None) as gateway:
        web = Web(f"http://127.0.0.1:{port}", tmp_path, gateway)

        async def state() -> object:
            (page,) = (c for c in (await web.ask("status"))["channels"] if c["name"] == "web")
            return page["state"], page["detail"]

        assert await state() == ("idle", "to open the page, run `nanobot web`")
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", port)
        assert (await web.ask("status"))["health"]["state"] == "ok"
        await web.link()
        assert await state() == ("running", "")
