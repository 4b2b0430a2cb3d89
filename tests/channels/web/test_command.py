"""The command `nanobot web` as a separate process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE
from pathlib import Path

from aiohttp import ClientConnectionError, ClientSession, CookieJar

from nanobot.logs import LOG_FILE
from tests.channels.web.support import Visit
from tests.ports import free_port
from tests.support import PATIENCE, write_config

_TOKEN = re.compile(r'name="form-token" content="([0-9a-f]+)"')


async def test_a_restart_from_the_page_leaves_command_and_page_where_they_were(
    tmp_path: Path,
) -> None:
    port = free_port()
    write_config(tmp_path, {"http": {"port": port}})
    command = (sys.executable, "-m", "nanobot", "--home", str(tmp_path), "web", "--no-open")
    environ = {**os.environ, "NANOBOT_AGENT__SHUTDOWN_GRACE_SECONDS": "0"}
    process = await asyncio.create_subprocess_exec(
        *command, stdout=PIPE, stderr=DEVNULL, env=environ
    )
    assert process.stdout is not None
    try:
        async with (
            asyncio.timeout(PATIENCE),
            ClientSession(cookie_jar=CookieJar(unsafe=True)) as session,
        ):
            link = (await process.stdout.readline()).decode().strip()
            visit = Visit(f"http://127.0.0.1:{port}", session)
            assert (await visit.get(link.removeprefix(visit.base)))[0] == 200
            found = _TOKEN.search((await visit.get("/settings"))[1])
            assert found is not None
            visit.token = found[1]
            status, text = await visit.post("/settings/restart")
            assert (status, "nanobot is restarting" in text) == (200, True)
            # Another process does not report when it is ready.
            while _starts(tmp_path) < 2 or not await _answers(visit):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            assert process.returncode is None
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


def _starts(home: Path) -> int:
    return (home / "logs" / LOG_FILE).read_text("utf-8").count('"message": "ready"')


async def _answers(visit: Visit) -> bool:
    try:
        return (await visit.get("/settings"))[0] == 200
    except ClientConnectionError:
        return False
