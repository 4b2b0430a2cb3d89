"""Messages and the composer in a real browser: actions, versions, files, commands and keys."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from nanobot.testing.model import ScriptedModel, calls, says
from tests.channels.web.browser import PHONE, begin_chat, browse, violations, write
from tests.channels.web.support import serving
from tests.support import Probe

_DROP = """() => {
    const data = new DataTransfer();
    data.items.add(new File(["milk"], "list.txt", { type: "text/plain" }));
    for (const kind of ["dragover", "drop"])
        document.querySelector(".conversation").dispatchEvent(
            new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""


async def _act(page: Page, item: str, action: str) -> None:
    """Choose an action in the menu of the last such message."""
    await page.locator(item).last.hover()
    await page.locator("#acts").get_by_text(action, exact=True).click()


async def test_a_message_is_copied_edited_and_answered_again(
    tmp_path: Path, browser: Browser
) -> None:
    script = [says("**One**."), says("*Two*."), says("Three."), says("Four.")]
    async with (
        serving(tmp_path, ScriptedModel(*script)) as web,
        browse(browser, web) as page,
    ):
        await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        text = await begin_chat(page)
        mine, answer = (
            page.locator(".messages > .mine .words"),
            page.locator(".messages > .assistant"),
        )
        await write(page, "first <b>")
        await expect(answer).to_contain_text("One")
        await _act(page, ".item.assistant", "Copy")
        await expect(page.locator("#toast")).to_contain_text("Copied")
        assert await page.evaluate("navigator.clipboard.readText()") == "**One**."
        await _act(page, ".item.assistant", "Keep")
        await expect(page.locator(".item.assistant .tag")).to_have_text("kept")
        await _act(page, ".item.assistant", "Regenerate")
        await expect(answer).to_contain_text("Two")
        await expect(answer).to_have_count(1)

        await text.press("ArrowUp")
        await expect(text).to_have_value("first <b>")
        await expect(page.get_by_text("not undone")).to_be_visible()
        await text.press("Escape")
        await expect(text).to_have_value("")
        await _act(page, ".item.mine", "Edit")
        await text.fill("better")
        await text.press("Enter")
        await expect(answer).to_contain_text("Three")
        await expect(mine).to_have_text(["better"])
        await expect(page.locator("#now > article")).to_have_count(0)

        versions = page.locator(".item.mine > .foot .versions")
        await expect(versions).to_have_text("‹ 3 of 3")
        await versions.click()
        earlier = page.locator(".earlier")
        await expect(earlier).to_contain_text("Two.")
        await expect(answer.last).to_be_hidden()
        assert await violations(page) == []
        await earlier.get_by_label("Previous version").press("Enter")
        await expect(earlier).to_contain_text("One.")
        await earlier.get_by_label("Next version").press("Enter")
        await earlier.get_by_label("Current version").press("Enter")
        await expect(earlier).to_have_count(0)
        await expect(answer).to_be_visible()
        await page.goto(f"{web.base}{await versions.get_attribute('href')}")
        await expect(page.locator("main")).to_contain_text("Two.")
        assert await violations(page) == []


async def test_the_menu_of_a_message_is_reached_by_keyboard_and_on_a_phone(
    tmp_path: Path, browser: Browser
) -> None:
    async with (
        serving(
            tmp_path, ScriptedModel(calls("probe", text="one"), says("Done.")), tools=[Probe()]
        ) as web,
        browse(browser, web, size=PHONE, scheme="dark") as page,
    ):
        await page.wait_for_load_state("load")
        await write(page, "hello")
        await expect(page.locator(".item.assistant").last).to_contain_text("Done.")
        await page.get_by_role("button", name="Message menu").last.press("Enter")
        await expect(page.locator("#acts").get_by_text("Copy")).to_be_focused()
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Message menu").last).to_be_focused()
        await page.get_by_role("button", name="Message menu").first.press("Enter")
        await page.locator("#acts").get_by_text("Edit").press("Enter")
        await expect(page.get_by_label("Message", exact=True)).to_have_value("hello")
        assert await violations(page) == []
        await page.get_by_role("button", name="Cancel").click()
        await page.get_by_role("button", name="Message menu").last.press("Enter")
        await page.locator("#acts").get_by_text("Details").press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_contain_text("Turn")


async def test_files_are_dropped_shown_and_downloaded_by_their_names(
    tmp_path: Path, browser: Browser
) -> None:
    async with (
        serving(tmp_path, ScriptedModel(says("Thanks."))) as web,
        browse(browser, web) as page,
    ):
        await begin_chat(page)
        await page.evaluate(_DROP)
        await page.evaluate(_DROP)
        await page.get_by_role("button", name="Remove list.txt").first.click()
        await expect(page.locator("#attached li")).to_have_count(1)
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await page.keyboard.press("Enter")
        chip = page.locator(".item.mine a.chip")
        await expect(chip).to_contain_text("list.txt")
        async with page.expect_download() as download:
            await chip.click()
        assert (await download.value).suggested_filename == "list.txt"
        path = await (await download.value).path()
        assert await asyncio.to_thread(path.read_text) == "milk"


async def test_a_slash_lists_the_commands_and_a_question_mark_the_keys(
    tmp_path: Path, browser: Browser
) -> None:
    async with serving(tmp_path, ScriptedModel()) as web, browse(browser, web) as page:
        text = await begin_chat(page)
        await text.press_sequentially("/h")
        options = page.get_by_role("option")
        await expect(options.first).to_contain_text(re.compile("^/h"))
        assert await violations(page) == []
        await text.press_sequentially("elp")
        await text.press("Enter")
        await expect(page.locator(".item.extra")).to_contain_text("List the commands")
        await text.press_sequentially("/thi")
        await text.press("Tab")
        await expect(text).to_have_value("/think ")
        await text.press("Control+k")
        await expect(page.get_by_label("Search conversations")).to_be_focused()
        await page.locator("#messages").press("?")
        await expect(page.get_by_role("dialog")).to_contain_text("Search conversations")
        assert await violations(page) == []
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("dialog")).to_be_hidden()


async def test_the_model_and_its_thinking_are_chosen_at_the_composer(
    tmp_path: Path, browser: Browser
) -> None:
    config = {
        "model": {"name": "small", "base_url": "http://127.0.0.1:9/v1"},
        "models": {"big": {"name": "really-big"}},
    }
    async with (
        serving(tmp_path, ScriptedModel(says("Hi.")), config=config) as web,
        browse(browser, web) as page,
    ):
        await begin_chat(page)
        await write(page, "hello")
        await expect(page.locator(".item.assistant")).to_contain_text("Hi.")
        chosen = page.locator(".model summary")
        await expect(chosen).to_have_text("small")
        await chosen.click()
        assert await violations(page) == []
        await page.get_by_role("button", name="high", exact=True).click()
        await expect(page.locator(".item.extra").last).to_contain_text("Thinking effort: high.")
        await chosen.click()
        high = page.get_by_role("button", name="high", exact=True)
        await expect(high).to_have_attribute("aria-pressed", "true")
        await page.get_by_role("button", name="big really-big").click()
        await expect(page.locator(".item.extra").last).to_contain_text("now uses big")
        await expect(chosen).to_have_text("really-big")
        await page.reload()
        await expect(chosen).to_have_text("really-big")


async def test_the_first_screen_names_the_model_of_conversations(
    tmp_path: Path, browser: Browser
) -> None:
    config = {
        "model": {"name": "small", "base_url": "http://127.0.0.1:9/v1"},
        "models": {"clever": {"name": "really-big"}},
        "use": {"chat": "clever"},
    }
    async with (
        serving(tmp_path, ScriptedModel(), config=config) as web,
        browse(browser, web) as page,
    ):
        await begin_chat(page)
        await expect(page.locator(".welcome")).to_contain_text("Model: really-big")
        await expect(page.locator(".model summary")).to_have_text("really-big")
