"""The page Health: how it is, the queue, backups, the disk, and the checks."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from nanobot.providers.port import Prompt, Reply
from nanobot.testing.model import ScriptedModel, says
from nanobot.upkeep.backups import exclusive_backup
from tests.channels.web.looking import looking, violations
from tests.channels.web.support import Web, serving

HOSTILE = '<script>alert(1)</script>"\u202e'
CHAT = "web:0123456789ab"


def _broken(_: Prompt) -> Reply:
    raise RuntimeError(HOSTILE)


async def _failed_message(web: Web) -> None:
    """A message whose turn broke, in-1."""
    async with web.visit() as visit:
        await visit.say(CHAT, HOSTILE)


async def test_a_failed_message_is_tried_again_or_dropped(tmp_path: Path, browser: Browser) -> None:
    model = ScriptedModel(_broken, _broken, says("Now."))
    async with serving(tmp_path, model) as web, looking(browser, web) as page:
        await _failed_message(web)
        await page.get_by_role("link", name="Health", exact=True).click()
        assert await violations(page) == []
        row = page.locator("tr", has_text="in-1")
        await expect(row).to_contain_text("<script>")
        await page.get_by_role("button", name="Try in-1 again").click()
        await expect(page.get_by_text("in-1 is tried again.")).to_be_visible()
        while not (await web.ask("queue.list"))["inbox"]:
            pass
        await page.goto(f"{web.base}/health")
        await page.get_by_role("button", name="Drop in-1").click()  # and yes to the question
        await expect(page.get_by_text("in-1 is dropped.")).to_be_visible()
        await expect(page.get_by_text("Nothing waits, and nothing failed.")).to_be_visible()
        (record,) = (await web.ask("audit.list", tool="queue.drop"))["records"]
        assert (record["by"], record["changed"]) == ("web:owner", "id in-1")


async def test_what_waits_for_nothing_is_told(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        for row in ("in-99", HOSTILE):
            form = {"row": row, "do": "drop"}
            status, text = await visit.post("/health/queue", form)
            assert (status, "is not waiting for a decision" in text) == (400, True)
            assert "<script>alert" not in text
        assert (await visit.post("/health/queue", {"row": "in-1", "do": "list"}))[0] == 400


async def test_a_backup_that_cannot_be_made_says_why(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        with exclusive_backup(tmp_path):
            assert (await visit.post("/health/backup"))[0] == 303
            while (await web.ask("backup.list"))["making"]:
                pass
        assert "The last one could not be made: " in (await visit.get("/health"))[1]
        assert (await web.ask("backup.list"))["backups"] == []


@pytest.mark.parametrize("path", ["/health", "/health/doctor"])
async def test_health_is_the_owners_alone(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7") as visit:
        assert (await visit.get(path))[0] == 404
        for change in ("/health/queue", "/health/backup"):
            assert (await visit.post(change, {"row": "in-1", "do": "drop"}))[0] == 404
