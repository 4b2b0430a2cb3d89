"""The page Jobs: what is scheduled and what a person does about it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, expect

from tests.channels.web.looking import looking, violations
from tests.channels.web.support import Visit, serving

HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=alert(2)> \u202edne"


def _audited(home: Path, operation: str) -> list[dict[str, Any]]:
    lines = (home / "logs" / "audit.jsonl").read_text().splitlines()
    return [one for line in lines if (one := json.loads(line))["tool"] == operation]


async def test_a_job_is_added_paused_resumed_run_and_removed(
    tmp_path: Path, browser: Browser
) -> None:
    async with (
        serving(tmp_path) as web,
        looking(browser, web) as page,
    ):
        await page.get_by_role("link", name="Jobs", exact=True).click()
        assert await violations(page) == []
        await page.get_by_label("When", exact=True).fill("every day at 8")
        await page.get_by_label("Text", exact=True).fill("Water the plants")
        await page.get_by_role("button", name="Schedule").focus()
        await page.keyboard.press("Enter")
        job = page.get_by_role("listitem").filter(has_text="Water the plants")
        await expect(job).to_contain_text("reminder")
        await expect(job).to_contain_text("Next 20")
        assert await violations(page) == []
        await page.get_by_role("button", name="Pause Water the plants").click()
        await expect(job).to_contain_text("paused")
        (stored,) = (await web.ask("cron.list"))["jobs"]
        assert (stored["enabled"], stored["reminder"]) == (False, True)
        await page.get_by_role("button", name="Resume Water the plants").click()
        await expect(job).not_to_contain_text("paused")
        await page.get_by_role("button", name="Run Water the plants now").click()
        await expect(page.get_by_text("runs now")).to_be_visible()
        await page.get_by_role("button", name="Remove Water the plants").click()
        await expect(page.get_by_text("Nothing is scheduled.")).to_be_visible()
        assert (await web.ask("cron.list"))["jobs"] == []
        for word in ("add", "pause", "resume", "run", "remove"):
            (done,) = _audited(tmp_path, f"cron.{word}")
            assert (done["by"], done["changed"][:9]) == ("web:owner", f"id {stored['id']}"[:9])


async def test_a_task_is_the_agents_and_its_runs_can_be_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        given = {"schedule": "every 2h", "message": "Look at the news", "kind": "task", "chat": ""}
        assert (await visit.post("/jobs/add", given))[0] == 303
        (stored,) = (await web.ask("cron.list"))["jobs"]
        assert not stored["reminder"]
        assert "every 2h" in (await visit.get("/jobs"))[1]


async def test_helpers_and_the_heartbeat_are_shown(tmp_path: Path, browser: Browser) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "HEARTBEAT.md").write_text(f"- look after {HOSTILE}\n")
    config = {"heartbeat": {"every": "30m"}}
    async with serving(tmp_path, config=config) as web, looking(browser, web) as page:
        await page.goto(f"{web.base}/jobs")
        await expect(page.get_by_text("No helper is at work.")).to_be_visible()
        await expect(page.get_by_text("Every 30 minutes")).to_be_visible()
        await page.get_by_text("HEARTBEAT.md", exact=True).click()
        await expect(page.get_by_label("HEARTBEAT.md")).to_contain_text("look after <script>")
        shown = await web.ask("heartbeat.show")
        assert (shown["on"], shown["asks"], shown["seconds"]) == (True, True, 1_800)
        assert shown["next"] is not None


async def test_no_text_of_a_job_becomes_markup_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        given = {"schedule": "every 2h", "message": HOSTILE, "kind": "reminder", "chat": ""}
        assert (await visit.post("/jobs/add", given))[0] == 303
        text = (await visit.get("/jobs"))[1]
        assert "<script>alert" not in text
        assert "<img" not in text.replace('<img src="/static', "")
        await visit.post("/jobs/add", {**given, "schedule": HOSTILE})
        text = (await visit.get("/jobs"))[1]
        assert "told" in text
        assert "<script>alert" not in text
        await visit.post("/jobs/change", {"id": "nothing", "do": "remove"})
        assert "there is no job" in (await visit.get("/jobs"))[1]
        assert (await visit.post("/jobs/change", {"id": "x", "do": "explode"}))[0] == 400
        assert len((await web.ask("cron.list"))["jobs"]) == 1


async def test_nobody_but_the_owner_sees_or_changes_jobs(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7") as visit:
        assert (await visit.get("/jobs"))[0] == 404
        given = {"schedule": "every 2h", "message": "x", "id": "x", "do": "remove"}
        for action in ("add", "change"):
            assert (await visit.post(f"/jobs/{action}", given))[0] == 404
        assert "/jobs" not in (await visit.get("/memory"))[1]
        async with web.visit() as owner:
            forger = Visit(web.base, owner.session, "0" * 64)
            for action in ("add", "change"):
                assert (await forger.post(f"/jobs/{action}", given))[0] == 403
        assert (await web.ask("cron.list"))["jobs"] == []
