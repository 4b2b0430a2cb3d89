"""Background commands: exec_read, exec_kill, and their owners."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest
from msgspec.structs import replace

from nanobot.testing import FakeClock
from tests.tools.shell.conftest import ProcessWatch

if TYPE_CHECKING:
    from tests.tools.shell.conftest import CommandKit, NewDesk

FOR_EVER = "sleep 900"


@pytest.fixture
def kit(new_desk: NewDesk) -> CommandKit:
    return new_desk(FakeClock())


async def test_a_command_goes_on_while_its_output_is_read_piece_by_piece(kit: CommandKit) -> None:
    os.mkfifo(kit.workspace / "in")
    os.mkfifo(kit.workspace / "out")
    talking = "exec 3<in; while read -u 3 word; do echo got $word; echo > out; done"
    name = await kit.in_background(talking)
    # Opening waits for the other side, and a read for its text, so there are no time limits.
    with await asyncio.to_thread(open, kit.workspace / "in", "w", buffering=1) as say:
        for word in ("one", "two"):
            say.write(f"{word}\n")
            await asyncio.to_thread((kit.workspace / "out").read_text)
            await _wait_for_output(kit, name)
            assert await kit.says("exec_read", id=name) == f"got {word}\n[still running]"
        assert await kit.says("exec_read", id=name) == "(no output)\n[still running]"
    assert await kit.says("exec_read", id=name, wait=9) == "(no output)\n[exit code 0]"
    assert "no background command" in await kit.complains("exec_read", id=name)


async def test_what_fails_at_once_is_told_at_once(kit: CommandKit) -> None:
    said = await kit.says("exec", command="no-such-program", background=True)
    assert "not found" in said
    assert said.endswith("[exit code 127]")
    assert "There are none" in await kit.complains("exec_read", id="x")


async def test_a_killed_command_is_dead_and_tells_its_last_words(kit: CommandKit) -> None:
    life = ProcessWatch(kit.workspace)
    name = await kit.in_background(f"{life.holding} {FOR_EVER} & {FOR_EVER}")
    await _wait_for_output(kit, name)
    said = await kit.says("exec_kill", id=name)
    assert said == "ready\n[was killed. The outcome is unknown]"
    await life.over()
    await kit.complains("exec_kill", id=name)


async def test_a_command_belongs_to_its_conversation_and_scope(kit: CommandKit) -> None:
    name = await kit.in_background(FOR_EVER)
    for other in (
        kit.other(session_key="cli:other"),
        kit.other(scope="people/bob"),
        kit.other(session_key="telegram:7", scope="groups/g"),
    ):
        for tool in ("exec_read", "exec_kill"):
            refused = await kit.call(tool, other, id=name)
            assert refused.is_error
            assert "sleep" not in refused.text
    assert "still running" in await kit.says("exec_read", id=name)
    assert f"{name} ({FOR_EVER})" in await kit.complains("exec_read", id="wrong")


async def test_a_conversation_has_so_many_and_all_together_as_well(kit: CommandKit) -> None:
    first = await kit.in_background(FOR_EVER)
    await kit.in_background(FOR_EVER)
    refused = await kit.complains("exec", command=FOR_EVER, background=True)
    assert "2 background commands" in refused
    assert first in refused
    other = kit.other(session_key="cli:other")
    await kit.in_background(FOR_EVER, other)
    assert "too many" in (await kit.call("exec", other, command=FOR_EVER, background=True)).text
    assert "too many" in await kit.complains("exec", command="true")
    await kit.says("exec_kill", id=first)
    assert "exit code 0" in await kit.says("exec", command="true")


async def test_stopping_a_conversation_ends_its_commands_and_no_others(kit: CommandKit) -> None:
    life = ProcessWatch(kit.workspace)
    mine = await kit.in_background(f"{life.holding} {FOR_EVER}")
    other = kit.other(session_key="cli:other")
    others = await kit.in_background(FOR_EVER, other)
    waited_for = kit.begin(command=f"echo begun; {FOR_EVER}")
    await kit.watched.until("begun")
    assert await kit.processes.stop("cli:direct") == 1
    await life.over()
    assert "was killed" in (await waited_for).text
    assert "was killed" in await kit.says("exec_read", id=mine)
    assert "still running" in (await kit.call("exec_read", other, id=others)).text
    assert await kit.processes.stop("cli:direct") == 0


async def test_nothing_that_mounts_hold_runs_while_a_rule_file_is_replaced(kit: CommandKit) -> None:
    life = ProcessWatch(kit.workspace)
    name = await kit.in_background(f"{life.holding} {FOR_EVER} & {FOR_EVER}")
    other = kit.other(scope="people/bob", session_key="telegram:7")
    others = await kit.in_background(FOR_EVER, other)
    async with kit.processes.quiesce("owner"):
        await life.over()
        assert kit.processes.find(name, kit.me).over.is_set()
        waiting = kit.begin(command="touch begun")
        assert "exit code 0" in (await kit.call("exec", other, command="true")).text
        assert not (kit.workspace / "begun").exists()
    assert "exit code 0" in (await waiting).text
    said = await kit.says("exec_read", id=name)
    assert "because nanobot changed a rule file" in said
    assert "still running" in (await kit.call("exec_read", other, id=others)).text


async def test_what_no_mounts_hold_runs_on_meanwhile(kit: CommandKit) -> None:
    kit.change_sandbox(kind="landlock")
    name = await kit.in_background(FOR_EVER)
    async with kit.processes.quiesce("owner"):
        assert "still running" in await kit.says("exec_read", id=name)


async def test_closing_leaves_nothing_and_lets_nothing_start(kit: CommandKit) -> None:
    life = ProcessWatch(kit.workspace)
    await kit.in_background(f"{life.holding} {FOR_EVER} & {FOR_EVER}")
    await kit.processes.close()
    await life.over()
    assert "nanobot is stopping" in await kit.complains("exec", command="true")


async def test_last_words_wait_for_an_hour(kit: CommandKit) -> None:
    assert isinstance(kit.clock, FakeClock)
    early, late = [await _read_and_ended(kit, word) for word in ("early", "late")]
    await kit.clock.advance(3_598)
    assert await kit.says("exec_read", id=early) == "early\n[exit code 0]"
    await kit.clock.advance(2)
    assert "no background command" in await kit.complains("exec_read", id=late)


async def test_a_time_limit_holds_in_the_background_too(kit: CommandKit) -> None:
    assert isinstance(kit.clock, FakeClock)
    started = kit.begin(command=FOR_EVER, background=True, timeout=1_000)
    await kit.clock.until_sleeping(2)
    await kit.clock.advance(1)
    name = (await started).text.split(" as ")[1].split(".")[0]
    await kit.clock.advance(999)
    said = await kit.complains("exec_read", id=name, wait=9)
    assert "timed out after 1000 seconds" in said


async def test_a_scheduled_run_leaves_nothing_in_the_background(kit: CommandKit) -> None:
    for initiator in ("job", "heartbeat"):
        caller = replace(kit.me, initiator=initiator)
        result = await kit.call("exec", caller, command=FOR_EVER, background=True)
        assert "in the background here" in result.text


async def _read_and_ended(kit: CommandKit, word: str) -> str:
    """Return the id of a command that has printed `word` and ended."""
    os.mkfifo(kit.workspace / word)
    name = await kit.in_background(f"cat {word}")
    await asyncio.to_thread((kit.workspace / word).write_text, word)
    await kit.processes.find(name, kit.me).over.wait()
    return name


async def _wait_for_output(kit: CommandKit, name: str) -> None:
    """Wait for unread output."""
    assert isinstance(kit.clock, FakeClock)
    running = kit.processes.find(name, kit.me)
    while not running.process.output:
        await kit.clock.advance(0)
