"""A running `FakeTelegram` with a client; tests of its rules share neither."""

from __future__ import annotations

from collections.abc import AsyncIterator

import aiohttp
import pytest
from telegram import Bot

from tests.doubles.telegram.server import FakeTelegram
from tests.testing.telegram_support import Api, library


@pytest.fixture
async def telegram() -> AsyncIterator[FakeTelegram]:
    async with FakeTelegram() as server:
        yield server


@pytest.fixture
async def api(telegram: FakeTelegram) -> AsyncIterator[Api]:
    async with aiohttp.ClientSession() as client:
        yield Api(telegram, client)


@pytest.fixture
async def bot(telegram: FakeTelegram) -> AsyncIterator[Bot]:
    async with library(telegram) as client:
        yield client
