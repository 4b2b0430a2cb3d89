"""The messages that only the page keeps."""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType, SimpleNamespace

from nanobot.bus.events import OutboundPart
from nanobot.clock import SystemClock
from nanobot_web.channel import WebChannel
from nanobot_web.extras import Extras


async def test_the_extras_of_a_deleted_chat_go_with_it(tmp_path: Path) -> None:
    overview = SimpleNamespace(operations=MappingProxyType({}))
    extras = Extras(tmp_path)
    for chat in ("1", "2"):
        part = OutboundPart(f"x/{chat}", "web", chat, f"the zebra of {chat}")
        await extras.keep(part, SystemClock().now(), overview)
    await WebChannel().forget_chat(tmp_path, "web:1")
    assert [one.text for one in extras.of("web:1")] == []
    assert [one.text for one in extras.of("web:2")] == ["the zebra of 2"]
    assert "zebra of 1" not in (tmp_path / "extras.json").read_text()
