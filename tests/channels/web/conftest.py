"""A real Chromium for the tests of the page: one process for all of them."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator

import pytest
from playwright.async_api import Browser, async_playwright

_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--remote-debugging-port=0",
)  # fmt: skip


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """Where the browser is reached by those who drive it."""
    program = shutil.which("chromium") or shutil.which("chromium-browser")
    if program is None:
        pytest.skip("there is no Chromium (Debian's package is called chromium)")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [program, *_QUIET, f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        try:
            lines = (line for line in process.stderr if "DevTools listening on" in line)
            if not (line := next(lines, "")):  # such as Ubuntu's, which asks for a snap
                pytest.skip(f"{program} does not start")
            yield line.rpartition(" ")[2].strip()
        finally:
            process.kill()
            process.wait()
            process.stderr.close()


@pytest.fixture
async def browser(chromium: str) -> AsyncIterator[Browser]:
    """The browser; each context in it is a person's of its own."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chromium)
        yield browser
        for context in browser.contexts[1:]:
            await context.close()
