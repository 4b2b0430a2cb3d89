"""Without a running gateway, a command hosts the real one, with the offline model."""

from __future__ import annotations

import json
import os
import pty
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from nanobot.cli.main import main
from nanobot.gateway.lock import home_lock
from tests.cli.test_terminal import Screen

pytestmark = pytest.mark.process


@pytest.fixture(autouse=True)
def offline(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model:\n  provider: offline\n")
    (home / "config.yaml").chmod(0o600)


def test_a_one_shot_without_a_gateway_answers_and_leaves_nothing_running(
    nanobot: Any, home: Path
) -> None:
    done = nanobot("agent", "-m", "My name is Ada.", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["outcome"] == "done"
    assert not (home / "state" / "gateway.sock").exists()
    with home_lock(home / "state"):
        pass


def test_keys_that_others_could_read_are_closed_and_that_is_said(here: Any, home: Path) -> None:
    (home / "secrets.env").write_text("K=k\n")
    for path in (home / "secrets.env", home / "config.yaml"):
        path.chmod(0o644)
    done = here("agent", "-m", "hello")
    assert done.stderr == (
        f"warning: {home}/secrets.env contains keys that other users could read,"
        " so it is now private (mode 600)\n"
    )
    modes = [stat.S_IMODE((home / name).stat().st_mode) for name in ("secrets.env", "config.yaml")]
    assert modes == [0o600, 0o600]
    assert here("agent", "-m", "hello").stderr == ""


def test_a_file_that_the_agent_sends_is_told_with_where_it_lies(here: Any, home: Path) -> None:
    (home / "workspace").mkdir()
    (home / "workspace" / "notes.txt").write_text("rain")
    told = json.loads(here("agent", "-m", "send me notes.txt", "--json").stdout)
    ((file,),) = [message["files"] for message in told["messages"]]
    assert (file["name"], file["size"]) == ("notes.txt", 4)
    assert Path(file["path"]).read_text() == "rain"
    assert Path(file["path"]).parent == home / "media"
    assert told["reply"] == "Here is notes.txt."


def test_what_was_said_is_listed_and_shown_afterwards(here: Any) -> None:
    empty = here("sessions", "list")
    assert empty.stdout == "No conversations yet. `nanobot agent` starts one.\n"
    turn = json.loads(here("agent", "-m", "hello there", "--json").stdout)["turn"]
    assert "cli:direct" in here("sessions", "list").stdout
    assert [s["key"] for s in json.loads(here("sessions", "list", "--json").stdout)] == [
        "cli:direct"
    ]
    shown = here("sessions", "show", "cli:direct")
    assert f"user (turn {turn})\n  hello there\n" in shown.stdout
    latest = json.loads(here("sessions", "show", "cli:direct", "-n", "1", "--json").stdout)
    assert [message["role"] for message in latest["messages"]] == ["assistant"]
    assert f"turn     {turn}" in here("turn", "show", turn).stdout
    missing = here("sessions", "show", "cli:drect")
    assert (missing.returncode, missing.stdout) == (1, "")
    assert "cli:direct" in missing.stderr


def test_only_the_latest_conversations_are_listed_and_how_many_more_there_are(
    home: Path, here: Any
) -> None:
    (home / "sessions").mkdir()
    for number in range(52):
        file = home / "sessions" / f"cli_chat-{number}.jsonl"
        file.write_text('{"role": "user", "content": "hello"}\n')
    shown = here("sessions", "list").stdout
    assert shown.count("cli:chat-") == 50
    assert shown.endswith("\n2 more. To list all, add `-n 52`.\n")
    listed = here("sessions", "list", "-n", "1", "--json")
    assert len(json.loads(listed.stdout)) == 1
    assert listed.stderr == "51 more. To list all, add `-n 52`.\n"
    whole = here("sessions", "list", "-n", "52")
    assert (whole.stdout.count("cli:chat-"), "more" in whole.stdout) == (52, False)


def test_looking_needs_no_gateway(here: Any) -> None:
    assert "not running" in here("status").stdout
    assert here("queue", "list").stdout == "No pending or failed messages.\n"
    browsers = here("web", "list")
    assert (browsers.returncode, "requires a running gateway\n" in browsers.stderr) == (1, True)


def test_a_restart_within_the_process_is_survived(nanobot: Any) -> None:
    done = nanobot("agent", stdin="/restart\nhello\n")
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.strip().splitlines()) >= 2


def test_two_that_start_at_once_are_both_answered(environment: dict[str, str]) -> None:
    command = [sys.executable, "-m", "nanobot", "agent"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    two = [subprocess.Popen(command, env=environment, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for process in two:  # both ask for an answer before either may leave
        process.stdin.write(b"hello\n")
        process.stdin.flush()
    answers = [process.stdout.readline() for process in two]
    errors = [process.communicate(timeout=30)[1] for process in two]
    assert all(answers), errors
    assert [process.returncode for process in two] == [0, 0]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_stops_the_gateway_before_it_ends_the_process(
    environment: dict[str, str], home: Path, number: signal.Signals
) -> None:
    command = [sys.executable, "-m", "nanobot", "agent"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment, **pipes) as process:  # type: ignore[call-overload]
        process.stdin.write(b"hello\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(number)
        assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 128 + number
    assert not (home / "state" / "gateway.sock").exists()
    with home_lock(home / "state"):
        pass


@contextmanager
def chat(environment: dict[str, str]) -> Iterator[Screen]:
    """Yield a chat at a terminal, which is left at the end. The test reads its last output."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "nanobot", "agent"],
        stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        env=environment | {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"},
    ) as process:  # fmt: skip
        os.close(theirs)
        screen = Screen(ours, process)
        screen.wait_for(">")
        yield screen
        assert screen.end() == 0
    os.close(ours)


def test_a_chat_that_hosts_says_at_its_end_that_reminders_wait(environment: dict[str, str]) -> None:
    with chat(environment) as screen:
        screen.type("remind me tomorrow at 9 to call Ana\r")
        screen.wait_for("I'll remind you.")
        screen.type("\x04")
        screen.wait_for("note: 1 scheduled job runs only while nanobot is running (start it")


def test_a_chat_that_hosts_says_at_its_end_that_a_message_waits_for_the_model(
    environment: dict[str, str], home: Path
) -> None:
    model = {"name": "m", "base_url": "http://127.0.0.1:9/v1", "retry_seconds": 1}
    (home / "config.yaml").write_text(json.dumps({"model": model}))
    with chat(environment) as screen:
        screen.type("hello\r")
        screen.wait_for("Your message will be answered")
        screen.type("\x04")
        screen.wait_for("note: your message will be answered once")


def test_one_message_that_sets_a_reminder_says_so_too(nanobot: Any) -> None:
    done = nanobot("agent", "-m", "remind me tomorrow at 9 to call Ana")
    assert "note: 1 scheduled job runs only while nanobot is running" in done.stderr
    assert nanobot("agent", "-m", "hello").stderr == ""


def test_a_home_that_stays_locked_without_a_socket_exits_75(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("nanobot.cli.gateway.START_SECONDS", 0.0)
    with home_lock(home / "state"):
        assert main(["--home", str(home), "agent", "-m", "hi"]) == 75
    logger.remove()
    assert "another nanobot" in capsys.readouterr().err


def test_a_wrong_configuration_is_said_and_not_waited_for(here: Any, home: Path) -> None:
    (home / "config.yaml").write_text("modell: x\n")
    done = here("agent", "-m", "hi")
    assert done.returncode == 78
    assert "did you mean" in done.stderr.lower()


def test_a_history_that_hkuds_wrote_is_searched_and_dreamt_about(here: Any, home: Path) -> None:
    folder = home / "workspace" / "memory"
    folder.mkdir(parents=True)
    (folder / "MEMORY.md").write_text(
        "# Long-term Memory\n\n"
        "This file stores important information that should persist across sessions.\n\n"
        "## Important Notes\n\n(Things to remember)\n\n---\n\n*This file is automatically "
        "updated by nanobot when important information should be remembered.*\n"
    )
    lines = [
        {"timestamp": "2026-04-19T10:00", "type": "consolidation", "summary": "他买了皮划艇",
         "key_facts": ["The kayak is red"]},
        {"cursor": 1, "timestamp": "2026-04-02 10:00", "content": "They spoke of a lighthouse."},
    ]  # fmt: skip
    (folder / "history.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert "lighthouse" in here("memory", "search", "lighthouse").stdout
    assert "皮划艇" in here("memory", "search", "皮划艇").stdout
    assert json.loads(here("memory", "show", "--json").stdout)["facts"] == []
    assert "The kayak is red" in here("agent", "-m", "/dream").stdout


def test_nobody_else_may_read_or_write_what_lies_in_the_home_while_it_runs(
    environment: dict[str, str], home: Path
) -> None:
    command = [sys.executable, "-m", "nanobot", "agent"]
    with subprocess.Popen(
        command,
        env=environment,
        umask=0,
        text=True,
        bufsize=1,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as session:
        assert session.stdin is not None
        assert session.stdout is not None
        for said in ("Remember that my name is Ada.", "/new", "What did I say about tea?"):
            session.stdin.write(f"{said}\n")
            assert session.stdout.readline().strip()
        entries = {str(path.relative_to(home)): path for path in home.rglob("*")}
        modes = {name: stat.S_IMODE(path.lstat().st_mode) for name, path in entries.items()}
        session.stdin.close()
    assert {"state/journal.db-wal", "state/index.db-wal", "state/index.db-shm"} <= modes.keys()
    assert {name: oct(mode) for name, mode in modes.items() if mode & 0o077} == {}
