"""The text of the unit file."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot.cli.unit import Unit, home_in
from nanobot.errors import NanobotError

BREAK_THE_SANDBOX = (
    "RestrictNamespaces", "ProtectHostname", "ProcSubset", "ProtectKernelTunables",
    "ProtectKernelLogs", "MemoryDenyWriteExecute",
)  # fmt: skip


def unit(home: str = "/srv/nanobot", user: str = "", grace: float = 20.0) -> Unit:
    command = ("/opt/nanobot/bin/nanobot", "gateway")
    return Unit(command, Path(home), "/usr/bin", grace, user, (home,))


def lines(of: Unit) -> list[str]:
    return of.text.splitlines()


@pytest.mark.parametrize(
    "home", ["/srv/nanobot", "/srv/a b", "/srv/100%n", '/srv/"q"', "/srv/back\\slash", "/srv/$HOME"]
)
def test_any_home_can_be_read_back(home: str) -> None:
    assert home_in(unit(home).text) == Path(home)
    assert home_in(unit(home).text.replace("Written by", "Made by")) is None


@pytest.mark.parametrize("user", ["", "nanobot"], ids=["user's own", "machine's"])
def test_the_sandbox_of_commands_keeps_what_it_needs(user: str) -> None:
    keys = {line.partition("=")[0] for line in unit(user=user).restrictions.splitlines()}
    assert keys.isdisjoint(BREAK_THE_SANDBOX)
    assert {"NoNewPrivileges", "ProtectSystem", "ReadWritePaths"} < keys


def test_only_the_machine_can_take_away_what_the_machine_has_given() -> None:
    assert "CapabilityBoundingSet=" not in lines(unit())
    assert "User=" not in unit().text
    assert {"CapabilityBoundingSet=", "User=nanobot"} <= set(lines(unit(user="nanobot")))


def test_a_home_in_a_temporary_folder_is_not_hidden_behind_a_private_one() -> None:
    assert "PrivateTmp=yes" in lines(unit())
    assert "PrivateTmp=no" in lines(unit("/var/tmp/nanobot"))


def test_no_empty_home_is_made_while_the_home_is_gone() -> None:
    assert "ExecStartPre=:/usr/bin/test -d /srv/nanobot" in lines(unit("/srv/nanobot"))
    assert 'ExecStartPre=:/usr/bin/test -d "/srv/a b"' in lines(unit("/srv/a b"))


def test_stopping_may_take_longer_than_turns_get_to_finish() -> None:
    assert "TimeoutStopSec=135" in lines(unit(grace=120.0))


@pytest.mark.parametrize("place", ["/srv/x\nExecStartPre=+/bin/sh", "/srv/\x1b[2J", "/srv/\udcff"])
def test_no_path_begins_a_line_of_its_own(place: str) -> None:
    with pytest.raises(NanobotError, match="cannot contain"):
        _ = unit(user="nanobot")._replace(writable=("/srv/nanobot", place)).text
