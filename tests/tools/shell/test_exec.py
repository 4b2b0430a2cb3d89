"""exec: commands in the foreground."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from nanobot.testing import FakeClock
from nanobot.tooling.registry import MAX_RESULT
from tests.tools.shell.conftest import ProcessWatch

if TYPE_CHECKING:
    from tests.tools.shell.conftest import CommandKit, NewDesk


async def test_what_a_command_prints_comes_back_in_order_with_its_exit_code(
    kit: CommandKit,
) -> None:
    said = await kit.says("exec", command="echo one; echo two >&2; printf three; exit 3")
    assert said == "one\ntwo\nthree\n[exit code 3]"
    silent = await kit.call("exec", command="true")
    assert silent.text == "(no output)\n[exit code 0]"


async def test_output_is_data_and_silence_is_not(kit: CommandKit) -> None:
    assert not (await kit.call("exec", command="echo do as I say")).trusted
    assert (await kit.call("exec", command="true")).trusted


async def test_a_command_runs_in_a_folder_of_the_workspace_and_nowhere_else(
    kit: CommandKit,
) -> None:
    (kit.workspace / "sub").mkdir()
    (kit.workspace / "way_out").symlink_to("/")
    whole = str(kit.workspace / "sub")
    assert (await kit.says("exec", command="pwd")).startswith(f"{kit.workspace}\n")
    assert (await kit.says("exec", command="pwd", cwd="sub")).startswith(f"{whole}\n")
    assert (await kit.says("exec", command="pwd", cwd=whole)).startswith(f"{whole}\n")
    for cwd in ("..", "/", "way_out", "sub/../..", "no", f"{kit.workspace}x"):
        await kit.complains("exec", command="pwd", cwd=cwd)


async def test_whoever_watches_sees_the_output_before_the_command_ends(kit: CommandKit) -> None:
    os.mkfifo(kit.workspace / "more")
    running = kit.begin(command="echo first; cat more")
    await kit.watched.until("first\n")
    await asyncio.to_thread((kit.workspace / "more").write_text, "second\n")
    assert (await running).text == "first\nsecond\n[exit code 0]"


async def test_a_time_limit_kills_all_of_it_and_calls_the_outcome_unknown(
    new_desk: NewDesk,
) -> None:
    kit = new_desk(clock := FakeClock())
    life = ProcessWatch(kit.workspace)
    running = kit.begin(command=f"{life.holding} sleep 900 & sleep 900", timeout=7)
    await kit.watched.until("ready")
    await clock.advance(7)
    await life.over()
    result = await running
    assert result.is_error
    assert result.text.startswith(
        "ready\n[timed out after 7 seconds and was killed. The outcome is unk"
    )


async def test_what_does_not_heed_the_request_to_end_is_killed(new_desk: NewDesk) -> None:
    kit = new_desk(clock := FakeClock())
    life = ProcessWatch(kit.workspace)
    running = kit.begin(command=f"trap '' TERM; {life.holding} sleep 900", timeout=7)
    await kit.watched.until("ready")
    await clock.advance(7)
    await clock.until_sleeping()
    assert not running.done()
    await clock.advance(2)
    await life.over()
    assert "timed out" in (await running).text


async def test_a_stopped_turn_leaves_nothing_of_its_command(kit: CommandKit) -> None:
    life = ProcessWatch(kit.workspace)
    running = kit.begin(command=f"{life.holding} sleep 900 & sleep 900")
    await kit.watched.until("ready")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await life.over()


async def test_what_a_command_leaves_behind_ends_with_it(kit: CommandKit) -> None:
    life = ProcessWatch(kit.workspace)
    assert "exit code 0" in await kit.says("exec", command=f"{life.holding} sleep 900 &")
    await life.over()


async def test_a_flood_is_kept_by_its_beginning_and_its_end(kit: CommandKit) -> None:
    said = await kit.says("exec", command="echo begin; head -c 3000000 /dev/zero | tr '\\0' x;"
                           " echo; echo end")  # fmt: skip
    assert said.startswith("begin\nxxx")
    assert said.endswith("xxx\nend\n[exit code 0]")
    assert "characters omitted" in said
    assert len(said) <= MAX_RESULT
    assert len(kit.watched.text) < 10_000


async def test_a_command_that_cannot_be_is_refused_before_anybody_is_asked(kit: CommandKit) -> None:
    assert "is empty" in await kit.complains("exec", command=" \n")
    for command in ("x" * 100_001, "ä" * 50_001, "echo \0", "echo \ud800"):
        assert "write_file" in await kit.complains("exec", command=command)
    assert "background=true" in await kit.complains("exec", command="true", timeout=601)


async def test_the_end_of_a_signal_is_named(kit: CommandKit) -> None:
    assert "[killed by SIGSEGV]" in await kit.says("exec", command="kill -SEGV $$")
