"""The output of the commands fits a narrow terminal, word by word."""

from __future__ import annotations

import os
import pty
import re
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from nanobot.cli.main import main

COLUMNS = 60
PROSE = "the quick brown fox jumps over the lazy dog while nobody looks at it at all"
HINT = "Look at the log, mend what it names, and start the gateway once more afterwards."
WHEN = "2026-11-23T17:00:00+00:00"
ANSWERS: dict[str, object] = {
    "status": {
        "running": True, "pid": 7, "version": "0.1.0", "home": "/h", "model": "tiny-1",
        "uptime_seconds": 3_725, "turns_running": 1, "provider": "offline",
        "health": {"state": "failing", "concerns": [
            {"level": "failing", "text": PROSE, "hint": HINT}]},
        "today": {"turns": {"done": 3}, "prompt_tokens": 12_000, "cached_tokens": 9_000,
                  "completion_tokens": 400, "memory_tokens": 50, "cost": 1.256},
        "channels": [{"name": "telegram", "state": "running", "detail": PROSE}],
    },
    "queue.list": {
        "inbox": [{"id": 7, "state": "failed", "attempts": 3, "session": "telegram:123456789",
                   "text": PROSE, "reason": HINT}],
        "outbox": [{"id": 9, "state": "dead", "attempts": 5, "channel": "whatsapp",
                    "chat_id": "15550001111", "text": PROSE, "reason": PROSE}],
    },
    "cron.list": {"jobs": [
        {"id": "j1", "next": WHEN, "words": "every weekday at 08:30 (Europe/Berlin)",
         "chat": "telegram:123456789", "enabled": True, "name": PROSE}]},
    "pair.list": {
        "requests": [{"code": "K7QF", "seconds_left": 900, "address": "telegram:123456789",
                      "name": "Anna"}],
        "approved": [{"address": "whatsapp:15550001111", "since": WHEN, "kind": "person",
                      "name": PROSE}],
    },
    "channels.status": {"channels": [
        {"name": "telegram", "state": "failing", "who": "@a_bot", "detail": PROSE}]},
    "memory.show": {"text": f"MEMORY.md\n\n- {PROSE}\n"},
}  # fmt: skip


Show = Callable[..., Sequence[str]]


@pytest.fixture
def lines_of(monkeypatch: pytest.MonkeyPatch) -> Show:
    """Return the output lines of a command in a window of `COLUMNS`."""

    def show(home: Path, *command: str) -> Sequence[str]:
        ours, theirs = pty.openpty()
        shown: list[bytes] = []
        reader = threading.Thread(target=_read_all, args=(ours, shown))
        reader.start()
        with open(theirs, "w") as window, monkeypatch.context() as patched:
            for name in ("stdout", "stderr"):
                patched.setattr(f"sys.{name}", window)
            patched.setenv("COLUMNS", str(COLUMNS))
            main(["--home", str(home), *command])
            logger.remove()
        reader.join()
        os.close(ours)
        return b"".join(shown).decode().splitlines()

    return show


def _read_all(descriptor: int, shown: list[bytes]) -> None:
    with suppress(OSError):  # the other side is closed
        while block := os.read(descriptor, 65_536):
            shown.append(block)


def too_long(lines: Sequence[str]) -> list[str]:
    """Return the lines that are too wide and could have been wrapped between words."""
    return [line for line in lines if len(line) > COLUMNS and len(line.split()) > 1]


@pytest.mark.parametrize(
    "command",
    ["status", "queue list", "cron list", "pair list", "channels status",
     "memory show"],
)  # fmt: skip
def test_no_word_is_broken_in_a_narrow_window(gateway: Any, lines_of: Show, command: str) -> None:
    gateway.answers |= ANSWERS
    lines = lines_of(gateway.home, *command.split())
    assert too_long(lines) == []
    shown = " ".join(" ".join(lines).split())
    assert PROSE[:30] in shown or "Anna (careful:" in shown


@pytest.mark.parametrize(
    "command",
    [
        "doctor",
        "status",
        "backup",
        "backup list",
        "sessions list",
        "skills list",
        "mcp check",
        "queue retry 7",
        "audit --tool none",
        "restore none.tar.gz",
        "nonsense",
        "--help",
        "onboard --help",
        "backup --help",
        "restore --help",
        "skills show weather",
        "sessions show cli:direct",
    ],
)
def test_nor_where_no_gateway_runs(tmp_path: Path, lines_of: Show, command: str) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "config.yaml").write_text("model: {provider: offline}\n")
    if command == "backup list":
        lines_of(home, "backup")
    lines = lines_of(home, *command.split())
    assert lines
    assert too_long(lines) == []


def test_a_backup_and_its_check_say_how_much_of_how_much_is_done(
    tmp_path: Path, lines_of: Show
) -> None:
    home, file = tmp_path / "home", tmp_path / "one.tar.gz"
    home.mkdir()
    (home / "config.yaml").write_text("model: {provider: offline}\n")
    made = "\n".join(lines_of(home, "backup", str(file)))
    assert re.search(r"packed \d[0-9.,]* kB of \d[0-9.,]* kB", made)
    checked = "\n".join(lines_of(home, "backup", "verify", str(file)))
    assert re.search(r"checked \d[0-9.,]* kB of \d[0-9.,]* kB", checked)
