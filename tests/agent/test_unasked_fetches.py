"""Fetches of a whole nanobot without approval, after untrusted content."""

from __future__ import annotations

from pathlib import Path

from nanobot.testing import ScriptedModel, calls, says
from nanobot.testing.channel import FakeChannel
from nanobot.tools.web.fetch import MOST_UNASKED
from tests.doubles.web import FakeWeb
from tests.support import running


async def test_after_new_as_many_addresses_are_fetched_unasked_and_pages_are_read_again(
    tmp_path: Path,
) -> None:
    channel = FakeChannel()
    async with FakeWeb() as web:
        urls = [
            web.put(f"/{number}", f"page {number}", "text/plain") for number in range(MOST_UNASKED)
        ]
        fetches = [calls("web_fetch", url=url) for url in urls]
        model = ScriptedModel(*([*fetches, says("done")] * 2))
        hosts = f'["{web.place}"]'
        async with running(tmp_path, model, channel, NANOBOT_TOOLS__WEB__ALLOW_HOSTS=hosts):
            for _ in range(2):
                await channel.ask(f"read {' '.join(urls)}")
                await channel.ask("/new")
    asked = [request.target for request in web.requests]
    assert asked == [f"/{number}" for number in range(MOST_UNASKED)] * 2
