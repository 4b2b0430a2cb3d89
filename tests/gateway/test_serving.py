"""Requests that arrive while channels start."""

from __future__ import annotations

import asyncio
from pathlib import Path

import aiohttp

from nanobot.app.gateway import Gateway
from nanobot.channel import ChannelHost, PathServer, WebhookReply, WebhookRequest
from nanobot.config.load import load_settings
from nanobot.providers.offline.model import OfflineModel
from nanobot.testing import FakeChannel
from nanobot_api.channel import ApiChannel
from nanobot_telegram.channel import TelegramChannel
from nanobot_telegram.settings import TelegramSettings
from tests.ports import free_port
from tests.support import write_config


class WebhookChannel(FakeChannel):
    """A channel with a webhook once it `may_serve`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.paths = (f"/{name}",)
        self.may_serve, self.url = asyncio.Event(), asyncio.Queue[str]()

    async def run(self, host: ChannelHost) -> None:
        """Wait, then serve."""
        await self.may_serve.wait()
        async with host.serve_webhook(self.paths[0], self._handle) as url:
            await self.url.put(url)
            await super().run(host)

    async def _handle(self, _: WebhookRequest) -> WebhookReply:
        return WebhookReply(200)


async def test_a_webhook_that_comes_before_its_channel_serves_is_to_come_again(
    tmp_path: Path,
) -> None:
    write_config(tmp_path, {"http": {"port": free_port()}})
    first, second = WebhookChannel("first"), WebhookChannel("second")
    gateway = Gateway(
        load_settings(tmp_path, {}), provider=OfflineModel(), channels=(first, second), chores=False
    )
    running = asyncio.create_task(gateway.run(signals=False))
    first.may_serve.set()
    base = (await first.url.get()).removesuffix("/first")
    async with aiohttp.ClientSession() as client:
        async with client.post(f"{base}/second") as early:
            assert (early.status, early.headers["Retry-After"]) == (503, "5")
        async with client.post(f"{base}/third") as unknown:
            assert unknown.status == 404
        second.may_serve.set()
        await second.url.get()
        async with client.post(f"{base}/second") as taken:
            assert taken.status == 200
    gateway.request_stop()
    assert await running == 0


def test_channels_with_webhooks_and_the_api_name_their_paths() -> None:
    api, webhook = ApiChannel(), {"webhook_url": "https://a.example.org/tg"}
    assert isinstance(api, PathServer)
    assert "/v1" in api.paths
    telegram = TelegramChannel(TelegramSettings(token="1:a", **webhook))  # type: ignore[arg-type]
    assert isinstance(telegram, PathServer)
    assert telegram.paths == ("/tg",)
