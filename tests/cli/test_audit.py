"""`nanobot audit`: the log, filtered, for people and for machines."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from nanobot.security.audit import AuditLog
from nanobot.security.redaction import Redactor
from nanobot.testing import FakeClock


@pytest.fixture
def log(home: Path) -> AuditLog:
    (home / "logs").mkdir(parents=True)
    return AuditLog(home / "logs" / "audit.jsonl", Redactor(), FakeClock())


def make_decision(tool: str, session: str = "cli:direct", **more: str) -> dict[str, str]:
    return {"event": "decided", "outcome": "allowed", "tool": tool, "session": session, **more}


def test_each_entry_is_a_line_that_moves_no_terminal(log: AuditLog, here: Any) -> None:
    log.write(make_decision("exec", arguments='{"command": "ls\x1b[2J"}'))
    log.write({**make_decision("message"), "outcome": "asked", "because": "untrusted content"})
    log.write(
        {**make_decision("message"), "event": "answered", "outcome": "denied", "because": "no"}
    )
    log.write({**make_decision("message"), "event": "answered"})
    log.write({**make_decision("message"), "event": "ended", "outcome": "ok"})
    log.write({**make_decision("message"), "event": "ended", "outcome": "error", "error": "down"})
    done = here("audit")
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    what = [line[21:].split("  ")[0] for line in done.stdout.splitlines()]
    assert what == [
        "allowed", "asked", "denied when asked", "allowed by the owner", "done", "failed",
    ]  # fmt: skip
    assert done.stdout.splitlines()[1].endswith("message  cli:direct  untrusted content")


def test_who_answered_and_what_is_allowed_for_longer_can_be_read(log: AuditLog, here: Any) -> None:
    log.write({**make_decision("message"), "event": "answered", "by": "telegram:7"})
    given = {"event": "standing approval", "outcome": "given", "by": "telegram:7"}
    log.write({**given, "id": "9f3a01bc", "subject": "each call of light", "lasts": "always"})
    answered, allowed = here("audit").stdout.splitlines()
    assert "allowed by the owner" in answered
    assert answered.endswith("telegram:7")
    assert "approval given, telegram:7" in allowed
    assert allowed.endswith("each call of light")


def test_who_changed_what_can_be_read(log: AuditLog, here: Any) -> None:
    changed = {"event": "changed", "outcome": "done", "tool": "memory.edit", "by": "web:owner"}
    log.write({**changed, "scope": "owner", "changed": "version 12"})
    (line,) = here("audit").stdout.splitlines()
    assert "done, web:owner  memory.edit" in line
    assert line.endswith("version 12")


def test_only_what_is_asked_for_is_shown_the_newest_of_it(log: AuditLog, here: Any) -> None:
    for number in range(5):
        log.write(make_decision("exec", number=str(number)))
        log.write(make_decision("message", number=str(number)))
        log.write(make_decision("exec", "telegram:7", number=str(number)))
    done = here("audit", "--json", "-n", "2", "--tool", "exec", "--session", "cli:direct")
    assert [(r["tool"], r["session"], r["number"]) for r in json.loads(done.stdout)] == [
        ("exec", "cli:direct", "3"), ("exec", "cli:direct", "4"),
    ]  # fmt: skip


def test_a_home_without_a_log_has_nothing_to_show(here: Any) -> None:
    assert here("audit").stdout == "No matching entries.\n"
    assert json.loads(here("audit", "--json").stdout) == []


@pytest.mark.parametrize(
    ("config", "shown"), [("agent: {timezone: Asia/Kathmandu}", "14:45:00"), ("agent: [", None)]
)
def test_times_are_the_persons_and_the_systems_where_the_configuration_is_broken(
    log: AuditLog, here: Any, home: Path, config: str, shown: str | None
) -> None:
    log.write(make_decision("exec"))
    (home / "config.yaml").write_text(config)
    told = datetime.fromisoformat(json.loads(here("audit", "--json").stdout)[0]["time"])
    expected = shown or f"{told.astimezone():%H:%M:%S}"
    assert here("audit").stdout.split("  ")[0].endswith(f" {expected}")
