"""`nanobot memory` and `nanobot dream`: requests to a gateway, and output."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from nanobot.cli.main import main

PLAN = {"found": True, "lines": [], "text": "This will be forgotten: 1 line."}
DONE = {"found": True, "lines": [], "text": "Forgotten: 1 line."}


@pytest.mark.parametrize(
    ("arguments", "operation", "asked"),
    [
        (["memory", "show"], "memory.show", {"scope": "owner"}),
        (
            ["memory", "search", "blue", "--since", "2026-01-01", "--role", "user", "-n", "3"],
            "memory.search",
            {"text": "blue", "scope": "owner", "since": "2026-01-01", "role": "user", "limit": 3},
        ),
        (
            ["memory", "why", "blue", "--scope", "people/telegram_7"],
            "memory.why",
            {"text": "blue", "scope": "people/telegram_7"},
        ),
        (["memory", "log"], "memory.log", {"scope": "owner"}),
        (["memory", "log", "12"], "memory.log", {"version": 12, "scope": "owner"}),
        (["memory", "restore", "--list"], "memory.versions", {"scope": "owner"}),
        (
            ["memory", "restore", "--version", "12"],
            "memory.restore",
            {"version": 12, "scope": "owner"},
        ),
        (
            ["memory", "forget", "blue", "--yes"],
            "memory.forget",
            {"text": "blue", "scope": "owner", "erase": False},
        ),
        (
            ["memory", "forget", "blue", "--erase", "--yes"],
            "memory.forget",
            {"text": "blue", "scope": "owner", "erase": True},
        ),
        (["memory", "pending"], "memory.pending", {"scope": "owner"}),
        (
            ["memory", "accept", "1", "2,3"],
            "memory.accept",
            {"numbers": [1, 2, 3], "scope": "owner"},
        ),
        (["memory", "drop", "2"], "memory.drop", {"numbers": [2], "scope": "owner"}),
        (["memory", "rebuild"], "memory.rebuild", {}),
        (["memory", "sync", "../m.git"], "memory.sync", {"remote": "../m.git"}),
        (["dream"], "memory.dream", {"scope": "owner"}),
    ],
)
def test_each_command_asks_one_operation_and_prints_its_text_or_its_data(
    gateway: Any,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    operation: str,
    asked: dict[str, object],
) -> None:
    gateway.answers[operation] = {"text": "It says so.", "found": True}
    home = ["--home", str(gateway.home)]
    assert main([*home, *arguments]) == 0
    assert capsys.readouterr().out == "It says so.\n"
    assert gateway.asked == [(operation, asked)]
    assert main([*home, *arguments, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"found": True}


def test_remembered_text_cannot_control_the_terminal(gateway: Any, here: Any) -> None:
    text = "I \x1b[2Jremember\x07 this\x9b31m,\nand that."
    gateway.answers["memory.show"] = {"text": text, "facts": ["\x1b[2J"]}
    assert here("memory", "show").stdout == "I remember this,\nand that.\n"
    assert "\x1b" not in here("memory", "show", "--json").stdout


def test_commands_are_named_as_in_a_terminal(gateway: Any, here: Any) -> None:
    gateway.answers["memory.show"] = {
        "text": "See `/memory pending`, /dream-restore --version 2; ~/memory why, /memory stays."
    }
    assert here("memory", "show").stdout == (
        "See `nanobot memory pending`, nanobot memory restore --version 2; ~/memory why, /memory"
        " stays.\n"
    )


def test_times_in_utc_end_in_z_and_words_stay(gateway: Any, here: Any) -> None:
    moment, said = "2026-03-02T09:00:00.25", "It says 2026-03-02T09:00:00+00:00"
    gateway.answers["memory.show"] = {"a": f"{moment}+00:00", "b": f"{moment}+01:00", "c": said}
    shown = json.loads(here("memory", "show", "--json").stdout)
    assert shown == {"a": f"{moment}Z", "b": f"{moment}+01:00", "c": said}


def test_on_a_terminal_long_lines_are_broken_between_words_and_diffs_are_not(
    gateway: Any, environment: dict[str, str]
) -> None:
    fact, diff = "- " + "word " * 30, "    +" + "x" * 100
    gateway.answers["memory.show"] = {"text": f"{fact}\n{diff}"}
    ours, theirs = pty.openpty()
    subprocess.run(
        [sys.executable, "-m", "nanobot", "memory", "show"],
        stdout=theirs, env=environment | {"COLUMNS": "80"}, timeout=30, check=True,
    )  # fmt: skip
    os.close(theirs)
    shown = os.read(ours, 10_000).decode().splitlines()
    os.close(ours)
    assert [line[:6] for line in shown] == ["- word", "  word", "    +x"]
    assert len(shown[0]) <= 80
    assert shown[2] == diff


def test_nothing_is_forgotten_without_a_yes_where_nobody_can_be_asked(
    gateway: Any, here: Any
) -> None:
    gateway.answers |= {"memory.forget_plan": PLAN, "memory.forget": DONE}
    done = here("memory", "forget", "blue", stdin="y\n")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == (
        "error: this requires confirmation\n  Add --yes to skip the confirmation.\n"
    )
    assert gateway.asked == []


@pytest.mark.parametrize(
    ("answer", "code", "said"), [("y", 0, "Forgotten: 1 line."), ("n", 1, "Nothing was changed.")]
)
def test_on_a_terminal_the_plan_is_shown_and_a_yes_is_asked_for(
    gateway: Any, environment: dict[str, str], answer: str, code: int, said: str
) -> None:
    gateway.answers |= {"memory.forget_plan": PLAN, "memory.forget": DONE}
    ours, theirs = pty.openpty()
    os.write(ours, f"{answer}\n".encode())
    done = subprocess.run(
        [sys.executable, "-m", "nanobot", "memory", "forget", "blue"],
        stdin=theirs, capture_output=True, text=True, env=environment, timeout=30, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert done.returncode == code
    assert done.stdout == f"This will be forgotten: 1 line.\nForget this? [y/N] {said}\n"


def test_what_is_not_remembered_is_not_asked_about(
    gateway: Any, environment: dict[str, str]
) -> None:
    gateway.answers["memory.forget_plan"] = {"found": False, "text": "Nothing says this."}
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "nanobot", "memory", "forget", "blue"],
        stdin=theirs, capture_output=True, text=True, env=environment, timeout=30, check=False,
    )  # fmt: skip
    os.close(ours)
    os.close(theirs)
    assert (done.returncode, done.stdout) == (1, "Nothing says this.\n")


@pytest.mark.parametrize(
    "arguments",
    [
        ["memory"],
        ["memory", "restore"],
        ["memory", "restore", "--list", "--version", "3"],
        ["memory", "log", "0"],
        ["memory", "accept"],
        ["memory", "accept", "one"],
        ["memory", "search"],
        ["memory", "search", "x", "--source", "dreams"],
    ],
)
def test_wrong_usage_exits_2(gateway: Any, arguments: list[str]) -> None:
    assert main(["--home", str(gateway.home), *arguments]) == 2
    assert gateway.asked == []


def test_what_cannot_be_done_is_an_error_with_its_hint(gateway: Any, here: Any) -> None:
    done = here("memory", "log", "99")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "error: nothing for memory.log\n  Look elsewhere.\n"


def test_without_a_gateway_the_files_are_asked(here: Any) -> None:
    assert "No facts" in here("memory", "show").stdout
    assert here("dream").stdout == "Nothing new to dream about.\n"
    done = here("memory", "show", "--scope", "nobody")
    assert (done.returncode, done.stdout) == (1, "")
    assert "there is no scope 'nobody'" in done.stderr
