"""The chat page in a real browser: writing, live events, files, and a killed gateway."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable
from pathlib import Path

from playwright.async_api import Browser, Download, expect

from nanobot.errors import ProviderUnavailable
from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing.model import ScriptedModel, calls, fails, says
from nanobot.tooling import Arguments, Risk, TurnContext
from tests.channels.telegram.whole import OWNER
from tests.channels.web.browser import PHONE, begin_chat, browse, violations, write
from tests.channels.web.support import kill_at_the_end, serving
from tests.doubles.telegram import FakeTelegram
from tests.ports import free_port
from tests.support import PATIENCE, Gate, Probe, TextArguments
from tests.voice.support import speaker

BACK_WITHIN = 2_000
"""Milliseconds from a listening gateway to a live page, as documented: the only time limit in these
tests."""
ASKING = {"tools": {"approval": {"send": "ask"}}}


class Risky(Probe):
    """A tool that needs the owner's approval."""

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        text = arguments.text if isinstance(arguments, TextArguments) else ""
        return Risk("send", "do something risky", f"{text}, exactly")


async def read_download(download: Awaitable[Download]) -> str:
    """Return the text of a downloaded file."""
    path = await (await download).path()
    return await asyncio.to_thread(path.read_text, "utf-8")


async def test_a_chat_from_its_first_word_to_its_export(tmp_path: Path, browser: Browser) -> None:
    model = ScriptedModel(says("Hm."), says("**Hello** Ana."), says("Second answer."))
    async with serving(tmp_path, model) as web, browse(browser, web) as page:
        await begin_chat(page)
        await expect(page.get_by_label("Message", exact=True)).to_be_focused()
        await page.keyboard.type("I am Ana.")
        await page.keyboard.press("Enter")
        await expect(page.locator(".item.mine .words")).to_have_text("I am Ana.")
        await expect(page.locator(".item.assistant")).to_contain_text("Hm.")
        await page.get_by_label("Actions").click()
        await page.get_by_role("button", name="Retry the last turn").click()
        await expect(page.locator(".item.assistant strong")).to_have_text("Hello")
        await expect(page.locator(".item.assistant")).to_have_count(1)
        await expect(page.locator(".item.mine .words")).to_have_text("I am Ana.")
        await expect(page.locator("#now > :not(#status)")).to_have_count(0)
        await expect(page.get_by_label("Message", exact=True)).to_have_value("")
        await write(page, "one")
        await expect(page.locator(".item.assistant")).to_have_count(2)
        await page.get_by_label("Actions").click()
        await page.get_by_role("button", name="Undo the last turn").click()
        await expect(page.locator(".item.extra")).to_contain_text("Undid the last turn")
        await expect(page.locator(".item.assistant")).to_have_count(1)
        await page.get_by_label("More").click()
        await page.get_by_label("Title").fill("About Ana")
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", level=1)).to_have_text("About Ana")
        await page.get_by_label("More").click()
        await page.get_by_label("Find in this conversation").fill("i am")
        await expect(page.locator("#found li")).to_have_count(1)
        async with page.expect_download() as download:
            await page.get_by_role("link", name="Export as Markdown").click()
        exported = await read_download(download.value)
        assert "I am Ana." in exported
        assert "**Hello** Ana." in exported
        await page.reload()
        await expect(page.locator(".item.mine")).to_have_count(1)
        await expect(page.locator("#list")).to_contain_text("About Ana")
        await page.get_by_label("Search conversations").fill("nothing of this name")
        await expect(page.locator("#list")).to_contain_text("No results")


async def test_a_turn_is_seen_live_in_two_tabs_step_by_step(
    tmp_path: Path, browser: Browser
) -> None:
    gate = Gate()
    model = ScriptedModel(calls("probe", text="one"), says("Done."))
    tool = Probe(gate=gate)
    async with (
        serving(tmp_path, model, tools=[tool]) as web,
        browse(browser, web) as first,
        browse(browser, web, size=PHONE, scheme="dark") as second,
    ):
        await begin_chat(first)
        await second.goto(first.url)
        await first.get_by_label("Message", exact=True).fill("go")
        await first.get_by_role("button", name="Send", exact=True).click()
        await gate.reached.wait()
        for page in (first, second):
            await expect(page.locator("#now .mine .words")).to_have_text("go")
            await expect(page.locator("#now")).to_contain_text("probe one")
            assert await violations(page) == []
        third = await first.context.new_page()
        await third.goto(first.url)
        await expect(third.locator("#now")).to_contain_text("probe one")  # in the middle of it
        gate.opened.set()
        for page in (first, second, third):
            await expect(page.locator(".item.assistant").last).to_contain_text("Done.")
            await expect(page.locator("#now > :not(#status)")).to_have_count(0)
            await expect(page.locator(".item.mine")).to_have_count(1)


