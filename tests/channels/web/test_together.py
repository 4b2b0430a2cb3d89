"""Two tabs and a phone that show one conversation show the same at each moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, Page, expect

from nanobot.providers.port import Prompt, Reply
from nanobot.testing.model import ScriptedModel, calls, says, together
from tests.channels.web.browser import DESKTOP, PHONE, begin_chat, browse, look, write
from tests.channels.web.page_kit import Switch
from tests.channels.web.support import serving
from tests.support import Gate, Probe

_SHOWN = """() => {
    const texts = (from, what) => [...from.querySelectorAll(what)]
        .filter((one) => one.checkVisibility()).map((one) => one.textContent.trim());
    const parts = ".words, .step > summary, .chip, .tag, .versions, .continue, [data-press]";
    return {
        title: texts(document, "h1"),
        items: [...document.querySelectorAll("#messages .item")]
            .filter((one) => one.checkVisibility()).map((one) => texts(one, parts)),
        doing: texts(document, "#status, #stop"),
        asked: texts(document, "#asked [data-approval]"),
        model: texts(document, ".model summary"),
    };
}"""


async def _same(pages: Sequence[Page], *texts: str) -> None:
    """Wait until all pages show the same, with these texts."""
    seen: list[Any] = []
    try:
        async with asyncio.timeout(8):
            while True:
                await asyncio.sleep(0.02)
                seen = [await page.evaluate(_SHOWN) for page in pages]
                if all(one == seen[0] for one in seen) and all(t in str(seen[0]) for t in texts):
                    return
    except TimeoutError:
        raise AssertionError(seen) from None


def _answer(prompt: Prompt) -> Reply:
    last = prompt.messages[-1]
    if last.role == "tool":
        return says("It is **done**.")
    if "light" in last.text:
        return calls("switch", text="on")
    if "probe" in last.text:
        return together(says("I look."), calls("probe", text="one"))
    return says(f"*Yes*: {last.text[-20:]}")


async def test_two_tabs_and_a_phone_show_the_same_at_each_moment(
    tmp_path: Path, browser: Browser
) -> None:
    gate = Gate()
    tools = [Probe(gate=gate), Switch(effects=True)]
    model = {"name": "small", "base_url": "http://127.0.0.1:9/v1"}
    config = {"tools": {"approval": {"mcp": "ask"}}, "model": model, "models": {"big": {}}}
    async with (
        serving(tmp_path, ScriptedModel(author=_answer), config=config, tools=tools) as web,
        contextlib.AsyncExitStack() as kept,
    ):
        pages = [
            await kept.enter_async_context(browse(browser, web, size=size))
            for size in (DESKTOP, DESKTOP, PHONE)
        ]
        first, second, phone = pages
        await begin_chat(first)
        for page in (second, phone):
            await page.goto(first.url)
        await write(first, "please probe")
        await gate.reached.wait()
        await _same(pages, "please probe", "I look.", "probe one", "Stop")
        await write(phone, "and then?")
        await _same(pages, "and then?")
        gate.opened.set()
        await _same(pages, "Yes: and then?")
        await write(second, "light")
        await _same(pages, "Switch the light")
        for number, page in enumerate(pages):
            await look(page, f"together-{number}")
        await phone.locator("[data-answer=once]").click()
        await _same(pages, "done")
        await write(second, "/help")
        await _same(pages, "List the commands")
        await write(second, "/title A good name")
        await _same(pages, "'title': ['A good name']")
        await first.locator(".item.assistant").last.hover()
        await first.locator("#acts").get_by_text("Keep", exact=True).click()
        await _same(pages, "kept")
        await first.locator("#acts").get_by_text("Regenerate", exact=True).click()
        await _same(pages, "Switch the light")
        await second.locator("[data-answer=once]").click()
        await _same(pages, "2 of 2")
        await write(phone, "/model big")
        await _same(pages, "'model': ['big']")
        await write(phone, "/undo")
        await _same(pages)
        await first.get_by_label("Menu of A good name").click()
        await first.get_by_role("link", name="Delete").click()
        await first.get_by_role("button", name="Delete").click()
        for page in pages:
            await expect(page).to_have_url(f"{web.base}/chat?list=1")
