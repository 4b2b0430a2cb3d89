"""Clients for the tests of `FakeTelegram`: raw HTTP, and a library that speaks the Bot API."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from telegram import Bot, Message, Update
from telegram.request import HTTPXRequest

from tests.doubles.telegram.server import FakeTelegram

_PLAIN = {"trust_env": False, "verify": False}
"""No proxies; certificates, of which there are none, are slow to load."""


@dataclass(frozen=True, slots=True)
class Answered:
    """A status with the JSON that came with it."""

    status: int
    body: Mapping[str, Any]

    @property
    def result(self) -> Any:
        assert self.body["ok"] is True, self.body
        return self.body["result"]

    @property
    def ids(self) -> list[int]:
        """The ids of the updates that a poll got."""
        return [update["update_id"] for update in self.result]

    @property
    def error(self) -> tuple[int, str]:
        assert self.body["ok"] is False, self.body
        return self.status, self.body["description"]


class Api:
    """Calls methods with JSON bodies."""

    def __init__(self, telegram: FakeTelegram, client: aiohttp.ClientSession) -> None:
        self._telegram = telegram
        self.client = client

    def url(self, method: str, token: str = "") -> str:
        return f"{self._telegram.base_url}/bot{token or self._telegram.token}/{method}"

    async def __call__(self, method: str, **params: object) -> Answered:
        return await self.post(method, json=params)

    async def post(self, method: str, token: str = "", **body: Any) -> Answered:
        """With any kind of body: `json`, `data`, `params`."""
        async with self.client.post(self.url(method, token), **body) as answer:
            return Answered(answer.status, await answer.json())

    async def say(self, text: str = "Hello", chat: int = 7, **fields: object) -> int:
        """Send a text as the bot; its message id."""
        answered = await self("sendMessage", chat_id=chat, text=text, **fields)
        return int(answered.result["message_id"])


def library(telegram: FakeTelegram) -> Bot:
    """A bot as plugin authors make one."""
    return Bot(
        telegram.token,
        base_url=f"{telegram.base_url}/bot",
        base_file_url=f"{telegram.base_url}/file/bot",
        request=HTTPXRequest(httpx_kwargs=_PLAIN),
        get_updates_request=HTTPXRequest(httpx_kwargs=_PLAIN),
    )


async def newest(bot: Bot) -> Update:
    """The newest update as the library reads it."""
    [update] = await bot.get_updates(offset=-1)
    return update


async def heard(bot: Bot) -> Message:
    """The newest message."""
    message = (await newest(bot)).message
    assert message is not None
    return message