class SlowReader(ScriptedModel):
    """Reports its reading progress, and answers when `gate` is open."""

    def __init__(self, gate: Gate) -> None:
        super().__init__(says("Read."))
        self._gate = gate

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        assert options.on_reading is not None
        options.on_reading(1_900, 2_750)
        await self._gate()
        return await super().complete(prompt, options, on_text)


async def test_how_far_the_model_has_read_is_shown_until_the_reply_comes(
    tmp_path: Path, browser: Browser
) -> None:
    gate = Gate()
    async with serving(tmp_path, SlowReader(gate)) as web, browse(browser, web) as page:
        await begin_chat(page)
        await write(page, "go")
        shown = page.locator("#status")
        await expect(shown).to_have_text("reading 1,900 of 2,750 tokens")
        await page.reload()
        await expect(shown).to_have_text("reading 1,900 of 2,750 tokens")  # in the middle of it
        assert await violations(page) == []
        gate.opened.set()
        await expect(page.locator(".item.assistant").last).to_contain_text("Read.")
        await expect(shown).to_be_hidden()


async def test_an_outage_is_shown_with_its_next_try_until_the_message_is_dropped(
    tmp_path: Path, browser: Browser
) -> None:
    out = ProviderUnavailable("no route to the server", reason="no route")
    async with serving(tmp_path, ScriptedModel(fails(out))) as web, browse(browser, web) as page:
        await begin_chat(page)
        await write(page, "go")
        shown = page.locator("#status")
        line = re.compile(r"model unreachable: no route, trying again at \d\d:\d\d:\d\d \(1\)")
        await expect(shown).to_have_text(line)
        await page.reload()
        await expect(shown).to_have_text(line)
        await write(page, "/stop")
        await expect(shown).to_be_hidden()


async def test_a_reply_is_played_where_one_asked_for_it(disk_path: Path, browser: Browser) -> None:
    config = {"model": {"speech": {"command": speaker(disk_path)}}}
    model = ScriptedModel(says("Good morning."))
    async with (
        serving(disk_path / "home", model, config=config) as web,
        browse(browser, web) as page,
    ):
        await begin_chat(page)
        await write(page, "/voice on")
        await expect(page.get_by_text("Replies here are also sent as voice")).to_be_visible()
        await write(page, "Hello")
        player = page.locator("audio")
        await expect(player).to_be_visible()
        assert await violations(page) == []
        sound = await page.evaluate(
            "document.querySelector('audio').src && fetch(document.querySelector('audio').src)"
            ".then(async a => [a.headers.get('Content-Type'), await a.text()])"
        )
        assert (sound[0], "Good morning." in sound[1]) == ("audio/ogg", True)
        await page.evaluate(
            "new Promise(end => { const one = document.querySelector('audio');"
            " one.onerror = one.onloadedmetadata = end; one.preload = 'auto'; one.load(); })"
        )


async def test_after_the_gateway_was_killed_and_is_back_nothing_is_shown_twice(
    tmp_path: Path, browser: Browser
) -> None:
    port = free_port()
    async with contextlib.AsyncExitStack() as kept:
        async with kill_at_the_end(tmp_path, port) as web:
            page = await kept.enter_async_context(browse(browser, web))
            await begin_chat(page)
            message = page.get_by_label("Message", exact=True)
            await message.fill("one")
            await page.keyboard.press("Enter")
            await expect(page.locator(".item.assistant").last).to_be_visible()
            await expect(page.locator(".item.mine")).to_have_text([re.compile("one")])
        await expect(page.locator("#connection")).to_contain_text("Not connected")
        await message.fill("two")
        await page.keyboard.press("Enter")
        await expect(page.locator("#toast")).to_contain_text("isn't responding")
        await expect(message).to_have_value("two")
        async with kill_at_the_end(tmp_path, port):
            await expect(page.locator("#connection")).to_have_text("", timeout=BACK_WITHIN)
            await page.get_by_role("button", name="Send", exact=True).click()
            both = [re.compile("one"), re.compile("two")]
            await expect(page.locator(".item.mine")).to_have_text(both)
            await expect(message).to_have_value("")
            await page.reload()
            await expect(page.locator(".item.mine")).to_have_text(both)


