"""The gateway's messages to systemd, on a real datagram socket."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from nanobot.gateway.health import SystemdNotifier


@pytest.fixture
def manager() -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listening:
        yield listening


def read_states(manager: socket.socket) -> list[str]:
    said = []
    manager.setblocking(False)
    while True:
        try:
            said.append(manager.recv(4096).decode())
        except BlockingIOError:
            return said


def test_each_step_of_a_service_is_one_message_of_sd_notify(
    manager: socket.socket, tmp_path: Path
) -> None:
    manager.bind(str(tmp_path / "notify"))
    environ = {
        "NOTIFY_SOCKET": str(tmp_path / "notify"),
        "WATCHDOG_USEC": "90000000",
        "WATCHDOG_PID": str(os.getpid()),
    }

    systemd = SystemdNotifier(environ)
    systemd.send("READY=1")
    systemd.send("STATUS=2 turns \ud800")

    assert systemd.watchdog_seconds == 90.0
    assert read_states(manager) == [
        "READY=1",
        "STATUS=2 turns ?",
    ]


def test_a_name_outside_the_file_system_is_reached(manager: socket.socket) -> None:
    name = f"nanobot-test-{os.getpid()}"
    manager.bind(f"\0{name}")

    SystemdNotifier({"NOTIFY_SOCKET": f"@{name}"}).send("READY=1")

    assert read_states(manager) == ["READY=1"]


@pytest.mark.parametrize(
    "wanted",
    [
        {},
        {"WATCHDOG_USEC": "0"},
        {"WATCHDOG_USEC": "soon"},
        {"WATCHDOG_USEC": "90000000", "WATCHDOG_PID": "1"},
    ],
    ids=["not asked for", "off", "nonsense", "another process's"],
)
def test_without_a_watchdog_of_our_own_there_are_no_signs_of_life(
    manager: socket.socket, tmp_path: Path, wanted: dict[str, str]
) -> None:
    manager.bind(str(tmp_path / "notify"))

    systemd = SystemdNotifier({"NOTIFY_SOCKET": str(tmp_path / "notify"), **wanted})

    assert systemd.watchdog_seconds is None


@pytest.mark.parametrize("address", ["", "/nowhere/notify", "vsock:2:1234", "/" + "x" * 300, "@"])
def test_a_manager_that_is_not_there_costs_nothing(address: str) -> None:
    environ = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}

    systemd = SystemdNotifier(environ)

    systemd.send("READY=1")
