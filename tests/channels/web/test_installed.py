"""The page as an installed app: its manifest and icons, and the page without a connection."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

from playwright.async_api import Browser, expect

from tests.channels.web.browser import browse, violations
from tests.channels.web.support import serving
from tests.ports import free_port

_INSTALLED = """() => {
    const ask = window.matchMedia.bind(window);
    window.matchMedia = (query) => query.includes("standalone") ? { matches: true } : ask(query);
}"""
_CACHED = """async () => {
    const found = [];
    for (const name of await caches.keys())
        for (const one of await (await caches.open(name)).keys()) found.push(one.url);
    return found.map((one) => new URL(one).pathname);
}"""


async def test_chromium_can_install_the_page(tmp_path: Path, browser: Browser) -> None:
    async with serving(tmp_path) as web, browse(browser, web) as page:
        session = await page.context.new_cdp_session(page)
        found = await session.send("Page.getInstallabilityErrors")
        errors = {one["errorId"] for one in found["installabilityErrors"]}
        assert errors <= {"in-incognito"}
        manifest = json.loads((await session.send("Page.getAppManifest"))["data"])
        for icon in manifest["icons"]:
            answer = await page.request.get(f"{web.base}{icon['src']}")
            assert answer.headers["content-type"].startswith(icon["type"])
        assert await page.evaluate("navigator.serviceWorker.getRegistration()") is None


async def test_an_installed_app_has_a_page_without_a_connection_and_stores_no_other(
    tmp_path: Path, browser: Browser
) -> None:
    port = free_port()
    async with contextlib.AsyncExitStack() as running:
        web = await running.enter_async_context(serving(tmp_path, port=port))
        async with browse(browser, web) as page:
            await page.add_init_script(f"({_INSTALLED})()")
            await page.reload()
            await page.evaluate("navigator.serviceWorker.ready.then(() => true)")
            for path in ("/memory", "/chat/new"):
                await page.goto(f"{web.base}{path}")
            cached = await page.evaluate(_CACHED)
            assert sorted(cached) == ["/static/offline.html", "/static/style.css"]
            await running.aclose()
            await page.goto(f"{web.base}/memory")
            await expect(page.get_by_role("heading", level=1)).to_have_text(
                "nanobot can't be reached"
            )
            assert await violations(page) == []
            async with serving(tmp_path, port=port):
                await page.get_by_role("link", name="Try again").click()
                await expect(page.get_by_role("link", name="New chat", exact=True)).to_be_visible()
                # Sign out, which removes the worker and its files.
                await page.context.clear_cookies()
                await page.goto(f"{web.base}/chat")
                await expect(page.get_by_text("You are not signed in.")).to_be_visible()
                assert await page.evaluate("caches.keys()") == []
                found = await page.evaluate("navigator.serviceWorker.getRegistrations()")
                assert found == []
