"""Only a verified sandbox is used. Without one there is advice."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from nanobot.programs import Launch
from nanobot.security.confine.stage import landlock_lack
from nanobot.security.sandbox import Confinement, Sandbox, find_sandbox, verify_sandbox


class Leaky(Sandbox, frozen=True):
    """The real sandbox with too many permissions."""

    def launch(
        self, command: Sequence[str], confined: Confinement, relay: Path | None = None
    ) -> Launch:
        shown = (*confined.extra_read_only, confined.workspace.parent / "outside")
        leaky = Confinement(confined.workspace, extra_read_only=shown, cwd=confined.cwd)
        return super().launch(command, leaky, relay)


async def test_the_canary_finds_what_does_not_hold(bubblewrap: Sandbox) -> None:
    assert await verify_sandbox(bubblewrap) == ""
    problem = await verify_sandbox(Leaky(bubblewrap.kind, program=bubblewrap.program))
    assert "read a file" in problem
    assert "change a protected file" in problem


async def test_the_canary_finds_that_there_is_no_sandbox() -> None:
    problem = await verify_sandbox(Sandbox("none"))
    assert "read a file" in problem
    assert "connect to this machine" in problem


async def test_one_that_does_not_run_is_not_used() -> None:
    assert "cannot run /nowhere/bwrap" in await verify_sandbox(
        Sandbox("bubblewrap", program="/nowhere/bwrap")
    )
    assert (
        await verify_sandbox(Sandbox("bubblewrap", program="/bin/false"))
        == "commands don't run in it"
    )


async def test_none_is_only_what_the_owner_asks_for() -> None:
    found = await find_sandbox("none")
    assert found.sandbox is not None
    assert found.sandbox.kind == "none"
    found = await find_sandbox("auto", private=(Path("/usr/share/nanobot"),))
    assert found.sandbox is None


def test_a_landlock_that_lets_files_be_cut_short_is_not_used() -> None:
    assert "does not support Landlock" in landlock_lack(0)
    assert "Linux 6.2" in landlock_lack(2)
    assert landlock_lack(3) == landlock_lack(7) == ""


@pytest.mark.parametrize("place", ["/usr/share/nanobot", "/etc/ssl/certs/home"])
async def test_a_home_that_every_command_would_see_is_refused(place: str) -> None:
    found = await find_sandbox("auto", private=(Path(place),))
    assert found.sandbox is None
    assert "Move nanobot's home elsewhere" in found.problem


async def test_nothing_of_ours_is_in_the_environment(bubblewrap: Sandbox, disk_path: Path) -> None:
    launch = bubblewrap.launch(("true",), Confinement(disk_path, environment={"KEY": "secret"}))
    assert not set(launch.env) & set(os.environ)
    assert "secret" not in " ".join(launch.argv)
