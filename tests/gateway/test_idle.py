"""A gateway loads its page, its API and their libraries only on first use."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from nanobot.app.gateway import Gateway
from nanobot.channel import Operation, Overview
from nanobot.config.load import load_settings
from nanobot.testing.channel import FakeChannel

_IDLE = """
import asyncio, sys
from pathlib import Path
from nanobot.app.gateway import Gateway
from nanobot.config.load import load_settings

gateway = Gateway(load_settings(Path(sys.argv[1]), {}))
asyncio.run(gateway.run(on_ready=gateway.request_stop))
print(*sys.modules)
"""
ASLEEP = {
    "aiohttp", "jinja2", "markupsafe", "markdown_it", "mcp", "openai", "httpx", "httpx2", "anyio",
    "numpy", "cryptography", "telegram", "prometheus_client", "segno", "psycopg",
    "nanobot_web.site", "nanobot_web.live", "nanobot_web.pages", "nanobot_web.markdown",
    "nanobot_api", "nanobot_telegram", "nanobot_whatsapp", "nanobot.team",
    "nanobot.providers.speech", "nanobot.providers.discovery", "nanobot.providers.known_servers",
    "nanobot_web.sessions", "nanobot.memory.service.page", "nanobot.memory.dream.run",
    "nanobot.gateway.conversations", "nanobot.gateway.operations",
    "nanobot.config.changes", "nanobot.cron.words", "difflib",
    "nanobot.upkeep.snapshot",
    "nanobot.app.sign_in", "nanobot.security.confine.stage",
    "nanobot.security.confine.autorun",
    "nanobot.security.confine.tree",
    "yaml",  # without config.yaml
}  # fmt: skip


def test_an_idle_gateway_has_loaded_nothing_for_those_who_might_look(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _IDLE, str(tmp_path)],
        env={**os.environ, "NANOBOT_HOME": str(tmp_path)},
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "nanobot_web.channel" in loaded
    assert not loaded & ASLEEP


class _Onlooker(FakeChannel):
    """An `Overseer`."""

    overview: Overview

    def oversee(self, overview: Overview) -> Mapping[str, Operation]:
        self.overview = overview
        return {}


@pytest.mark.parametrize(
    "name",
    [
        "conversations.list", "turns.list", "figures", "audit.list", "memory.facts", "config.show",
        "backup.snapshot", "backup.list", "models", "commands",
    ],
)  # fmt: skip
async def test_what_is_loaded_at_the_first_call_answers(tmp_path: Path, name: str) -> None:
    channel = _Onlooker()
    gateway = Gateway(load_settings(tmp_path, {}), channels=(channel,), chores=False)
    ready = asyncio.Event()
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(gateway.run(on_ready=ready.set, signals=False))
        await ready.wait()
        try:
            assert await channel.overview.operations[name]({}) is not None
        finally:
            gateway.request_stop()
