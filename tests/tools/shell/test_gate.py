"""Permissions of commands, and approvals."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from nanobot.errors import ToolError
from nanobot.security.sandbox import find_sandbox
from nanobot.tools.shell.tools import ExecArguments, is_slip
from nanobot.validation import build
from tests.tools.shell.conftest import ProcessWatch

if TYPE_CHECKING:
    from nanobot.tooling import Risk
    from tests.tools.shell.conftest import CommandKit


async def test_without_a_sandbox_nothing_runs_and_the_way_out_is_told(kit: CommandKit) -> None:
    kit.sandbox = None
    said = await kit.complains("exec", command="touch ran")
    assert "install bubblewrap" in said
    assert "tools.exec.sandbox: none" in said
    assert not (kit.workspace / "ran").exists()
    kit.sandbox = kit.open  # the owner installed one: no restart is needed
    assert "exit code 0" in await kit.says("exec", command="touch ran")


async def test_what_a_sandbox_cannot_do_is_told_with_what_failed(kit: CommandKit) -> None:
    kit.change_sandbox(lacks="No sockets.")
    assert (await kit.says("exec", command="true")).endswith("[exit code 0]")
    failed = await kit.says("exec", command="false")
    assert failed.endswith("[exit code 1\nAbout this sandbox: No sockets.]")


async def test_only_what_is_not_shut_in_is_a_risk(kit: CommandKit) -> None:
    assert await _risk(kit, command="rm -rf x") is None
    asked = await _risk(kit, command="pip download x", cwd="", network=True, background=True)
    assert asked is not None
    assert asked.kind == "exec"
    assert asked.what == "run a command with network access"
    assert asked.details == "(in the workspace, in the background)\npip download x"
    kit.change_sandbox(kind="none")
    asked = await _risk(kit, command="ls")
    assert asked is not None
    assert asked.what == "run a command without a sandbox"


async def test_network_is_given_to_the_command_that_asks_and_taken_away_again(
    kit: CommandKit,
) -> None:
    await kit.says("exec", command="true")
    await kit.says("exec", command="true", network=True)
    (_, none), (_, relay) = kit.open.seen
    assert none is None
    assert relay is not None
    assert not relay.exists()


async def test_the_owner_can_turn_the_network_off(kit: CommandKit) -> None:
    off = kit.make_exec(network=False)
    with pytest.raises(ToolError, match=r"tools\.exec\.network"):
        await off.risk(ExecArguments(command="true", network=True), kit.me)


async def test_after_a_free_command_somebody_looks_what_changed(kit: CommandKit) -> None:
    await kit.says("exec", command="true")
    assert kit.ran_free == []
    kit.change_sandbox(kind="none")
    await kit.says("exec", command="true")
    assert kit.ran_free == ["turn-1"]


async def test_a_slip_is_refused_where_no_sandbox_would_stop_it(kit: CommandKit) -> None:
    assert "exit code" in await kit.says("exec", command="true || mkfs.ext4 x")
    kit.change_sandbox(kind="none")
    assert "would destroy the system" in await kit.complains("exec", command="true || mkfs.ext4 x")


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf /",
        "rm -r -f /*",
        "cd /tmp && sudo rm --recursive --no-preserve-root / ",
        'rm -fr "$HOME"',
        "rm -Rf ${HOME}/",
        "echo $(/bin/rm -rf ~)",
        "chmod -R 777 /",
        "mkfs.ext4 /dev/sdb1",
        "dd if=/dev/zero of=/dev/sda bs=1M",
        "cat x > /dev/nvme0n1",
    ],
)
def test_slips_are_known(command: str) -> None:
    assert is_slip(command)


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf ./build /workspace/x",
        "rm notes.txt",
        "rm -r ~/old",
        "grep -r shutdown /",
        "dd if=a of=b",
        "echo x > /dev/null",
        "chmod -R 755 site",
        "git commit -m 'reboot the build'",
        "f() { g | h & }; f",
        "(" * 50_000 + "a " * 20_000,
    ],
)
def test_ordinary_commands_are_no_slips(command: str) -> None:
    assert not is_slip(command)


async def test_in_the_sandbox_of_this_machine_a_command_works_and_dies(kit: CommandKit) -> None:
    found = await find_sandbox("auto")
    assert found.sandbox is not None, found.problem
    kit.sandbox = found.sandbox
    said = await kit.says("exec", command="echo hello > made; cat made; pwd")
    assert said == f"hello\n{kit.workspace}\n[exit code 0]"
    assert (kit.workspace / "made").read_text() == "hello\n"
    life = ProcessWatch(kit.workspace)
    running = kit.begin(command=f"{life.holding} setsid sleep 900 & sleep 900")
    await kit.watched.until("ready")
    assert await kit.processes.stop(kit.me.session_key) == 0
    await life.over()
    assert "was killed" in (await running).text


async def _risk(kit: CommandKit, **arguments: object) -> Risk | None:
    return await kit.exec.risk(build(ExecArguments, arguments), kit.me)
