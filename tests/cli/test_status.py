"""`nanobot status`: for people, for machines, and as a health check."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from nanobot.bus.state import DOCUMENTS
from nanobot.cli.main import main
from nanobot.cli.status import status
from tests.cli.support import Nanobot

HEALTH = {
    "state": "failing",
    "concerns": [
        {"level": "failing", "text": "telegram: nothing was\nheard", "hint": "See `nanobot logs`."},
        {"level": "degraded", "text": "failed messages: 2", "hint": ""},
        {"level": "degraded", "text": "whatsapp is off: it was unlinked", "hint": ""},
    ],
}
STATUS = {
    "running": True, "pid": 7, "version": "0.1.0", "home": "/h", "model": "tiny-1",
    "provider": "offline", "uptime_seconds": 3_725, "sessions": 2, "turns_running": 1,
    "health": HEALTH,
    "today": {"turns": {"done": 3, "failed": 0, "stopped": 1}, "prompt_tokens": 12_000,
              "cached_tokens": 9_000, "completion_tokens": 400, "memory_tokens": 50, "cost": 1.256},
    "since_start": {"errors": 1, "warnings": 0},
    "queue": {"received": 1, "working": 0, "failed": 2, "outbox_pending": 0, "dead": 0},
    "process": {"resident": 70_400_000},
    "channels": [
        {"name": "telegram", "state": "running", "detail": "", "heard_seconds": 95.2},
        {"name": "whatsapp", "state": "off", "detail": "it was unlinked", "heard_seconds": None},
        {"name": "cli", "state": "running", "detail": "all is well"},
    ],
    "sizes": {"memory": 900, "sessions": 12_345_678},
}  # fmt: skip


def test_it_is_an_aligned_table_with_what_is_wrong(
    gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.answers["status"] = STATUS
    assert main(["--home", str(gateway.home), "status"]) == 0
    assert capsys.readouterr().out.splitlines() == [
        "gateway   running for 1 h 2 min, pid 7",
        "health    failing",
        "version   0.1.0",
        "home      /h",
        "model     tiny-1 · offline",
        "sessions  2",
        "turns     1 running, today: 3 done, 1 stopped",
        "tokens    today: 12,000 in (9,000 cached), 400 out, 50 for memory, cost 1.26",
        "log       1 error and 0 warnings since nanobot started",
        "inbox     1 pending, 2 failed",
        "outbox    empty",
        "process   70.4 MB of memory",
        "",
        "failing: telegram: nothing was heard",
        "  See `nanobot logs`.",
        "degraded: failed messages: 2",
        "degraded: whatsapp is off: it was unlinked",
        "",
        "channels",
        "  telegram  running  last contact 1 min 35 s ago",
        "  whatsapp  off                                   it was unlinked",
        "  cli       running                               all is well",
        "",
        "on disk",
        "  memory    0.9 kB",
        "  sessions  12.3 MB",
    ]


def test_what_is_wrong_fits_the_terminal(gateway: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "telegram is off: the platform does not accept the token any more"
    hint = "Get a new one from BotFather, and put it in the place of the old one."
    concern = {"level": "degraded", "text": text, "hint": hint}
    gateway.answers["status"] = {"health": {"state": "degraded", "concerns": [concern]}}
    ours, theirs = os.openpty()
    monkeypatch.setenv("COLUMNS", "50")
    with open(theirs, "w") as terminal, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", terminal)
        assert main(["--home", str(gateway.home), "status"]) == 0
    output = b""
    with suppress(OSError):  # after reading everything, as there is no writer any more
        while True:
            output += os.read(ours, 4096)
    os.close(ours)
    assert output.decode().splitlines()[-4:] == [
        "degraded: telegram is off: the platform does not",
        "accept the token any more",
        "  Get a new one from BotFather, and put it in the",
        "  place of the old one.",
    ]


@pytest.mark.parametrize(
    ("health", "code", "said"),
    [
        ({"state": "ok", "concerns": []}, 0, "ok\n"),
        ({"state": "degraded", "concerns": [{"text": "it is"}]}, 0, "degraded: it is\n"),
        (
            HEALTH,
            1,
            "failing: telegram: nothing was heard; failed messages: 2;"
            " whatsapp is off: it was unlinked\n",
        ),
        ({}, 1, "failing\n"),
    ],
)
def test_a_check_is_a_line_and_an_exit_code(
    gateway: Any, capsys: pytest.CaptureFixture[str], health: object, code: int, said: str
) -> None:
    gateway.answers["status"] = {"running": True, "health": health}
    assert main(["--home", str(gateway.home), "status", "--check"]) == code
    assert capsys.readouterr().out == said


def test_what_does_not_run_fails_the_check_and_is_told_how_to_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(tmp_path), "status", "--check"]) == 1
    assert capsys.readouterr().out == "stopped\n"
    assert list(tmp_path.iterdir()) == []  # asking leaves no trace
    assert main(["--home", str(tmp_path), "status"]) == 0
    assert "not running (start it with `nanobot gateway`)" in capsys.readouterr().out


def test_a_journal_that_was_rebuilt_is_shown_without_a_gateway_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--home", str(tmp_path), "status"]) == 0
    assert "damaged" not in capsys.readouterr().out
    (tmp_path / "state" / "journal.db").write_bytes(b"no database" * 1_000)
    for _ in range(2):
        assert main(["--home", str(tmp_path), "status"]) == 0
        assert "degraded: The journal was damaged" in capsys.readouterr().out


def test_a_gateway_that_does_not_answer_is_failing(
    gateway: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway.hold("status")
    assert status(gateway.home, as_json=False, check=True, timeout=0.05) == 1
    assert capsys.readouterr().out == "failing: the gateway is running but does not respond\n"
    status(gateway.home, as_json=True, check=False, timeout=0.05)
    told = json.loads(capsys.readouterr().out)
    assert (told["running"], told["health"]["state"]) == (True, "failing")


def test_a_document_that_has_nothing_yet_is_an_empty_one(here: Nanobot) -> None:
    for name in DOCUMENTS:
        done = here("state", "show", name)
        assert (done.returncode, done.stdout) == (0, "{}\n"), name
        assert name in here("state", "show", "--help").stdout
    assert here("state", "show").stdout == "Documents: none\n"
    done = here("state", "show", "job")
    assert (done.returncode, "there is no document 'job'" in done.stderr) == (1, True)
