"""`nanobot cron`: requests to a gateway, work on the files, and output."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nanobot.cli.main import main

JOB = {
    "id": "a1b2c3", "name": "Wea\x1b[2Jther", "schedule": "0 8 * * 1-5", "zone": "Europe/Berlin",
    "words": "weekdays at 8 (Europe/Berlin)", "reminder": False,
    "chat": "telegram:7", "enabled": True, "next": "2026-03-03T08:00:00+01:00",
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "operation", "asked"),
    [
        (
            ["add", "in 20m", "Oven"], "cron.add",
            {"schedule": "in 20m", "message": "Oven", "task": False},
        ),
        (
            ["add", "0 8 * * *", "x", "--task", "--name", "n", "--chat", "telegram:7",
             "--zone", "UTC"],
            "cron.add",
            {"schedule": "0 8 * * *", "message": "x", "task": True, "name": "n",
             "chat": "telegram:7", "zone": "UTC"},
        ),
        (["remove", "a1"], "cron.remove", {"id": "a1"}),
        (["run", "a1"], "cron.run", {"id": "a1"}),
        (["pause", "a1"], "cron.pause", {"id": "a1"}),
        (["resume", "a1"], "cron.resume", {"id": "a1"}),
    ],
)  # fmt: skip
def test_each_change_asks_one_operation_and_prints_its_text_or_its_data(
    gateway: Any,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    operation: str,
    asked: dict[str, object],
) -> None:
    gateway.answers[operation] = {"text": "It says so.\x1b[2J", "id": "a1"}
    command = ["--home", str(gateway.home), "cron", *arguments]
    assert main(command) == 0
    assert capsys.readouterr().out == "It says so.\n"
    assert gateway.asked == [(operation, asked)]
    assert main([*command, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"id": "a1"}


def test_the_list_shows_what_comes_when(gateway: Any, capsys: pytest.CaptureFixture[str]) -> None:
    resting = JOB | {
        "id": "d4",
        "words": "every 2h",
        "reminder": True,
        "enabled": False,
        "next": None,
    }
    gateway.answers["cron.list"] = {"jobs": [JOB, resting], "trouble": "jobs.json is kept aside"}
    assert main(["--home", str(gateway.home), "cron", "list"]) == 0
    assert capsys.readouterr().out == (
        "warning: jobs.json is kept aside\n\n"
        "id      next              kind      schedule                       chat        name\n"
        "a1b2c3  2026-03-03 08:00  task      weekdays at 8 (Europe/Berlin)  telegram:7  Weather\n"
        "d4      paused            reminder  every 2h                       telegram:7  Weather\n"
    )
    assert main(["--home", str(gateway.home), "cron", "list", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == gateway.answers["cron.list"]


@pytest.mark.parametrize(
    "arguments", [[], ["add"], ["add", "in 20m"], ["remove"], ["add", " ", "x"]]
)
def test_wrong_use_is_exit_code_2(home: Path, arguments: list[str]) -> None:
    assert main(["--home", str(home), "cron", *arguments]) == 2


def test_without_a_gateway_the_home_itself_is_changed(here: Any, home: Path) -> None:
    assert here("cron", "list").stdout == "Nothing is scheduled.\n"
    added = json.loads(here("cron", "add", "--task", "every 2h", "Stretch", "--json").stdout)
    assert (added["chat"], added["scope"], added["enabled"]) == ("cli:direct", "owner", True)
    ran = here("cron", "run", added["id"])
    assert ran.stdout == f"{added['id']} (Stretch) will run when nanobot is started.\n"
    waiting = json.loads(here("queue", "list", "--json").stdout)["inbox"]
    assert [entry["session"] for entry in waiting] == [f"cron:{added['id']}"]
    assert here("cron", "add", "every 2s", "x").returncode == 1
    assert here("cron", "remove", "nope").returncode == 1
    assert here("cron", "remove", added["id"]).returncode == 0
    assert (
        json.loads((home / "state" / "documents.json").read_text())["documents"]["jobs"]["jobs"]
        == []
    )
