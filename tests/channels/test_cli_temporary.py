"""Temporary chats of the terminal between a fake core and fake clients."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from nanobot.errors import NanobotError
from tests.channels.test_cli_channel import Client, Core, end_turn, part, request, running

CHAT = "temporary-0123456789abcdef"
EARLIER = [
    {"role": "user", "text": "an aardvark"},
    {"role": "assistant", "text": "a dugong", "origin": "tool:web_fetch"},
]


async def test_a_message_is_off_the_record_and_its_reply_has_its_origin(tmp_path: Path) -> None:
    core, client = Core(folder=tmp_path), Client()
    async with running(core) as channel:
        asked = request("1", "and?", session=f"cli:{CHAT}", earlier=EARLIER)
        await channel.chat(asked, client)
        ended = replace(end_turn("cli:1"), origin="tool:web_fetch")
        await channel.show_progress(ended)
        await channel.send(replace(part("a fish", "cli:1"), chat_id=CHAT))
    (message,) = core.published
    assert message.origin.off_record
    assert [(one.role, one.text, one.origin) for one in message.origin.context] == [
        ("user", "an aardvark", ""),
        ("assistant", "a dugong", "tool:web_fetch"),
    ]
    assert client.events[-1]["origin"] == "tool:web_fetch"


@pytest.mark.parametrize(
    "fields", [{"earlier": ["?"]}, {"attached": [{"name": "a", "data": "YQ=="}]}]
)
async def test_an_invalid_message_stores_nothing(tmp_path: Path, fields: dict[str, Any]) -> None:
    core = Core(folder=tmp_path)
    async with running(core) as channel:
        with pytest.raises(NanobotError):
            await channel.chat(request("1", session=f"cli:{CHAT}", **fields), Client())
    assert core.published == []
    assert not (tmp_path / "files").exists()


async def test_no_other_terminal_sees_a_temporary_chat(tmp_path: Path) -> None:
    core, other = Core(folder=tmp_path), Client()
    said = replace(part("a dugong"), chat_id=CHAT, is_temporary=True)
    async with running(core) as channel:
        await channel.chat(request("w", "", watch=True, everywhere=True), other)
        await channel.send(said)
    assert other.names == ["accepted"]
    assert not (tmp_path / "unseen.json").exists()
