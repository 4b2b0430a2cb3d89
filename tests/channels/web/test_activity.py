"""The page Activity: turns, one as a waterfall, tool calls, and a live log."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Browser, expect

from nanobot.logs import LOG_FILE, Level, LogFile, LogLine
from nanobot.testing.model import ScriptedModel, calls, says
from tests.channels.web.browser import browse
from tests.channels.web.support import serving
from tests.support import Probe

HOSTILE = '"><script>alert(1)</script><img src=x onerror=alert(2)>\u202e'


async def test_no_text_of_a_turn_becomes_markup(tmp_path: Path) -> None:
    model, tool = ScriptedModel(calls("probe", text=HOSTILE), says(HOSTILE)), Probe(effects=True)
    async with serving(tmp_path, model, tools=[tool]) as web, web.visit() as visit:
        await visit.say(await visit.new_chat(), HOSTILE)
        listed = (await visit.get("/activity"))[1]
        turn = listed.partition("/activity/turn?id=")[2].partition('"')[0]
        for path, shown in (
            (f"/activity/turn?id={turn}", "&lt;script&gt;"),
            ("/activity/tools?tool=probe", "probe"),
            (f"/activity/tools?tool={quote(HOSTILE)}", "No matching records."),
        ):
            text = (await visit.get(path))[1]
            assert shown in text
            assert not re.search(r"<script>alert|<img src=x", text)


async def test_turns_are_paged_by_the_server(tmp_path: Path) -> None:
    model = ScriptedModel(*(says(f"{number}") for number in range(55)))
    async with serving(tmp_path, model) as web, web.visit() as visit:
        chat = await visit.new_chat()
        for number in range(55):
            await visit.say(chat, f"message {number}")
        _, first = await visit.get("/activity")
        assert first.count("/activity/turn?id=") == 50
        older = first.partition("Older turns")[0].rpartition('href="')[2].partition('"')[0]
        _, second = await visit.get(older.replace("&amp;", "&"))
        assert second.count("/activity/turn?id=") == 5
        assert "Older turns" not in second


async def test_the_log_follows(tmp_path: Path, browser: Browser) -> None:
    log = LogFile(tmp_path / "logs" / LOG_FILE, 100_000, 2)

    def put(level: Level, message: str) -> None:
        log.put(LogLine("2026-03-01T10:00:00.000+00:00", level, "here:1", message, "t1"))

    put("debug", "hardly anything")
    put("warning", f"before {HOSTILE}")
    async with serving(tmp_path) as web, browse(browser, web) as page:
        await page.goto(f"{web.base}/activity/log?level=info")
        shown = page.get_by_label("Log", exact=True)
        await expect(shown).to_contain_text("before")
        await expect(shown).not_to_contain_text("hardly anything")
        put("info", f"after {HOSTILE}")
        await expect(shown).to_contain_text("after")
        put_here = shown.locator(".line").filter(has_text=re.compile("before|after"))
        await expect(put_here).to_have_count(2)  # a note about a slow machine is next to them


@pytest.mark.parametrize(
    "path", ["/activity", "/activity/turn?id=x", "/activity/tools", "/activity/log"]
)
async def test_activity_is_the_owners_alone(tmp_path: Path, path: str) -> None:
    async with serving(tmp_path) as web:
        async with web.visit("telegram:7") as visit:
            assert (await visit.get(path))[0] == 404
        async with web.visit() as visit:
            assert (await visit.get("/activity/turn?id=unknown"))[0] == 400
