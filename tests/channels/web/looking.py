"""What every page must hold in a real browser: asked for while a test walks through it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Locator, Page, expect

from tests.channels.web.support import Served

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
expect.set_options(timeout=20_000)
_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
_RUN = "axe.run(document, {resultTypes: ['violations']})"  # what is right is not listed


@contextlib.asynccontextmanager
async def looking(
    browser: Browser, web: Served, *, account: str = "", size: Any = None, scheme: str = "light"
) -> AsyncIterator[Page]:
    """A page of somebody who signed in by a link. At the end nothing was asked of another host, no
    script failed and nothing was against the page's policy."""
    context = await browser.new_context(viewport=size or DESKTOP, color_scheme=scheme)  # type: ignore[arg-type]
    page = await context.new_page()
    page.set_default_timeout(15_000)
    wrong: list[str] = []

    def asked(url: str) -> None:
        if urlsplit(url).netloc != urlsplit(web.base).netloc and not url.startswith("data:"):
            wrong.append(f"asked {url}")

    page.on("request", lambda request: asked(request.url))
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("dialog", lambda dialog: dialog.accept())
    page.on(
        "console",
        lambda said: wrong.append(said.text) if "Security Policy" in said.text else None,
    )
    try:
        await page.goto(await web.link(account))
        await page.wait_for_url("**/chat**")
        yield page
        assert wrong == []
    finally:
        await context.close()


async def violations(page: Page) -> list[str]:
    """What axe-core finds against the rules of WCAG 2.2 A and AA, and of good practice."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_AXE)
    found = await page.evaluate(_RUN)
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


async def begin_chat(page: Page) -> Locator:
    """Open a new chat, and wait until its script listens; the field to write in."""
    await page.get_by_role("link", name="New chat", exact=True).click()
    await page.wait_for_url("**/chat?c=**")
    await page.wait_for_load_state("load")
    return page.get_by_label("Message", exact=True)


async def write(page: Page, text: str) -> None:
    """Write a message and send it."""
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_label("Message", exact=True).press("Enter")
