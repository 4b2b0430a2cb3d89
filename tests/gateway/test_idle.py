"""While nobody looks, a gateway has loaded nothing of its page, its API and what they stand on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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
    "numpy", "cryptography", "telegram", "prometheus_client", "segno",
    "nanobot_web.site", "nanobot_web.live", "nanobot_web.pages", "nanobot_web.markdown",
    "nanobot_api", "nanobot_telegram", "nanobot_whatsapp",
    "nanobot.providers.transcription",
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
