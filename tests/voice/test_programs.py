"""A program gets one file and limited time, and nothing of it is left."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from nanobot.security.sandbox import FoundSandbox, SandboxFinder
from nanobot.voice import VoiceFailed
from nanobot.voice.engines import ProgramSpeaker
from nanobot.voice.programs import Program, Programs, fill_placeholders


async def speak(
    programs: Programs, *command: str, seconds: float = 60.0, megabytes: int = 512
) -> bytes:
    program = Program(command, seconds=seconds, memory_megabytes=megabytes)
    return await ProgramSpeaker(programs, program).speak("hello")


def narrow(home: Path) -> Programs:
    """The runner with little disk space."""
    return Programs(SandboxFinder("auto", home), home / "state" / "voice", megabytes=20)


def list_left(home: Path) -> list[Path]:
    folder = home / "state" / "voice"
    return list(folder.iterdir()) if folder.exists() else []


async def test_it_reads_the_text_and_prints_or_writes_the_sound(
    programs: Programs, home: Path
) -> None:
    assert await speak(programs, "cat") == b"hello"
    assert await speak(programs, "cp", "{input}", "{output}") == b"hello"
    assert await speak(programs, "sh", "-c", "cat > {output}; echo done") == b"hello"
    assert list_left(home) == []


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        (("false",), "exited with code 1"),
        (("sh", "-c", "echo first >&2; echo no such voice >&2; exit 3"), "code 3: no such voice"),
        (("no-such-program",), "cannot run no-such-program"),
        (("sh", "-c", "kill -SEGV $$"), "SIGSEGV"),
        (("sh", "-c", ": {output}"), "produced no output"),
        (("ln", "-s", "/etc/passwd", "{output}"), "links are not followed"),
        (("mkfifo", "{output}"), "not a plain file"),
        (("mkdir", "{output}"), "is a folder"),
        (("head", "-c", "30000000", "/dev/zero"), "File too large|too large a file"),
        (("sh", "-c", "head -c 30000000 /dev/zero > {output}"), "File too large|too large a file"),
    ],
)
async def test_what_goes_wrong_is_said_in_a_line(
    home: Path, command: tuple[str, ...], reason: str
) -> None:
    with pytest.raises(VoiceFailed, match=reason):
        await speak(narrow(home), *command)
    assert list_left(home) == []


async def test_one_that_hangs_is_ended_with_all_that_it_started(
    programs: Programs, home: Path
) -> None:
    hanging = "trap '' TERM; (setsid sleep 987654) & sleep 987654"
    with pytest.raises(VoiceFailed, match=r"sh took longer than 0\.5 seconds") as failed:
        await speak(programs, "sh", "-c", hanging, seconds=0.5)
    assert "Use a smaller model" in failed.value.hint
    assert list_left(home) == []
    for _ in range(100):
        if not await asyncio.to_thread(_run_of, "987654"):
            return
        await asyncio.to_thread(_pause)
    raise AssertionError("something of it still runs")


def _run_of(word: str) -> list[str]:
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode())
        except OSError:
            continue
    return [line for line in lines if line.startswith("sleep") and word in line]


def _pause() -> None:
    import threading

    threading.Event().wait(0.05)


async def test_one_that_fills_the_disk_file_by_file_is_ended(home: Path) -> None:
    filling = 'cd "$TMPDIR"; i=0; while :; do head -c 900000 /dev/zero > $i; i=$((i+1)); done'
    with pytest.raises(VoiceFailed, match="wrote more than 20 MB"):
        await speak(narrow(home), "sh", "-c", filling)
    assert list_left(home) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root's processes are not limited")
async def test_one_that_multiplies_is_ended(programs: Programs, home: Path) -> None:
    forking = "f() { f | f & }; f; sleep 30"
    with pytest.raises(VoiceFailed):
        await speak(programs, "sh", "-c", forking, seconds=20)
    assert list_left(home) == []
    assert await speak(programs, "cat") == b"hello"


async def test_it_sees_nothing_of_nanobot_and_has_no_network(
    programs: Programs, home: Path
) -> None:
    looking = (
        f"cat {home}/secrets.env {home}/config.yaml; ls {home}; echo x > {home}/state/made;"
        ' cat /etc/shadow; echo "$HOME $KEY"; exit 0'
    )
    seen = (await speak(programs, "sh", "-c", looking)).decode()
    assert "canary" not in seen
    assert "secrets.env" not in seen
    assert f"{home}/state/voice/" in seen
    assert not (home / "state" / "made").exists()
    calling = "import socket; socket.create_connection(('127.0.0.1', 9), 2)"
    with pytest.raises(VoiceFailed, match=r"PermissionError|Network is unreachable|refused"):
        await speak(programs, "/usr/bin/python3", "-c", calling)


async def test_it_reads_the_model_that_its_command_names_and_writes_it_not(
    programs: Programs, disk_path: Path
) -> None:
    model = disk_path / "models" / "voice.bin"
    model.parent.mkdir()
    model.write_text("model")
    beside = model.with_name("other.bin")
    beside.write_text("other")
    assert await speak(programs, "cat", str(model)) == b"model"
    with pytest.raises(VoiceFailed):
        await speak(programs, "sh", "-c", f"cat {beside}")
    reading = Program(("sh", "-c", f"cat {beside}"), read=(model.parent,))
    assert await ProgramSpeaker(programs, reading).speak("x") == b"other"
    with pytest.raises(VoiceFailed):
        await speak(programs, "sh", "-c", 'echo > "$1"', "sh", str(model))
    assert model.read_text() == "model"


async def test_a_python_environment_comes_with_the_python_that_it_was_made_from(
    programs: Programs, disk_path: Path
) -> None:
    base, folder = disk_path / "base", disk_path / "environment"
    (base / "bin").mkdir(parents=True)
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text("")
    (base / "bin" / "python3").write_text(f"#!/bin/sh\ncat {base}/library\n")
    (base / "bin" / "python3").chmod(0o755)
    (base / "library").write_text("standard library")
    (folder / "bin" / "python").symlink_to(base / "bin" / "python3")
    assert await speak(programs, str(folder / "bin" / "python")) == b"standard library"


async def test_without_a_sandbox_nothing_runs_unless_the_owner_says_so(home: Path) -> None:
    async def none() -> FoundSandbox:
        return FoundSandbox(None, "install bubblewrap")

    programs = Programs(none, home / "state" / "voice")
    with pytest.raises(VoiceFailed, match="no sandbox to run cat") as failed:
        await speak(programs, "cat")
    assert failed.value.hint == "install bubblewrap"
    open_one = Program(("cat",), sandboxed=False)
    assert await ProgramSpeaker(programs, open_one).speak("hello") == b"hello"


async def test_what_a_killed_process_left_is_cleared_away_and_nothing_that_is_in_use(
    programs: Programs, home: Path
) -> None:
    old = home / "state" / "voice" / "tmpold"
    old.mkdir(parents=True)
    for number in range(2_000):
        (old / f"{number}.ogg").write_text("somebody's words")
    one, other = await asyncio.gather(speak(programs, "cat"), speak(programs, "cat"))
    assert one == other == b"hello"
    assert list_left(home) == []


def test_only_known_placeholders_are_replaced() -> None:
    command = ["a", "--in={input}", "{other}", '{"json": "{output}"}']
    places = {"input": "/x", "output": "/y"}
    assert fill_placeholders(command, places) == ["a", "--in=/x", "{other}", '{"json": "/y"}']


async def test_a_folder_that_is_locked_is_cleared_away_and_nothing_that_a_link_leads_to(
    home: Path, disk_path: Path
) -> None:
    kept = disk_path / "kept"
    kept.mkdir(mode=0o755)
    (kept / "file").write_text("mine")
    programs = Programs(SandboxFinder("auto", home), home / "state" / "voice")
    locking = f'cd "$TMPDIR"; mkdir -p a/b; ln -s {kept} a/link; chmod 0 a/b; chmod 0 a; echo ok'
    program = Program(("sh", "-c", locking), sandboxed=False)
    assert await ProgramSpeaker(programs, program).speak("x") == b"ok\n"
    assert list_left(home) == []
    assert (kept / "file").read_text() == "mine"
    assert kept.stat().st_mode & 0o777 == 0o755


async def test_who_finds_no_place_in_time_does_without(home: Path) -> None:
    programs = Programs(SandboxFinder("auto", home), home / "state" / "voice", at_once=1)
    async with asyncio.TaskGroup() as tasks:
        hanging = tasks.create_task(speak(programs, "sh", "-c", "cat; exec sleep 987653"))
        await asyncio.sleep(0)
        with pytest.raises(VoiceFailed, match="too many speech programs"):
            await speak(programs, "cat", seconds=0.1)
        hanging.cancel()
    assert await speak(programs, "cat") == b"hello"
    assert list_left(home) == []
