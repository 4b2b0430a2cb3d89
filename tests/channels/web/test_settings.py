"""The page Settings: what there is, a change from the form to the file, and a restart."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from nanobot.errors import NanobotError
from tests.channels.web.looking import looking, violations
from tests.channels.web.support import Visit, free_port, serving

PREFIX = '"><script>x'
HOSTILE = '"><script>alert(1)</script>\u202e'


def _as_people_write(home: Path, more: str = "") -> None:
    """The configuration in lines, so that one of them can be changed."""
    config = json.loads((home / "config.yaml").read_text())
    http = f"http:\n  port: {config['http']['port']}\n"
    (home / "config.yaml").write_text(f"{http}channels:\n  web:\n    enabled: true\n{more}")


async def test_a_change_is_shown_first_and_written_then(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web, looking(browser, web) as page:
        _as_people_write(tmp_path)
        await page.get_by_role("link", name="Settings", exact=True).click()
        assert await violations(page) == []
        await page.get_by_label("Search settings").fill("agent.on_busy")
        await page.keyboard.press("Enter")
        await expect(page.locator("tbody tr")).to_have_count(1)
        await page.get_by_role("link", name="agent.on_busy").click()
        await page.get_by_label("New value").select_option("queue")
        await page.get_by_role("button", name="Show the change").click()
        await expect(page.get_by_label("Difference")).to_contain_text("on_busy: queue")
        assert "queue" not in (tmp_path / "config.yaml").read_text()
        assert await violations(page) == []
        await page.get_by_role("button", name="Apply").click()
        await expect(page.get_by_text("agent.on_busy is changed.")).to_be_visible()
        await expect(page.get_by_text("It counts after a restart.")).to_be_visible()
        assert "on_busy: queue" in (tmp_path / "config.yaml").read_text()
        shown = await web.ask("config.show")
        assert next(k for k in shown["keys"] if k["key"] == "agent.on_busy")["value"] == "queue"
        (line,) = (tmp_path / "logs" / "audit.jsonl").read_text().splitlines()[-1:]
        done = json.loads(line)
        assert (done["tool"], done["by"]) == ("config.apply", "web:owner")
        assert done["changed"] == "changed agent.on_busy"


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("agent.max_iterations", "many", "whole number"),
        ("agent.max_iterations", "-3", "agent.max_iterations"),
        ("limits.warn_at", "nan", "a number"),
        ("dream.cron", HOSTILE, "dream.cron"),
    ],
)
async def test_what_cannot_be_is_told_and_not_offered(
    tmp_path: Path, key: str, typed: str, said: str
) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        _, text = await visit.post("/settings/plan", {"key": key, "value": typed})
        assert said in text
        assert "<script>alert" not in text
        assert ">Apply<" not in text


async def test_what_decides_about_security_is_left_to_the_terminal(tmp_path: Path) -> None:
    key = "tools.exec.sandbox"
    async with serving(tmp_path) as web, web.visit() as visit:
        _as_people_write(tmp_path)
        _, text = await visit.get(f"/settings/edit?key={key}")
        assert f"nanobot config set {key}" in text
        assert 'name="value"' not in text
        status, _ = await visit.post("/settings/plan", {"key": key, "value": "none"})
        assert status == 403
        before = (await web.ask("config.plan", changes={key: "none"}))["hash"]
        form = {"key": key, "value": '"none"', "hash": before}
        status, text = await visit.post("/settings/apply", form)
        assert (status, "decides about security" in text) == (400, True)
    assert "none" not in (tmp_path / "config.yaml").read_text()


async def test_nothing_is_written_that_was_not_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        form = {"key": "log.level", "value": '"debug"', "hash": "0" * 64}
        status, text = await visit.post("/settings/apply", form)
        assert (status, "was changed meanwhile" in text) == (400, True)
        assert (await visit.post("/settings/apply", {**form, "value": "{"}))[0] == 400
    assert "debug" not in (tmp_path / "config.yaml").read_text()


async def test_no_secret_is_sent_and_hostile_values_stay_text(tmp_path: Path) -> None:
    config = {
        "model": {"api_key": "sk-very-secret-0123456789", "name": HOSTILE},
        "channels": {"whatsapp": {"self_chat_prefix": PREFIX}},
    }
    async with serving(tmp_path, config=config) as web, web.visit() as visit:
        for path in ("/settings", "/settings/edit?key=model.api_key"):
            _, text = await visit.get(path)
            assert "very-secret" not in text
            assert "<script>" not in text
        _, text = await visit.get("/settings/edit?key=model.name")
        assert "<script>" not in text
        assert "&lt;script&gt;" in text


async def test_a_restart_says_what_it_interrupts_and_comes_when_somebody_is_sure(
    tmp_path: Path, browser: Browser
) -> None:
    async with serving(tmp_path) as web, looking(browser, web) as page:
        await page.goto(f"{web.base}/settings/restart")
        await expect(page.get_by_text("Nothing is under way.")).to_be_visible()
        assert await violations(page) == []
        with pytest.raises(NanobotError, match="interrupts what is under way: 0 turns"):
            await web.ask("restart")
        assert not web.gateway.restart_requested
        await page.get_by_role("button", name="Restart now").click()
        await expect(page.get_by_text("nanobot is restarting.")).to_be_visible()
        assert web.gateway.restart_requested


async def test_after_a_restart_who_was_signed_in_still_is(tmp_path: Path) -> None:
    config, port = {"channels": {"web": {"enabled": False}}}, free_port()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tmp_path, config=config, port=port) as web:
            visit = await stack.enter_async_context(web.visit())
        async with serving(tmp_path, config=config, port=port):
            assert (await visit.get("/settings"))[0] == 200


async def test_settings_are_the_owners_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7") as visit:
        await _refused(visit)


async def _refused(visit: Visit) -> None:
    for path in ("/settings", "/settings/edit?key=log.level", "/settings/restart"):
        assert (await visit.get(path))[0] == 404
    for path in ("/settings/plan", "/settings/apply", "/settings/restart"):
        assert (await visit.post(path, {"key": "log.level"}))[0] == 404
