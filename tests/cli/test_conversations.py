"""The conversations of a person at a real terminal, with the real gateway and the offline model."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from nanobot.session.records import stem_of
from tests.cli.test_terminal import Screen
from tests.files import files_with

pytestmark = pytest.mark.process

_SETTINGS = "model:\n  provider: offline\ntools: {exec: {sandbox: none}}\n"

Begin = Callable[..., AbstractContextManager[Screen]]


@pytest.fixture
def begin(home: Path, environment: dict[str, str], tmp_path: Path) -> Begin:
    """Start `nanobot agent`, which hosts the gateway, in a project's folder."""
    home.mkdir(mode=0o700)
    (home / "config.yaml").write_text(_SETTINGS)
    (home / "config.yaml").chmod(0o600)
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "tea.txt").write_text("oolong\n")
    shown = {"TERM": "xterm", "COLUMNS": "80", "LINES": "24"}

    @contextmanager
    def start(*arguments: str) -> Iterator[Screen]:
        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [sys.executable, "-m", "nanobot", "agent", *arguments],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
            env=environment | shown, cwd=folder,
        )  # fmt: skip
        os.close(theirs)
        try:
            screen = Screen(ours, process)
            yield screen
            screen.type("\x04")
            screen.end()
        finally:
            process.kill()
            process.wait()
            os.close(ours)

    return start


def say(screen: Screen, text: str, answer: str) -> None:
    screen.type(f"{text}\r")
    screen.wait_for(answer)
    screen.wait_for(">")


def contents(home: Path, key: str) -> list[dict[str, Any]]:
    lines = (home / "sessions" / f"{stem_of(key)}.jsonl").read_text().splitlines()
    return [one for one in map(json.loads, lines) if "role" in one]


def test_an_old_conversation_is_found_by_a_word_in_it_and_goes_on(begin: Begin, home: Path) -> None:
    with begin() as screen:
        screen.wait_for(">")
        say(screen, "remember that my boat is called Zephyrine", "Zephyrine.")
        screen.type("/new\r")
        screen.wait_for("New conversation.")
        say(screen, "hello there", "Hello!")
    with begin("--resume", "zephyrine") as screen:
        screen.wait_for("my boat is called Zephyrine")
        screen.type("\r")
        screen.wait_for("continuing: ")
        say(screen, "hello again", "Hello!")
    told = [one["content"] for one in contents(home, "cli:direct") if one["role"] == "user"]
    assert told == ["remember that my boat is called Zephyrine", "hello again"]


def test_a_temporary_chat_leaves_no_word_in_any_file(begin: Begin, home: Path) -> None:
    with begin("--temporary") as screen:
        screen.wait_for("nothing of it is stored")
        screen.wait_for(">")
        screen.type("an aardvark\r")
        screen.wait_for("Try “help”.")
    assert files_with(home, "aardvark") == []
    assert not list((home / "sessions").glob("*"))


def test_a_file_and_the_output_of_a_command_reach_the_conversation(
    begin: Begin, home: Path
) -> None:
    with begin() as screen:
        screen.wait_for(">")
        screen.type("!echo one two\r")
        screen.wait_for("exit code 0")
        say(screen, "read @tea.txt", "Try")
    ran, read, _ = contents(home, "cli:direct")
    assert ran["content"] == "$ echo one two\n```\none two\n[exit code 0]\n```"
    assert ran["origin"] == "tool:exec"
    (file,) = read["media"]
    assert (file["name"], file["size"]) == ("tea.txt", 7)
    assert (home / "media" / file["file"]).read_text() == "oolong\n"
    assert not list((home / "state" / "channels" / "cli" / "files").iterdir())
