"""Only the approved command runs: no file that it may read changes before its end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nanobot.errors import ToolError
from nanobot.messages import ToolCall
from nanobot.security.paths import Root, Roots
from nanobot.tooling import Allowed, Ask, Denied, OwnersPolicy, ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.files import UndoLog, WorkspaceWriter, WriteFile, WriteFileArguments
from nanobot.tools.shell.tools import ExecKill

if TYPE_CHECKING:
    from tests.tools.shell.conftest import CommandKit


@dataclass
class Owner:
    """Approves after `meanwhile` has run."""

    meanwhile: Callable[[], object] = lambda: None
    asked: list[str] = field(default_factory=list)
    may_answer: asyncio.Event = field(default_factory=asyncio.Event)
    was_asked: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self, call: ToolCall, caller: TurnContext, question: Ask) -> Allowed | Denied:
        self.asked.append(question.risk.details)
        self.was_asked.set()
        await self.may_answer.wait()
        await asyncio.to_thread(self.meanwhile)
        return Allowed()


@pytest.fixture
def owner(kit: CommandKit) -> Owner:
    """Asked about each command with network, at `kit`."""
    owner = Owner()
    kit.tools = ToolRegistry(policy=OwnersPolicy({"exec": "ask"}), ask=owner.ask)
    kit.tools.register_all([kit.exec, ExecKill(kit.processes)])
    (kit.workspace / "work").mkdir()
    (kit.workspace / "work" / "fetch.sh").write_text("echo harmless\n")
    return owner


def ask(kit: CommandKit, **arguments: object) -> asyncio.Task[ToolResult]:
    return kit.begin(command="sh work/fetch.sh", network=True, **arguments)


async def test_what_nobody_changed_runs(kit: CommandKit, owner: Owner) -> None:
    owner.may_answer.set()
    assert (await ask(kit)).text == "harmless\n[exit code 0]"


def rewrite(script: Path) -> None:
    script.write_text("echo evil\n")


def rewrite_with_old_times(script: Path) -> None:
    """Rewrite a file with its old times and length."""
    status = script.stat()
    script.write_text("echo evil #56\n")
    os.utime(script, ns=(status.st_atime_ns, status.st_mtime_ns))


def replace_by_an_old_one(script: Path) -> None:
    (script.parent.parent.parent / "old").rename(script)


def add_a_module(script: Path) -> None:
    (script.parent / "deep" / "er").mkdir(parents=True)
    (script.parent / "deep" / "er" / "random.py").write_text("evil\n")


@pytest.mark.parametrize(
    "change",
    [rewrite, rewrite_with_old_times, replace_by_an_old_one, add_a_module, Path.unlink],
)
async def test_any_change_before_the_yes_voids_it(
    kit: CommandKit, owner: Owner, change: Callable[[Path], None]
) -> None:
    script = kit.workspace / "work" / "fetch.sh"
    (kit.workspace.parent / "old").write_text("echo evil\n")
    owner.meanwhile = lambda: change(script)
    owner.may_answer.set()
    result = await ask(kit)
    assert result.is_error
    assert "not run: files in its folder changed" in result.text
    assert "evil" not in result.text


async def test_beside_a_command_that_runs_nothing_is_asked(kit: CommandKit, owner: Owner) -> None:
    running = await kit.says("exec", command="sleep 600", background=True)
    said = await ask(kit)
    assert said.is_error
    assert "sleep 600" in said.text
    assert owner.asked == []
    name = running.split(" as ")[1].split(".")[0]
    await kit.says("exec_kill", id=name)
    owner.may_answer.set()
    assert (await ask(kit)).text == "harmless\n[exit code 0]"


async def test_from_the_yes_to_the_end_nothing_else_runs_or_is_written(
    kit: CommandKit, owner: Owner
) -> None:
    (kit.workspace / "work" / "fetch.sh").write_text("echo here; cat gate\n")
    os.mkfifo(kit.workspace / "gate")
    task = ask(kit)
    owner.may_answer.set()
    await kit.watched.until("here\n")
    await expect_refusals(kit)
    (kit.workspace / "gate").write_text("end\n")
    assert (await task).text == "here\nend\n[exit code 0]"
    assert "exit code 0" in await kit.says("exec", command="true")
    assert await write_other(kit) == "created other.txt (1 bytes)"


async def test_a_question_that_waits_stops_no_other_conversation(
    kit: CommandKit, owner: Owner
) -> None:
    task = ask(kit)
    await owner.was_asked.wait()
    other = kit.other(session_key="telegram:7", turn_id="turn-2")
    assert "exit code 0" in (await kit.call("exec", other, command="echo x > work/x")).text
    assert await write_other(kit) == "created other.txt (1 bytes)"
    owner.may_answer.set()
    said = await task
    assert said.is_error, "the owner's yes was for other files"
    assert "not run: " in said.text


async def test_beside_a_command_that_began_during_the_question_nothing_is_run(
    kit: CommandKit, owner: Owner
) -> None:
    task = ask(kit)
    await owner.was_asked.wait()
    other = kit.other(session_key="telegram:7", turn_id="turn-2")
    await kit.call("exec", other, command="sleep 600", background=True)
    owner.may_answer.set()
    said = await task
    assert said.is_error
    assert "sleep 600" in said.text


async def test_after_the_yes_it_waits_for_the_commands_that_run(
    kit: CommandKit, owner: Owner
) -> None:
    gate = kit.workspace.parent / "gate"
    os.mkfifo(gate)
    task = ask(kit)
    await owner.was_asked.wait()
    other = kit.other(session_key="telegram:7", turn_id="turn-2")
    command = "echo there; read line < ../gate"
    running = asyncio.create_task(kit.call("exec", other, command=command))
    await kit.watched.until("there\n")
    owner.may_answer.set()
    while not (await kit.call("exec", other, command="true")).is_error:
        pass
    assert not task.done()
    await asyncio.to_thread(gate.write_text, "end\n")
    assert "exit code 0" in (await running).text
    assert (await task).text == "harmless\n[exit code 0]"


async def test_two_that_were_approved_run_one_after_the_other(
    kit: CommandKit, owner: Owner
) -> None:
    other = kit.other(session_key="telegram:7", turn_id="turn-2")
    arguments = {"command": "sh work/fetch.sh", "network": True}
    first = ask(kit)
    await owner.was_asked.wait()
    owner.was_asked.clear()
    both = first, asyncio.create_task(kit.call("exec", other, **arguments))
    await owner.was_asked.wait()
    owner.may_answer.set()
    assert [(await one).text for one in both] == ["harmless\n[exit code 0]"] * 2


async def test_the_same_holds_for_one_in_the_background(kit: CommandKit, owner: Owner) -> None:
    (kit.workspace / "work" / "fetch.sh").write_text("sleep 600\n")
    owner.may_answer.set()
    name = (await ask(kit, background=True)).text.split(" as ")[1].split(".")[0]
    await expect_refusals(kit)
    assert (await kit.call("exec", command="true")).is_error
    await kit.says("exec_kill", id=name)
    assert await write_other(kit) == "created other.txt (1 bytes)"


async def test_others_are_not_kept_from_anything(kit: CommandKit, owner: Owner) -> None:
    task = ask(kit)
    await owner.was_asked.wait()
    guest = kit.other(scope="people/x")
    assert "exit code 0" in (await kit.call("exec", guest, command="true")).text
    owner.may_answer.set()
    assert "exit code 0" in (await task).text


async def expect_refusals(kit: CommandKit) -> None:
    """Check that another conversation of the owner can change nothing."""
    other = kit.other(session_key="telegram:7", turn_id="turn-2")
    for more in ({}, {"background": True}, {"network": True}):
        result = await kit.call("exec", other, command="echo evil > work/fetch.sh", **more)
        assert "other" in result.text
    with pytest.raises(ToolError, match="no other command can run here"):
        await write_other(kit)


async def write_other(kit: CommandKit) -> str:
    """Return the result of `write_file` in another conversation."""

    class NoDocuments:
        def is_document(self, path: str, caller: TurnContext) -> bool:
            return False

        async def replace(self, *_: object, **__: object) -> int:
            return 0

    root = Root(kit.workspace)
    undo = UndoLog(kit.workspace.parent / "undo", root)
    tool = WriteFile(WorkspaceWriter(lambda _: Roots((root,)), undo, NoDocuments(), kit.processes))
    arguments = WriteFileArguments(path="other.txt", content="x")
    return (await tool(arguments, kit.other(session_key="telegram:7", turn_id="turn-2"))).text
