"""Changing settings by key: the plan, the limits of a page, and that no secret is ever shown."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from nanobot.config.changes import REMOTE_KEYS, ConfigOperations, ExistingFiles, widens_security
from nanobot.config.load import load_settings
from nanobot.config.schema import schema_at
from nanobot.errors import NanobotError
from tests.config.homes import Home

CONFIG = """\
# mine
model:
  name: a-model  # the small one
  base_url: http://127.0.0.1:1/v1
  api_key: sk-old-secret
  fallbacks:
    - {name: b, base_url: "https://b.example/v1", api_key: sk-of-b}
tools:
  exec:
    environment:
      MY_TOKEN: tok-12345678
channels:
  telegram:
    token: ${TELEGRAM_TOKEN}
    allow_from: ["7"]
"""
SECRETS = ("sk-old-secret", "sk-of-b", "tok-12345678", "123:the-telegram-token")
ENVIRON = {"TELEGRAM_TOKEN": "123:the-telegram-token", "NANOBOT_AGENT__ON_BUSY": "queue"}


class Page:
    """A page of a gateway that runs with the files as they were at the beginning."""

    def __init__(self, home: Home, environ: Mapping[str, str]) -> None:
        running = load_settings(home.folder, environ)
        self._operations = ConfigOperations(running, environ).table()

    def ask(self, operation: str, **arguments: object) -> dict[str, Any]:
        return asyncio.run(self._ask(operation, arguments))

    async def _ask(self, operation: str, arguments: Mapping[str, object]) -> dict[str, Any]:
        answer = await self._operations[f"config.{operation}"](arguments)
        sent = json.loads(json.dumps(answer))  # as sent over a socket
        assert isinstance(sent, dict)
        return sent

    def change(self, **changes: object) -> dict[str, Any]:
        by_key = {key.replace("__", "."): value for key, value in changes.items()}
        planned = self.ask("plan", changes=by_key)
        return self.ask("apply", changes=by_key, expected=planned["hash"])


@pytest.fixture
def home(tmp_path: Path) -> Home:
    made = Home(tmp_path)
    made.write(CONFIG)
    return made


@pytest.fixture
def page(home: Home) -> Page:
    return Page(home, ENVIRON)


def test_every_key_says_what_it_is_and_where_it_comes_from(page: Page) -> None:
    keys = {one["key"]: one for one in page.ask("show")["keys"]}
    assert keys["model.name"] == {
        "key": "model.name", "type": "text", "value": "a-model", "default": "",
        "source": "config.yaml", "line": 3, "variable": "", "choices": [], "terminal_only": False,
        "description": "The model's name on the server. Required for OpenAI. Default for other"
        " servers: the first model that the server lists.",
    }  # fmt: skip
    busy = keys["agent.on_busy"]
    assert (busy["source"], busy["variable"]) == ("environment", "NANOBOT_AGENT__ON_BUSY")
    assert (busy["value"], busy["default"]) == ("queue", "steer")
    assert (busy["type"], busy["choices"]) == ("choice", ["steer", "queue", "interrupt"])
    assert keys["log.level"]["source"] == "default"
    token = keys["channels.telegram.token"]
    assert (token["type"], token["value"], token["terminal_only"]) == ("secret", "…", True)
    assert keys["channels.telegram.allow_from"]["value"] == ["7"]
    assert keys["owner.telegram"]["value"] == []
    assert {"agent", "model", "channels.whatsapp.transport", "mcp.servers"} - keys.keys() == {
        "agent", "model",
    }  # fmt: skip


def test_no_secret_is_sent(page: Page) -> None:
    changes = {
        "model.api_key": "sk-new-secret", "model.fallbacks": ["c"],
        "tools.exec.environment.MY_TOKEN": "tok-new", "channels.telegram.token": "456:new-token",
        "unknown.key": "sk-new-secret",
    }  # fmt: skip
    said = json.dumps([page.ask("show"), page.ask("plan", changes=changes)])
    for secret in (*SECRETS, "sk-new-secret", "tok-new", "456:new-token"):
        assert secret not in said


def test_a_secret_that_changes_shows_as_a_change(page: Page) -> None:
    planned = page.ask("plan", changes={"model.api_key": "sk-new-secret"})
    assert planned["diff"] == ["-  api_key: …", "+  api_key: … (another)"]
    assert planned["widens_security"] == ["model.api_key"]


def test_what_is_applied_is_what_was_planned_and_the_rest_stays(page: Page, home: Home) -> None:
    done = page.change(model__name="b", agent__max_iterations=9, limits__tokens_per_day=9)
    assert done["changed"] == ["model.name", "agent.max_iterations", "limits.tokens_per_day"]
    assert done["diff"][:2] == ["-  name: a-model  # the small one", "+  name: b  # the small one"]
    assert home.config.read_text() == CONFIG.replace("a-model", "b") + (
        "\nagent:\n  max_iterations: 9\n\nlimits:\n  tokens_per_day: 9\n"
    )
    assert page.ask("show")["restart_needed"]


def test_null_takes_a_key_out_and_what_it_says_already_changes_nothing(
    page: Page, home: Home
) -> None:
    page.change(model__name=None)
    assert home.config.read_text() == CONFIG.replace("  name: a-model  # the small one\n", "")
    page.change(model__name="a", log__level=None)
    assert page.change(model__name="a")["changed"] == []
    assert not page.ask("plan", changes={"model.name": "a"})["diff"]


def test_what_would_be_wrong_is_said_with_its_key_and_not_written(page: Page, home: Home) -> None:
    changes = {"agent.max_iterations": "many", "log.levle": "info", "agent.on_busy": "steer"}
    planned = page.ask("plan", changes=changes)
    assert [(one["key"], one["message"]) for one in planned["errors"]] == [
        ("agent.max_iterations", "must be a whole number"),
        ("log.levle", "there is no such key"),
    ]
    assert "Did you mean 'level'?" in planned["errors"][1]["hint"]
    with pytest.raises(NanobotError, match="must be a whole number"):
        page.change(agent__max_iterations="many")
    assert home.config.read_text() == CONFIG


def test_a_variable_that_wins_is_a_warning(page: Page) -> None:
    planned = page.ask("plan", changes={"agent.on_busy": "steer"})
    assert planned["warnings"] == [
        "agent.on_busy has no effect while the variable NANOBOT_AGENT__ON_BUSY is set"
    ]


def test_a_file_that_changed_since_the_plan_is_not_written(page: Page, home: Home) -> None:
    planned = page.ask("plan", changes={"model.name": "b"})
    home.write(CONFIG + "# more\n")
    with pytest.raises(NanobotError, match="changed in the meantime"):
        page.ask("apply", changes={"model.name": "b"}, expected=planned["hash"])
    assert home.config.read_text() == CONFIG + "# more\n"


@pytest.mark.parametrize(
    "key",
    [
        "model.base_url", "model.api_key", "model.fallbacks", "model.provider",
        "model.transcription.base_url", "memory.identities", "memory.groups_see_owner",
        "memory.embeddings.base_url", "tools.approval.exec", "tools.exec.sandbox",
        "tools.exec.paths", "tools.exec.network", "tools.web.allow_hosts", "tools.web.domains",
        "tools.web.proxy", "tools.web.search.base_url", "mcp.servers.x.command",
        "mcp.servers.x.sandbox", "skills.disabled", "limits.messages_per_minute", "http.host",
        "http.public_hosts", "health.host", "health.token", "backup.folder", "backup.recipient",
        "retention.audit_days", "owner.telegram", "channels.telegram.allow_from",
        "channels.telegram.enabled", "channels.telegram.groups", "channels.telegram.base_url",
        "channels.whatsapp.pairing", "web.host", "api.keys", "nobody.knows", "agentx.y",
        "modelx.name",
    ],
)  # fmt: skip
def test_what_widens_security_is_refused_from_a_page_and_so_is_what_nobody_knows(
    page: Page, home: Home, key: str
) -> None:
    changes = {"model.name": "b", key: "x"}
    planned = page.ask("plan", changes=changes)
    assert planned["widens_security"] == [key]
    with pytest.raises(NanobotError, match="affects security"):
        page.ask("apply", changes=changes, expected=planned["hash"])
    assert home.config.read_text() == CONFIG


@pytest.mark.parametrize("change", [{"model": {"base_url": "https://e.example"}}, {"x": 1}, {}])
def test_a_whole_section_is_no_way_around_that(page: Page, change: dict[str, object]) -> None:
    with pytest.raises(NanobotError):
        page.ask("plan", changes=change)


def test_what_a_page_may_change_are_keys_or_sections_that_exist() -> None:
    assert [key for key in REMOTE_KEYS if schema_at(key) is None] == []
    assert not widens_security(("agent", "on_busy"))
    assert widens_security(("model",))


def test_files_differ_where_their_digests_do() -> None:
    digests = {ExistingFiles(*pair, {}).digest for pair in (("a", "b"), ("ab", ""), ("", "ab"))}
    assert len(digests) == 3
