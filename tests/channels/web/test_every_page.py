"""Every page is light and can be used only by keyboard."""

from __future__ import annotations

from pathlib import Path

from playwright.async_api import Browser, Page, expect

from nanobot_web.places import PLACES
from tests.channels.web.browser import browse
from tests.channels.web.support import Web, serving

PAGES = [view.path for place in PLACES for view in place.views]
MOST_BYTES, MOST_REQUESTS = 120_000, 12


async def _live(web: Web) -> None:
    """Fill the pages with content."""
    async with web.visit() as visit:
        await visit.say(await visit.new_chat(), "My sister is called Ana, remember that.")


async def test_a_first_view_is_light(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web:
        await _live(web)
        async with browse(browser, web) as page:
            for at in PAGES:
                await page.goto(f"{web.base}{at}")
                taken = await page.evaluate(_TAKEN)
                assert taken["bytes"] <= MOST_BYTES, (at, taken)
                assert taken["requests"] <= MOST_REQUESTS, (at, taken)


_TAKEN = """() => {
    const kinds = ["navigation", "resource"];
    const all = kinds.flatMap((kind) => performance.getEntriesByType(kind));
    return { requests: all.length, bytes: all.reduce((sum, one) => sum + one.decodedBodySize, 0) };
}"""


async def test_a_keyboard_is_enough_for_a_chat(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web, browse(browser, web) as page:
        await page.goto(f"{web.base}/chat?list=1")
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
    """Press Tab until a control with that name has the focus."""
    for _ in range(40):
        await page.keyboard.press("Tab")
        label = await page.evaluate(
            "document.activeElement.getAttribute('aria-label') || document.activeElement.innerText"
        )
        if label.strip() == name:
            return
    raise AssertionError(f"{name} is not reached by the keyboard")
