"""What holds for every page: it can be read by all, works on a phone and in the dark, asks nobody
else for anything, and is light."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from nanobot_web.site import NAVIGATION
from tests.channels.web.looking import DESKTOP, PHONE, looking, violations
from tests.channels.web.support import Web, serving

PAGES = [at for at, _, _ in NAVIGATION]
MORE = ["/memory/versions", "/memory/search", "/activity/tools", "/activity/log", "/approvals"]
MORE += ["/chat?c=web:0123456789ab", "/settings?section=tools", "/figures?days=365"]
MOST_BYTES, MOST_REQUESTS = 80_000, 10

_TABS = """() => [...document.querySelectorAll("a[href], button, input, select, textarea, summary")]
    .filter((one) => one.checkVisibility() && !one.disabled && one.type !== "hidden")
    .filter((one) => one.tabIndex < 0)
    .map((one) => one.outerHTML)"""
"""What a person with a keyboard cannot reach."""


async def _live(web: Web) -> None:
    """Give the pages something to show."""
    async with web.visit() as visit:
        await visit.say("web:0123456789ab", "My sister is called Ana, remember that.")


@pytest.mark.parametrize("pages", [PAGES[:4], PAGES[4:], MORE], ids=["first", "second", "more"])
@pytest.mark.parametrize(
    ("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"]
)
async def test_every_page_can_be_read_and_used_by_everybody(
    tmp_path: Path, browser: Browser, pages: Sequence[str], size: Any, scheme: str
) -> None:
    async with serving(tmp_path) as web:
        await _live(web)
        async with looking(browser, web, size=size, scheme=scheme) as page:
            for at in pages:
                answer = await page.goto(f"{web.base}{at}")
                assert answer is not None
                assert answer.status == 200, at
                assert await violations(page) == [], at
                assert await page.evaluate(_TABS) == [], at
                width = await page.evaluate("document.documentElement.scrollWidth")
                assert width <= size["width"], at


async def test_a_first_view_is_light(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web:
        await _live(web)
        async with looking(browser, web) as page:
            for at in PAGES:
                fresh = await page.context.new_page()
                await fresh.goto(f"{web.base}{at}")
                await fresh.wait_for_load_state("load")
                taken = await fresh.evaluate(_TAKEN)
                assert taken["bytes"] <= MOST_BYTES, (at, taken)
                assert taken["requests"] <= MOST_REQUESTS, (at, taken)
                await fresh.close()


_TAKEN = """() => {
    const kinds = ["navigation", "resource"];
    const all = kinds.flatMap((kind) => performance.getEntriesByType(kind));
    return { requests: all.length, bytes: all.reduce((sum, one) => sum + one.decodedBodySize, 0) };
}"""


async def test_a_keyboard_is_enough_for_a_chat(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web, looking(browser, web) as page:
        await page.keyboard.press("Tab")
        await expect(page.get_by_role("link", name="Skip to content")).to_be_focused()
        await _tab_to(page, "New chat")
        await page.keyboard.press("Enter")
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await page.keyboard.type("help")
        await page.keyboard.press("Enter")
        await expect(page.locator(".item.assistant").first).to_be_visible()
        await _tab_to(page, "Actions")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("button", name="Undo the last turn")).to_be_visible()
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Undo the last turn")).to_be_hidden()


async def _tab_to(page: Page, name: str) -> None:
    """Go on by Tab until something of that name has the focus."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        label = await page.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
        )
        if label.strip() == name:
            return
    raise AssertionError(f"{name} is not reached by the keyboard")