async def test_a_question_is_answered_in_one_tab_and_gone_in_the_other(
    tmp_path: Path, browser: Browser
) -> None:
    tool = Risky("risky", effects=True)
    model = ScriptedModel(calls("risky", text="now"), says("It is done."))
    async with (
        serving(tmp_path, model, tools=[tool], config=ASKING) as web,
        browse(browser, web) as first,
        browse(browser, web, size=PHONE) as second,
    ):
        await second.goto(f"{web.base}/settings")
        await begin_chat(first)
        await first.get_by_label("Message", exact=True).fill("do it")
        await first.keyboard.press("Enter")
        await second.get_by_text("1 to approve").click()
        for page in (first, second):
            card = page.get_by_role("region", name="Do something risky?")
            await expect(card.get_by_label("Details")).to_have_text("now, exactly")
            assert await violations(page) == []
        assert tool.called == []
        await second.get_by_role("button", name="Approve").click()
        for page in (first, second):
            await expect(page.locator(".approval")).to_have_count(0)
        await expect(first.locator(".item.assistant").last).to_contain_text("It is done.")
        assert tool.called == ["now"]
        audit = await asyncio.to_thread((tmp_path / "logs" / "audit.jsonl").read_text)
    assert '"by": "web:owner"' in audit or '"by":"web:owner"' in audit


async def test_a_question_in_its_conversation_is_answered_by_one_key(
    tmp_path: Path, browser: Browser
) -> None:
    tool = Risky("risky", effects=True)
    model = ScriptedModel(calls("risky", text="now"), says("It is done."))
    async with (
        serving(tmp_path, model, tools=[tool], config=ASKING) as web,
        browse(browser, web, size=PHONE, scheme="dark") as page,
    ):
        await page.wait_for_load_state("load")
        await write(page, "do it")
        card = page.locator("#asked .approval")
        await expect(card.get_by_label("Details")).to_have_text("now, exactly")
        await expect(page.locator("#pending")).to_be_hidden()
        await page.get_by_label("Message", exact=True).press("y")  # only text
        await expect(page.get_by_label("Message", exact=True)).to_have_value("y")
        await page.keyboard.press("Alt+y")  # too soon after the question
        assert tool.called == []
        await card.evaluate("(one) => { one.dataset.since = 0 }")
        await page.keyboard.press("Alt+y")
        await expect(page.locator(".item.assistant").last).to_contain_text("It is done.")
        assert tool.called == ["now"]


async def test_a_turn_in_telegram_is_seen_live_and_its_question_is_answered_on_the_page(
    tmp_path: Path, browser: Browser
) -> None:
    steps, risky = Probe(), Risky("risky", effects=True)
    script = [calls("probe", text=str(number)) for number in (1, 2, 3)]
    model = ScriptedModel(*script, calls("risky", text="now"), says("All done."))
    async with FakeTelegram() as telegram:
        channel = {"enabled": True, "token": telegram.token, "base_url": telegram.base_url}
        config = {**ASKING, "owner": {"telegram": [str(OWNER)]}, "channels": {"telegram": channel}}
        async with (
            serving(tmp_path, model, tools=[steps, risky], config=config) as web,
            browse(browser, web) as first,
            browse(browser, web) as second,
        ):
            telegram.say("/help", chat=OWNER)
            await telegram.receive(1, OWNER)
            for page in (first, second):
                await page.goto(f"{web.base}/chat?c=telegram:{OWNER}")
            telegram.say("go on", chat=OWNER)
            for page in (first, second):
                for number in (1, 2, 3):
                    await expect(page.locator("#now")).to_contain_text(f"probe {number}")
                await expect(page.locator(".approval")).to_contain_text("now, exactly")
            await telegram.receive(2, OWNER)
            assert telegram.messages()[1].buttons
            await second.get_by_role("button", name="Approve").click()
            for page in (first, second):
                await expect(page.locator(".approval")).to_have_count(0)
                await expect(page.locator(".item.assistant").last).to_contain_text("All done.")
            await telegram.receive(3, OWNER)
            async with asyncio.timeout(PATIENCE):
                while telegram.messages()[1].buttons:  # noqa: ASYNC110  # the edit tells nobody
                    await asyncio.sleep(0.01)
    assert risky.called == ["now"]
