"""A command that finds a gateway that is shutting down waits for its end and does the work
itself."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from nanobot.gateway import SOCKET_NAME
from nanobot.gateway.lock import home_lock
from tests.cli.support import Nanobot

pytestmark = pytest.mark.process

GOING = b'{"ok": false, "error": "nanobot is shutting down", "hint": "", "going": true}\n'


@pytest.fixture(autouse=True)
def offline(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text("model:\n  provider: offline\n")
    (home / "config.yaml").chmod(0o600)


def close_unread(client: socket.socket) -> None:
    """Accept the connection, and end before reading the request."""
    select.select([client], [], [])
    client.close()


def read_and_refused(client: socket.socket) -> None:
    """Read the request, but do not execute it any more."""
    _request(client)
    client.sendall(GOING)
    client.close()


def read_in_part(client: socket.socket) -> None:
    """Read the beginning of the request."""
    select.select([client], [], [])
    client.recv(5)
    client.close()


def announce_end(client: socket.socket) -> None:
    """Announce the end before reading anything."""
    client.sendall(GOING)
    client.close()


def _request(client: socket.socket) -> dict[str, object]:
    data = b""
    while not data.endswith(b"\n"):
        data += client.recv(65536)
    request: dict[str, object] = json.loads(data)
    return request


MOMENTS = [close_unread, read_and_refused, read_in_part, announce_end]


@contextmanager
def leaving_gateway(home: Path, meet: Callable[[socket.socket], None]) -> Iterator[None]:
    """Run a gateway that is shutting down, and frees the home after the next client."""
    locked = threading.Event()

    def live() -> None:
        with home_lock(home / "state", "ending"), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(home / "state" / SOCKET_NAME))
            listener.listen()
            locked.set()
            client, _ = listener.accept()
            (home / "state" / SOCKET_NAME).unlink()
            meet(client)

    gateway = threading.Thread(target=live)
    gateway.start()
    assert locked.wait(20)
    yield
    gateway.join(20)


COMMANDS = [
    ("agent", "-m", "hello"),
    ("approvals", "list"),
    ("channels", "status"),
    ("cron", "list"),
    ("mcp", "list"),
    ("memory", "show"),
    ("pair", "list"),
    ("queue", "list"),
    ("skills", "list"),
    ("status",),
]


@pytest.mark.parametrize("meet", MOMENTS)
@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_the_person_sees_nothing_of_a_gateway_that_ends(
    here: Nanobot, home: Path, command: tuple[str, ...], meet: Callable[[socket.socket], None]
) -> None:
    with leaving_gateway(home, meet):
        done = here(*command)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


@pytest.mark.parametrize("meet", MOMENTS)
def test_what_changes_something_is_done_once(
    here: Nanobot, home: Path, meet: Callable[[socket.socket], None]
) -> None:
    with leaving_gateway(home, meet):
        added = here("cron", "add", "daily 07:30", "say good morning")
    assert added.returncode == 0, added.stderr
    jobs = json.loads(here("cron", "list", "--json").stdout)
    assert len(jobs["jobs"]) == 1


def test_an_answer_that_is_lost_after_the_request_was_read_is_said_and_not_asked_again(
    here: Nanobot, home: Path
) -> None:
    def read_and_gone(client: socket.socket) -> None:
        _request(client)
        client.close()

    with leaving_gateway(home, read_and_gone):
        done = here("cron", "add", "daily 07:30", "say good morning")
    assert done.returncode == 69
    assert "lost the connection to the gateway before it answered" in done.stderr
    assert json.loads(here("cron", "list", "--json").stdout)["jobs"] == []


@contextmanager
def start_process(environment: dict[str, str], *command: str) -> Iterator[subprocess.Popen[str]]:
    """Yield a nanobot process, killed at the end if it is alive."""
    with subprocess.Popen(
        [sys.executable, "-m", "nanobot", *command],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            process.kill()


def until_said(process: subprocess.Popen[str], word: str) -> None:
    assert process.stderr is not None
    assert any(word in line for line in process.stderr)


@pytest.mark.parametrize("command", [("agent", "-m", "hello"), ("queue", "list"), ("gateway",)])
def test_who_comes_waits_until_the_owner_is_gone_and_says_so(
    environment: dict[str, str], home: Path, command: tuple[str, ...]
) -> None:
    with ExitStack() as owner:
        owner.enter_context(home_lock(home / "state", "ending"))
        with start_process(environment, *command) as process:
            assert process.stderr is not None
            waits = f"waiting for the running nanobot (pid {os.getpid()}) to exit …\n"
            assert process.stderr.readline() == waits
            owner.close()
            if command == ("gateway",):
                until_said(process, "ready")
                process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0


def test_a_home_whose_owner_restarts_is_left_to_it(
    environment: dict[str, str], home: Path, here: Nanobot
) -> None:
    with start_process(environment, "gateway") as process:
        until_said(process, "ready")
        for _ in range(3):
            said = here("agent", "-m", "/restart")
            assert "Restarting" in said.stdout, said.stderr
            assert here("queue", "list").returncode == 0
            assert json.loads(here("status", "--json").stdout)["running"] is True
        assert process.poll() is None
