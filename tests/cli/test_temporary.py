"""Temporary chats in the terminal: only the client has their messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Nanobot
from tests.cli.test_terminal import Chat, chat

__all__ = ["chat"]
pytestmark = pytest.mark.process


def test_a_temporary_chat_sends_its_messages_each_time_and_leaves_no_history(
    chat: Chat, gateway: Any, home: Path
) -> None:
    with chat("--temporary") as screen:
        screen.wait_for("This chat is temporary: nothing of it is stored.")
        screen.wait_for(">")
        for text in ("one", "/status", "two"):
            screen.type(f"{text}\r")
            screen.wait_for(f"echo: {text}")
        screen.type("hang on\r")
        screen.wait_for("so far")
        screen.type("three\r")
        screen.wait_for("Wait for the answer")
        screen.type("/stop\r")
        screen.wait_for("stopped")
        screen.wait_for("context 31 %")  # the line below the prompt of a chat at rest
        screen.type("/new\r")
        screen.wait_for("New conversation.")
        screen.type("four\r")
        screen.wait_for("echo: four")
    one = [
        {"role": "user", "text": "one"},
        {"role": "assistant", "text": "echo: one", "origin": ""},
    ]
    two = [
        {"role": "user", "text": "two"},
        {"role": "assistant", "text": "echo: two", "origin": ""},
    ]
    assert gateway.earlier[:4] == [[], one, one, [*one, *two]]
    assert gateway.earlier[-1] == []
    (key, _), *_, (new, _) = gateway.said
    assert re.fullmatch("cli:temporary-[0-9a-f]{16}", key)
    assert re.fullmatch(r"cli:\d{6}-\d{4}", new)
    assert not (home / "state" / "cli_history").exists()


def test_a_script_can_have_one_too(here: Nanobot, gateway: Any) -> None:
    assert here("agent", "--temporary", stdin="one\ntwo\n").stdout == "echo: one\necho: two\n"
    assert list(map(len, gateway.earlier)) == [0, 2]
    assert len({key for key, _ in gateway.said}) == 1
    assert here("agent", "--temporary", "--continue").returncode == 2
