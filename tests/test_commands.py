"""The distinction between commands and other texts."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace

from nanobot.commands import Answer, Command, CommandCall, CommandRegistry, parse
from nanobot.session.manager import SessionManager
from nanobot.testing import FakeClock
from tests.bus.support import HELLO


async def nothing(_: CommandCall) -> Answer:
    return Answer("")


REGISTRY = CommandRegistry(
    Command(name, "", nothing) for name in ("help", "history", "stop", "dream-log")
)


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("/help", ("help", "")),
        ("  /Help \n", ("help", "")),
        ("/history 5", ("history", "5")),
        ("/history   5  6 ", ("history", "5  6")),
        ("/history\n5\n6", ("history", "5\n6")),
        ("/history@nanobot_bot 5", ("history", "5")),
        ("/dream-log", ("dream-log", "")),
        ("/dream_log", ("dream-log", "")),
        ("/nope", ("nope", "")),
    ],
)
def test_a_text_that_begins_with_a_slash_and_a_name_is_a_command(
    text: str, parsed: tuple[str, str]
) -> None:
    assert parse(text) == parsed


@pytest.mark.parametrize(
    "text",
    ["", " ", "/", "//", "/ help", "/@bot", "/-", "/etc/hosts", "/etc/hosts is gone", "/a.b",
     "help", "see /help", "\\/help"],
)  # fmt: skip
def test_everything_else_is_a_message(text: str) -> None:
    assert parse(text) is None
    assert REGISTRY.match(text) is None


def test_a_command_is_found_with_its_arguments() -> None:
    match = REGISTRY.match("/history 5")
    assert match is not None
    assert (match[0].name, match[1]) == ("history", "5")


@pytest.mark.parametrize(
    ("text", "hint"),
    [("/histroy 5", "Did you mean /history?"), ("/xyz", "list all commands, send /help")],
)
async def test_an_unknown_command_is_answered_with_the_nearest_one(
    text: str, hint: str, tmp_path: Path
) -> None:
    match = REGISTRY.match(text)
    assert match is not None
    session = await SessionManager(tmp_path, FakeClock()).get_or_create("fake:1")
    answer = await match[0].run(CommandCall(match[1], HELLO, session, "owner", 1))
    assert f"no command {text.partition(' ')[0]}" in answer.text
    assert hint in answer.text


def test_a_forwarded_text_calls_no_command() -> None:
    message = replace(HELLO, content="/stop")
    assert REGISTRY.find_call(message) is not None
    assert REGISTRY.find_call(replace(message, forwarded_from="someone")) is None


async def test_a_command_for_the_owner_is_refused_to_others(tmp_path: Path) -> None:
    async def restarts(_: CommandCall) -> Answer:
        return Answer("done")

    registry = CommandRegistry(
        [Command("restart", "", restarts, allowed="owner")],
        is_owner=lambda _, sender: sender == "owner",
    )
    session = await SessionManager(tmp_path, FakeClock()).get_or_create("fake:1")
    for sender, text in (("owner", "done"), ("guest", "/restart is for this nanobot's owner only")):
        match = registry.find_call(replace(HELLO, content="/restart", sender_id=sender))
        assert match is not None
        answer = await match[0].run(CommandCall(match[1], HELLO, session, "owner", 1))
        assert answer.text.startswith(text)


def test_a_registered_command_is_found_and_listed() -> None:
    registry = CommandRegistry()
    assert list(registry) == []
    registry.register(Command("new", "", nothing))
    assert [command.name for command in registry] == ["new"]
    assert registry.match("/new") is not None
