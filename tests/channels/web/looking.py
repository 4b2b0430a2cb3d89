"""What every page must hold in a real browser: asked for while a test walks through it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Literal
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from playwright.async_api import Browser, BrowserContext, Locator, Page, ViewportSize, expect

from tests.channels.web.support import Served

DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
Scheme = Literal["light", "dark"]
expect.set_options(timeout=20_000)
_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
_RUN = "axe.run(document, {resultTypes: ['violations'], preload: false})"
"""What is right is not listed; there is nothing from elsewhere to load."""


@contextlib.asynccontextmanager
async def looking(
    browser: Browser,
    web: Served,
    *,
    account: str = "",
    size: ViewportSize = DESKTOP,
    scheme: Scheme = "light",
) -> AsyncIterator[Page]:
    """A page of somebody who signed in by a link. At the end nothing was asked of another host, no
    script failed and nothing was against the page's policy."""
    async with _apart(browser) as context:
        page = await context.new_page()
        page.set_default_timeout(15_000)
        await page.set_viewport_size(size)
        await page.emulate_media(color_scheme=scheme)
        async with _watch_page(page, web):
            await page.goto(await web.link(account))
            await page.wait_for_url("**/chat**")
            yield page


@contextlib.asynccontextmanager
async def _apart(browser: Browser) -> AsyncIterator[BrowserContext]:
    """A context that knows nothing of the others. Making one takes Chromium a second, so it is used
    again, unless a test failed in it: without its pages and cookies, all that the site leaves. Its
    first page stays, empty: with the last one a window goes, which takes another second."""
    free = _FREE.setdefault(browser, [])
    if free:
        context = free.pop()
    else:
        context = await browser.new_context()
        await context.new_page()
    try:
        yield context
    except BaseException:
        await context.close()
        raise
    for page in context.pages[1:]:
        await page.close()
    await context.clear_cookies()
    free.append(context)


_FREE: WeakKeyDictionary[Browser, list[BrowserContext]] = WeakKeyDictionary()


@contextlib.asynccontextmanager
async def _watch_page(page: Page, web: Served) -> AsyncIterator[None]:
    """At the end nothing that happened on the page was wrong."""
    wrong: list[str] = []

    def note_request(url: str) -> None:
        if urlsplit(url).netloc != urlsplit(web.base).netloc and not url.startswith("data:"):
            wrong.append(f"asked {url}")

    page.on("request", lambda request: note_request(request.url))
    page.on("pageerror", lambda error: wrong.append(f"script: {error}"))
    page.on("dialog", lambda dialog: dialog.accept())
    page.on(
        "console",
        lambda said: wrong.append(said.text) if "Security Policy" in said.text else None,
    )
    yield
    assert wrong == []


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
