"""nanobot offers to move a key that the owner types to secrets.env and to remove all copies."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from nanobot.bus.events import OutboundPart
from nanobot.config.load import parse_env_file
from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from tests.files import files_with
from tests.support import running

KEY = "sk-proj-" + "aB3dE5" * 6
OTHER = "ghp_" + "z9" * 18
PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\n{}-----END OPENSSH PRIVATE KEY-----".format(
    ("b3BlbnNzaC1rZXktdjEAAAAABG5vbmU" * 2 + "\n") * 4
)
OWNER = "owner:\n  fake: ['1']\n"


def holding(home: Path, text: str) -> list[str]:
    """Return the files of a home that contain a text, whole or line by line."""
    lines = [line for line in text.splitlines() if not line.startswith("-----")]
    return [path.name for path in files_with(home, *lines)]


def set_up(home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text(OWNER)


async def get_offer(channel: FakeChannel, text: str) -> OutboundPart:
    """Return the offer after a message of the owner."""
    await channel.answer_to(await channel.say(text, sender_id="1"))
    return await channel.next_with_buttons()


@pytest.mark.parametrize(("key", "name"), [(KEY, "OPENAI_API_KEY"), (PRIVATE, "PRIVATE_KEY")])
async def test_what_is_moved_stands_in_secrets_env_and_nowhere_else(
    tmp_path: Path, key: str, name: str
) -> None:
    set_up(tmp_path)
    channel = FakeChannel()
    model = ScriptedModel(calls("note", text=f"the key is {key}"), says(f"noted {key}"), says("?"))
    async with running(tmp_path, model, channel):
        offer = await get_offer(channel, f"here is my key: {key}")
        assert key[:9] not in offer.content
        assert holding(tmp_path, key)
        moved = offer.buttons[0].value
        told = await channel.answer_to(await channel.say(moved, sender_id="1"))
        await channel.answer_to(await channel.say("and now?", sender_id="1"))
    secrets = tmp_path / "secrets.env"
    assert parse_env_file(secrets.read_text()) == {name: key.replace("\n", "\\n")}
    assert stat.S_IMODE(secrets.stat().st_mode) == 0o600
    assert f"Moved to secrets.env: {name}." in told
    assert "still stands" not in told
    assert holding(tmp_path, key) == ["secrets.env"]
    assert "here is my key: [erased]" in model.prompts[-1].messages[1].text


async def test_other_entries_stay_and_a_name_that_is_taken_gets_a_number(tmp_path: Path) -> None:
    set_up(tmp_path)
    (tmp_path / "secrets.env").write_text("# mine\nGITHUB_TOKEN=another\n")
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("I see")), channel):
        await get_offer(channel, f"use {OTHER}")
    async with running(tmp_path, ScriptedModel(), channel):  # a restart loses no offer
        for told in ("Moved to secrets.env: GITHUB_TOKEN_2.", "Your messages in"):
            event = await channel.say("/secret move", sender_id="1")
            assert (await channel.answer_to(event)).startswith(told)
    text = (tmp_path / "secrets.env").read_text()
    assert text == f"# mine\nGITHUB_TOKEN=another\nGITHUB_TOKEN_2={OTHER}\n"


async def test_a_no_changes_nothing(tmp_path: Path) -> None:
    set_up(tmp_path)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("I see")), channel):
        offer = await get_offer(channel, f"use {OTHER}")
        event = await channel.say(offer.buttons[1].value, sender_id="1")
        assert await channel.answer_to(event) == "The key was not moved."
    assert not (tmp_path / "secrets.env").exists()
    assert holding(tmp_path, OTHER)


async def test_where_secrets_env_cannot_be_written_nothing_is_struck(tmp_path: Path) -> None:
    set_up(tmp_path)
    channel = FakeChannel()
    async with running(tmp_path, ScriptedModel(says("I see")), channel):
        await get_offer(channel, f"use {OTHER}")
        (tmp_path / "secrets.env").mkdir()
        told = await channel.answer_to(await channel.say("/secret move", sender_id="1"))
    assert "cannot be changed" in told
    assert "Nothing was removed" in told
    assert holding(tmp_path, OTHER)


async def test_nobody_else_is_asked_and_nobody_else_moves_anything(tmp_path: Path) -> None:
    set_up(tmp_path)
    channel = FakeChannel()
    model = ScriptedModel(says("one"), says("two"), says("three"))
    async with running(tmp_path, model, channel):
        await channel.answer_to(await channel.say(f"mine: {KEY}", "2", sender_id="2"), "2")
        event = await channel.say("/secret move", "2", sender_id="2")
        assert "owner" in await channel.answer_to(event, "2")
        forwarded = await channel.say(f"look: {KEY}", sender_id="1", forwarded_from="Bob")
        await channel.answer_to(forwarded)
        await channel.answer_to(await channel.say("what is a key?", sender_id="1"))
    assert not any(part.buttons for part in channel.sent)
    assert not (tmp_path / "secrets.env").exists()
