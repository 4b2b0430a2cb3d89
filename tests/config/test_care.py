"""Changes that the terminal says to be careful with: those that open something, and no others."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import yaml

from nanobot.config.care import ALLOWANCES, EXCLUSIONS, GRADES, SENSITIVE, opening_keys
from nanobot.config.changing import ConfigEdit, ExistingFiles, widens_security
from nanobot.config.keys import KeyInfo, list_keys
from nanobot.config.load import load_with_places
from nanobot.config.operations import change_of

SERVER = {"command": "papers", "args": ["a"], "sandbox": False, "tools": ["one", "two"]}
BEFORE = {
    "model": {"provider": "offline", "base_url": "http://127.0.0.1:9/v1"},
    "models": {"far": {"name": "a", "api_key": "${A}"}},
    "mcp": {"servers": {"papers": SERVER}},
    "tools": {
        "exec": {"network": False, "paths": ["/srv/a", "/srv/b"]},
        "web": {"domains": ["a.example", "b.example"]},
        "approval": {"exec": "allow", "send": "never", "fetch": "ask"},
    },
    "skills": {"disabled": ["cron", "memory"]},
    "owner": {"telegram": ["7", "8"]},
    "channels": {"telegram": {"token": "${T}", "groups": "mention"}},
}
VARIABLES = {"A": "b", "T": "1:" + "x" * 35}


def opened(home: Path, key: str, value: object) -> list[str]:
    before = ExistingFiles(yaml.safe_dump(BEFORE), "", VARIABLES)
    return opening_keys(home, before, ConfigEdit((change_of(key, value),)))


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools.exec.sandbox", "none"), ("tools.approval.mcp", "allow"),
        ("tools.approval.send", "ask"), ("tools.approval.send", None),
        ("tools.approval.fetch", "auto"),
        ("tools.exec.network", True), ("tools.exec.network", None), ("tools.exec.allow_git", True),
        ("tools.exec.paths", ["/srv/a", "/srv/c"]), ("tools.web.allow_hosts", ["nas.lan"]),
        ("tools.web.domains", []), ("tools.web.domains", None),
        ("tools.web.domains", ["a.example", "c.example"]), ("skills.disabled", ["cron"]),
        ("mcp.servers.papers.command", "other"), ("mcp.servers.papers.people", "everyone"),
        ("mcp.servers.papers.tools", ["three"]), ("mcp.servers.papers.network", True),
        ("model.base_url", "https://e.example/v1"), ("models.far.base_url", "https://e.example/v1"),
        ("owner.telegram", ["7", "9"]), ("channels.telegram.groups", "open"),
        ("http.host", "0.0.0.0"), ("backup.folder", "/mnt/other"),
    ],
)  # fmt: skip
def test_what_opens_something_is_named(tmp_path: Path, key: str, value: object) -> None:
    assert opened(tmp_path, key, value) == [key]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("tools.exec.timeout_seconds", 30), ("tools.exec.sandbox", "landlock"),
        ("tools.approval.exec", "ask"), ("tools.approval.exec", None),
        ("tools.approval.mcp", "never"), ("tools.approval.fetch", "never"),
        ("tools.exec.enabled", False), ("tools.exec.enabled", True),
        ("tools.exec.paths", ["/srv/a"]), ("tools.exec.paths", None), ("tools.web.enabled", False),
        ("tools.web.domains", ["a.example"]), ("skills.disabled", ["cron", "memory", "summarize"]),
        ("mcp.servers.papers.sandbox", True), ("mcp.servers.papers.tools", ["one"]),
        ("mcp.servers.papers.enabled", False), ("mcp.servers.papers.timeout_seconds", 5),
        ("mcp.servers.papers", None), ("mcp.servers", None), ("model.provider", "openai"),
        ("model.headers", {"X-Title": "nanobot"}), ("owner.telegram", ["7"]),
        ("channels.telegram.groups", "off"), ("channels.web.session_days", 5),
        ("http.host", "127.0.0.1"), ("http.port", 9_000), ("limits.messages_per_minute", 5),
        ("model.speech.voice", "alloy"), ("team.name", "left"),
    ],
)  # fmt: skip
def test_what_opens_nothing_is_not(tmp_path: Path, key: str, value: object) -> None:
    assert opened(tmp_path, key, value) == []


def test_a_whole_section_is_no_way_around_that(tmp_path: Path) -> None:
    value = {"command": "x", "sandbox": False, "paths": ["/srv"]}
    found = opened(tmp_path, "mcp.servers.new", value)
    assert found == [f"mcp.servers.new.{key}" for key in ("command", "paths", "sandbox")]
    assert opened(tmp_path, "tools.exec", {"sandbox": "none"}) == [
        "tools.exec.sandbox", "tools.exec.network"
    ]  # fmt: skip
    assert opened(tmp_path, "tools.exec", None) == ["tools.exec.network"]


HARMLESS = (
    "model.api", "model.extra_body", "model.headers", "model.provider", "model.transcription.model",
    "model.speech.model", "model.speech.when", "model.speech.voice", "memory.embeddings.model",
    "mcp.servers.*.env", "mcp.servers.*.headers", "health.enabled", "health.metrics", "team.name",
    "models.*.name", "models.*.api", "models.*.reasoning_effort", "models.*.extra_body",
    "models.*.headers", "channels.telegram.mode", "channels.*.webhook_path",
    "channels.whatsapp.transport", "channels.whatsapp.phone_number_id",
    "channels.whatsapp.api_version",
)  # fmt: skip


def test_every_setting_that_a_page_may_not_change_is_judged(tmp_path: Path) -> None:
    texts = {"config.yaml": yaml.safe_dump(BEFORE)}
    known = (*SENSITIVE, *GRADES, *EXCLUSIONS, *ALLOWANCES, *HARMLESS)

    def is_judged(one: KeyInfo) -> bool:
        is_amount = one.kind in ("integer", "number", "secret")
        return is_amount or any(fnmatchcase(one.name, pattern) for pattern in known)

    keys = list_keys(*load_with_places(tmp_path, VARIABLES, texts=texts))
    missing = [one.name for one in keys if widens_security(one.path) and not is_judged(one)]
    assert missing == []
