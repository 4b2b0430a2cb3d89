"""Requirements of every page in a real browser, checked while a test uses it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from importlib.resources import files
from typing import Literal
from urllib.parse import urlsplit
from weakref import WeakKeyDictionary

from playwright.async_api import Browser, BrowserContext, Locator, Page, ViewportSize, expect

from tests.channels.web.support import Served
from tests.support import PICTURES

DESKTOP, PHONE = ViewportSize(width=1280, height=800), ViewportSize(width=390, height=844)
Scheme = Literal["light", "dark"]
expect.set_options(timeout=20_000)
_AXE = files("axe_playwright_python").joinpath("axe.min.js").read_text("utf-8")
_RUN = "axe.run(document, {resultTypes: ['violations'], preload: false})"
"""List only violations, and load nothing: there is no content of other sites."""
_SMALL = """() => {
    const inText = (one) => one.localName === "a" && getComputedStyle(one).display === "inline"
        && one.parentElement.textContent.trim() !== one.textContent.trim();
    return [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
        .filter((one) => one.checkVisibility({visibilityProperty: true}) && !inText(one))
        .map((one) => [one, (one.closest("label") ?? one).getBoundingClientRect()])
        .filter(([one, box]) => box.width > 0 && box.right > 0
            && Math.min(box.width, box.height) < 24)
        .map(([one, box]) => `${box.width} x ${box.height}: ${one.outerHTML.slice(0, 150)}`);
}"""
"""List targets below 24 px (WCAG 2.2, 2.5.8), except links in a line of text."""


@contextlib.asynccontextmanager
async def browse(
    browser: Browser,
    web: Served,
    *,
    account: str = "",
    size: ViewportSize = DESKTOP,
    scheme: Scheme = "light",
) -> AsyncIterator[Page]:
    """Yield a page of a person who signed in by a link. At the end check that no other host was
    asked, no script failed, and nothing violated the page's policy."""
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
    """Yield an isolated context. Chromium takes a second to make one, so it is reused without its
    pages and cookies, which is all that the site leaves, unless a test failed in it. Its first page
    stays, empty: closing the last one closes a window, which takes another second."""
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
    """Check at the end that nothing went wrong on the page."""
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
    assert wrong == [], wrong


async def violations(page: Page) -> list[str]:
    """Return the violations that axe-core finds of WCAG 2.2 A and AA, and of good practice."""
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(_AXE)
    found = await page.evaluate(_RUN)
    return [
        f"{one['id']}: {node['html'][:200]} {node.get('failureSummary', '')[:300]}"
        for one in found["violations"]
        for node in one["nodes"]
    ]


async def look(page: Page, name: str) -> None:
    """Check what holds for every view: accessibility, the size of its targets, and its width. Leave
    a picture in the folder `NANOBOT_PICTURES`, if it is set."""
    if PICTURES:
        await page.screenshot(path=f"{PICTURES}/{name}.png")
    assert await violations(page) == [], name
    small = await page.evaluate(_SMALL)
    assert small == [], (name, small)
    wide, most = await page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= most, name


async def begin_chat(page: Page) -> Locator:
    """Open a new chat, and wait for its script. Return the text field."""
    await page.get_by_role("link", name="New chat", exact=True).click()
    await page.wait_for_url("**/chat?c=**")
    await page.wait_for_load_state("load")
    return page.get_by_label("Message", exact=True)


async def write(page: Page, text: str) -> None:
    """Write a message and send it."""
    await page.get_by_label("Message", exact=True).fill(text)
    await page.get_by_label("Message", exact=True).press("Enter")
