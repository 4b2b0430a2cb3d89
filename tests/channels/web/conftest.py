"""A real Chromium for the tests of the page: one browser and one driver for all tests of a worker.
The driver takes a second to start and belongs to a loop, which these tests share."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import AsyncIterator, Iterator, Sequence

import pytest
import pytest_asyncio
from playwright.async_api import Browser, async_playwright

_QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--remote-debugging-port=0", "--use-fake-device-for-media-stream",
)  # fmt: skip


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Run tests with a browser in its loop."""
    for item in items:
        if "_driven" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest.fixture(scope="session")
def chromium() -> Iterator[str]:
    """Yield the address of the browser for its drivers."""
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


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def _driven(chromium: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        yield await playwright.chromium.connect_over_cdp(chromium)


@pytest.fixture
def browser(_driven: Browser) -> Browser:
    """Return the browser. Each context in it is a separate person's."""
    return _driven
