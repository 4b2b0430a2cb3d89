"""The page Memory: facts, their sources, and their actions."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.channels.web.support import Visit, Web, serving

FACTS = "# Memory\n\n## People\n\n- Ana was born on 3 May\n- Tom works at the harbour\n"
WAITING = (
    "# Pending facts\n"
    "- [2026-11-20] (from tool:web_fetch) -> MEMORY.md: The museum opens at ten\n"
    "- [2026-11-20] (from tool:web_fetch) -> MEMORY.md: The baker is closed on Mondays\n"
)
HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=alert(2)> \u202edne"
VIEWS = ("", "/pending", "/versions", "/notes", "/history", "/search?q=opens")


def _remember(home: Path, scope: str = "", facts: str = FACTS, waiting: str = "") -> Path:
    folder = home / "workspace" / scope / "memory"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "MEMORY.md").write_text(facts)
    if waiting:
        (folder / "pending.md").write_text(waiting)
    return folder / "MEMORY.md"


def _read_audit(home: Path, operation: str) -> list[dict[str, Any]]:
    lines = (home / "logs" / "audit.jsonl").read_text().splitlines()
    return [one for line in lines if (one := json.loads(line))["tool"] == operation]


async def _fact(web: Web, words: str, scope: str = "owner") -> dict[str, Any]:
    facts = (await web.ask("memory.facts", scope=scope))["facts"]
    return next(one for one in facts if words in one["text"])


async def test_a_person_sees_and_changes_their_own_memory_and_no_other(tmp_path: Path) -> None:
    _remember(tmp_path, waiting=WAITING)
    theirs = _remember(tmp_path, "people/telegram_7", "- Speaks Finnish\n")
    telegram = {"enabled": False, "token": "1:" + "x" * 35, "allow_from": ["7", "8"]}
    config = {"channels": {"web": {"enabled": True}, "telegram": telegram}}
    async with serving(tmp_path, config=config) as web, web.visit("telegram:7") as visit:
        own = await _fact(web, "Finnish", "people/telegram_7")
        foreign = await _fact(web, "Ana")
        status, text = await visit.get("/memory")
        assert status == 200
        assert "Speaks Finnish" in text
        assert "Ana" not in text
        for scope in ("owner", "people/telegram_8", "groups/telegram_7"):
            for view in (*VIEWS, f"/fact?id={foreign['id']}", "/version?n=1", "/forget?id=x"):
                path = f"/memory{view}{'&' if '?' in view else '?'}scope={scope}"
                assert (await visit.get(path))[0] == 404, path
            for action in ("edit", "importance", "forget", "decide", "restore"):
                given = {"scope": scope, "id": foreign["id"], "version": "1", "new": "x"}
                assert (await visit.post(f"/memory/{action}", given))[0] == 404, action
        for path in (f"/memory/fact?id={foreign['id']}", f"/memory/forget?id={foreign['id']}"):
            assert (await visit.get(path))[0] == 404
        assert (await visit.get(f"/memory/forget?id={own['id']}&erase=1"))[0] == 403
        given = {"id": own["id"], "new": "Speaks Finnish and Sami"}
        assert (await visit.post("/memory/edit", given))[0] == 303
        assert theirs.read_text() == "- Speaks Finnish and Sami\n"
        (done,) = _read_audit(tmp_path, "memory.edit")
        assert (done["by"], done["scope"]) == ("web:telegram:7", "people/telegram_7")


async def test_a_retired_fact_shows_what_replaced_it_and_a_restore_brings_no_dropped_one_back(
    tmp_path: Path,
) -> None:
    line = "- [2026-11-20] (from tool:web_fetch) -> MEMORY.md: - Tom works at the bakery\n"
    old = "  instead of: - Tom works at the harbour\n"
    _remember(tmp_path, waiting=WAITING + line + old)
    async with serving(tmp_path) as web, web.visit() as visit:
        await web.ask("memory.accept", numbers=[3])
        await web.ask("memory.drop", numbers=[1])
        fact = await _fact(web, "harbour")
        assert fact["path"] == "memory/retired.md"
        text = (await visit.get(f"/memory/fact?id={fact['id']}"))[1]
        assert "This version retired it, replaced by: Tom works at the bakery." in text
        await web.ask("memory.restore", to=1)
        waiting = (await web.ask("memory.pending"))["pending"]
        assert [one["line"] for one in waiting] == [
            "The baker is closed on Mondays", "- Tom works at the bakery"
        ]  # fmt: skip
        assert "harbour" in (await _fact(web, "harbour"))["text"]


async def test_notes_and_history_are_shown(tmp_path: Path) -> None:
    folder = _remember(tmp_path).parent
    (folder / "2026-11-20.md").write_text("# 2026-11-20\n\n- 10:00 the key is under the mat\n")
    entry = {
        "cursor": 1, "timestamp": "2026-03-10T14:23:00+01:00", "type": "consolidation",
        "session": "cli:direct", "range": [1, 4], "summary": "[2026-03-10 14:23] We planned it.",
        "key_facts": ["The trip is in June"], "operations": [], "origin": [],
    }  # fmt: skip
    (folder / "history.jsonl").write_text(json.dumps(entry) + "\n")
    async with serving(tmp_path) as web, web.visit() as visit:
        assert "the key is under the mat" in (await visit.get("/memory/notes"))[1]
        assert (await visit.get("/memory/notes?day=../../x"))[0] == 400
        text = (await visit.get("/memory/history"))[1]
        assert "We planned it." in text
        assert "The trip is in June" in text


async def test_a_source_is_named_by_the_title_of_its_chat(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        chat = await visit.new_chat()
        await visit.say(chat, "remember that I park on level 3")
        fact = await _fact(web, "level 3")
        async with asyncio.timeout(10):  # until the session file has the first message
            while "remember that I park" not in (await visit.get("/chat/list"))[1]:
                pass
        for path in (f"/memory/fact?id={fact['id']}", "/people"):
            _, text = await visit.get(path)
            named = re.findall(r'href="/chat\?c=web[^"]*"[^>]*>([^<]*)<', text)
            assert named, path
            assert all(one.startswith("remember that I park") for one in named), path


@pytest.mark.parametrize("scope", ["", "people/telegram_7"])
async def test_no_text_of_memory_becomes_markup(tmp_path: Path, scope: str) -> None:
    waiting = f"# W\n- [2026-11-20] (from tool:x) -> MEMORY.md: {HOSTILE}\n"
    folder = _remember(tmp_path, scope, f"## {HOSTILE}\n\n- {HOSTILE}\n", waiting).parent
    (folder / "2026-11-20.md").write_text(f"- 10:00 {HOSTILE}\n")
    async with serving(tmp_path) as web, web.visit() as visit:
        name = scope or "owner"
        fact = await _fact(web, "alert", name)
        await web.ask("memory.edit", scope=name, path="memory/MEMORY.md", new=f"x {HOSTILE}")
        views = (*VIEWS, f"/fact?id={fact['id']}", f"/forget?id={fact['id']}", "/version?n=2")
        for view in (
            *views,
            "/version?n=2&part=1",
            "/search?q=<script>&chat=<b>",
        ):
            path = f"/memory{view}{'&' if '?' in view else '?'}scope={name}"
            status, text = await visit.get(path)
            assert status == 200, path
            assert not re.search(r"<script>|<img src=x|<b>&chat|onerror=alert\(2\)>", text), path
        given = {"scope": name, "id": fact["id"], "new": f"{HOSTILE} again"}
        assert (await visit.post("/memory/edit", given))[0] == 303
        assert "<script>" not in (await visit.get(f"/memory?scope={name}"))[1]


async def test_what_cannot_be_done_is_said_and_changes_nothing(tmp_path: Path) -> None:
    file = _remember(tmp_path)
    async with serving(tmp_path) as web, web.visit() as visit:
        fact = await _fact(web, "Ana")
        assert (await visit.post("/memory/edit", {"id": fact["id"], "new": " # "}))[0] == 303
        assert "the text has no words" in (await visit.get("/memory"))[1]
        assert "the text has no words" not in (await visit.get("/memory"))[1]
        await visit.post("/memory/importance", {"id": fact["id"], "level": "9"})
        assert "importance must be a number from 1 to 5" in (await visit.get("/memory"))[1]
        await visit.post("/memory/restore", {"version": "77"})
        assert "there is no version 77" in (await visit.get("/memory"))[1]
        file.write_text(FACTS.replace("3 May", "5 May"))
        for action in ("edit", "forget", "importance"):
            given = {"id": fact["id"], "new": "x", "level": "1"}
            assert (await visit.post(f"/memory/{action}", given))[0] == 404
        assert file.read_text() == FACTS.replace("3 May", "5 May")
        assert _read_audit(tmp_path, "memory.edit")[0]["outcome"] == "failed"


async def test_without_the_token_nothing_is_changed(tmp_path: Path) -> None:
    file = _remember(tmp_path)
    async with serving(tmp_path) as web, web.visit() as visit:
        fact = await _fact(web, "Ana")
        forger = Visit(web.base, visit.session, "0" * 64)
        for action in ("edit", "importance", "forget", "decide", "restore"):
            given = {"id": fact["id"], "new": "x", "version": "1", "to": "1"}
            assert (await forger.post(f"/memory/{action}", given))[0] == 403
        assert file.read_text() == FACTS
