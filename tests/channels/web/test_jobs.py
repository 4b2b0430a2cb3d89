"""The page Jobs: schedules and their actions."""

from __future__ import annotations

from pathlib import Path

from tests.channels.web.support import Visit, serving

HOSTILE = "<script>alert(1)</script> \"'><img src=x onerror=alert(2)> \u202edne"


async def test_a_task_is_the_agents_and_its_runs_can_be_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        given = {"schedule": "every 2h", "message": "Look at the news", "kind": "task", "chat": ""}
        assert (await visit.post("/jobs/add", given))[0] == 303
        (stored,) = (await web.ask("cron.list"))["jobs"]
        assert not stored["reminder"]
        assert "every 2h" in (await visit.get("/jobs"))[1]


async def test_helpers_and_the_heartbeat_are_shown(tmp_path: Path) -> None:
    (tmp_path / "workspace").mkdir()
    (tmp_path / "workspace" / "HEARTBEAT.md").write_text(f"- look after {HOSTILE}\n")
    config = {"heartbeat": {"every": "30m"}}
    async with serving(tmp_path, config=config) as web, web.visit() as visit:
        text = (await visit.get("/jobs"))[1]
        for shown in ("No subagents are running.", "Every 30 minutes", "look after &lt;script&gt;"):
            assert shown in text
        assert "<script>alert" not in text
        heartbeat = await web.ask("heartbeat.show")
        assert (heartbeat["on"], heartbeat["asks"], heartbeat["seconds"]) == (True, True, 1_800)
        assert heartbeat["next"] is not None


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
