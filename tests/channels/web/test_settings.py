"""The page Settings: the keys, a change from the form to the file, and a restart."""

from __future__ import annotations

import contextlib
import json
import re
from pathlib import Path

import pytest

from nanobot.errors import NanobotError
from tests.channels.web.support import Visit, serving
from tests.ports import free_port

PREFIX = '"><script>x'
HOSTILE = '"><script>alert(1)</script>\u202e'


def _as_people_write(home: Path, more: str = "") -> None:
    """Write the configuration in lines, so that one of them can be changed."""
    config = json.loads((home / "config.yaml").read_text())
    http = f"http:\n  port: {config['http']['port']}\n"
    (home / "config.yaml").write_text(f"{http}channels:\n  web:\n    enabled: true\n{more}")


def _plan_in(text: str) -> str:
    """Return the name of the change on a page."""
    found = re.search(r'name="plan" value="(\w+)"', text)
    assert found
    return found[1]


async def test_what_is_written_is_the_value_from_then_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        _as_people_write(tmp_path)
        _, text = await visit.get("/settings/edit?key=agent.on_busy")
        assert re.search("<option[^>]*>queue", text)
        _, text = await visit.post("/settings/plan", {"key": "agent.on_busy", "value": "queue"})
        assert "on_busy: queue" in text
        assert "queue" not in (tmp_path / "config.yaml").read_text()
        plan = _plan_in(text)
        await visit.post("/settings/apply", {"plan": plan, "key": "log.level", "value": "debug"})
        assert (await visit.post("/settings/apply", {"plan": plan}))[0] == 409
        assert "on_busy: queue" in (tmp_path / "config.yaml").read_text()
        shown = await web.ask("config.show")
        assert next(k for k in shown["keys"] if k["key"] == "agent.on_busy")["value"] == "queue"


@pytest.mark.parametrize(
    ("key", "typed", "said"),
    [
        ("agent.max_iterations", "many", "whole number"),
        ("agent.max_iterations", "--5", "whole number"),
        ("agent.max_iterations", "9" * 5_000, "whole number"),
        ("agent.max_iterations", "-3", "agent.max_iterations"),
        ("model.timeout_seconds", "nan", "a number"),
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
        assert (await visit.post("/settings/apply", form))[0] == 409
    assert "none" not in (tmp_path / "config.yaml").read_text()


async def test_nothing_is_written_that_was_not_shown(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        _as_people_write(tmp_path)
        form = {"key": "log.level", "value": "debug"}
        plan = _plan_in((await visit.post("/settings/plan", form))[1])
        for forged in ("", "0" * 32, plan[:-1]):
            assert (await visit.post("/settings/apply", {**form, "plan": forged}))[0] == 409
        async with web.visit() as other:
            assert (await other.post("/settings/apply", {"plan": plan}))[0] == 409
        path = tmp_path / "config.yaml"
        path.write_text(f"{path.read_text()}# by user\n")
        status, text = await visit.post("/settings/apply", {"plan": plan})
        assert (status, "has changed in the meantime" in text) == (400, True)
    assert "debug" not in (tmp_path / "config.yaml").read_text()


async def test_settings_of_a_task_are_changed_together(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        _as_people_write(tmp_path)
        _, text = await visit.get("/settings/answers")
        assert "If I write while nanobot works" in text
        form = {"agent.on_busy": "queue", "limits.tokens_per_day": " 500 ", "log.level": "debug"}
        _, text = await visit.post("/settings/answers", form)
        assert "tokens_per_day: 500" in text
        assert "queue" not in (tmp_path / "config.yaml").read_text()
        await visit.post("/settings/apply", {"plan": _plan_in(text)})
        written = (tmp_path / "config.yaml").read_text()
        assert "on_busy: queue" in written
        assert "debug" not in written
        _, text = await visit.get("/settings/answers")
        assert '<option value="queue" selected>' in text


@pytest.mark.parametrize(
    ("task", "form", "said"),
    [
        ("answers", {"limits.tokens_per_day": HOSTILE}, "Maximum tokens per day: Enter a whole"),
        ("answers", {"agent.timezone": HOSTILE}, "agent.timezone"),
        ("memory", {"dream.enabled": "true"}, "Nothing is changed."),
        ("approvals", {"tools.approval.exec": "allow"}, "Nothing is changed."),
    ],
)
async def test_a_task_offers_no_mistake_and_nothing_about_security(
    tmp_path: Path, task: str, form: dict[str, str], said: str
) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        _as_people_write(tmp_path)
        _, text = await visit.post(f"/settings/{task}", form)
        assert said in text
        assert "<script>alert" not in text
        assert ">Apply<" not in text


async def test_no_secret_is_sent_and_hostile_values_stay_text(tmp_path: Path) -> None:
    config = {
        "model": {"api_key": "sk-very-secret-0123456789", "name": HOSTILE},
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
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        assert "Nothing is running." in (await visit.get("/settings/restart"))[1]
        with pytest.raises(NanobotError, match="can interrupt 0 running turns"):
            await web.ask("restart")
        assert not web.gateway.restart_requested


async def test_after_a_restart_who_was_signed_in_still_is(tmp_path: Path) -> None:
    config, port = {"channels": {"web": {"enabled": False}}}, free_port()
    async with contextlib.AsyncExitStack() as stack:
        async with serving(tmp_path, config=config, port=port) as web:
            visit = await stack.enter_async_context(web.visit())
        async with serving(tmp_path, config=config, port=port):
            assert (await visit.get("/settings"))[0] == 200


async def test_settings_are_the_owners_alone(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit("telegram:7") as visit:
        await _expect_refusal(visit)


async def _expect_refusal(visit: Visit) -> None:
    pages = ("/settings", "/settings/answers", "/settings/edit?key=log.level", "/settings/restart")
    for path in pages:
        assert (await visit.get(path))[0] == 404
    for path in ("/settings/plan", "/settings/answers", "/settings/apply", "/settings/restart"):
        assert (await visit.post(path, {"key": "log.level"}))[0] == 404
