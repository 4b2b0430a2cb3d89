"""An answer that streams is shown in its place, formatted, and stays there at its end."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Sequence
from pathlib import Path

from playwright.async_api import Browser, Page, expect

from nanobot.providers.port import CallOptions, Prompt, Reply, TextSink
from nanobot.testing.model import ScriptedModel, calls, says, together
from tests.channels.web.browser import DESKTOP, PHONE, begin_chat, browse, look, violations, write
from tests.channels.web.keyboard import KeyboardUser
from tests.channels.web.support import kill_at_the_end, serving
from tests.doubles.slow import SlowServer
from tests.ports import free_port
from tests.support import Gate, Probe

ANSWER = """# A plan

First a **bold** word, some `code` and a [link](https://example.org/a) for *you*.

> Somebody said this.

- [x] done
- [ ] to do
- one **more**

| name | count |
|------|------:|
| one  | 1     |
| two  | 22    |

```python
def greet(name: str) -> str:
    return f"Hello {name}"  # a comment
```

And then the end of it: """ + " ".join(f"word{number}" for number in range(300))
_WATCH = """() => {
    window.seen = {raw: [], shift: 0};
    const marks = /\\*\\*|```|\\|--|^#|\\]\\(|\\[[ x]\\]/m;
    const look = () => {
        for (const one of document.querySelectorAll("#now .words.markdown"))
            if (marks.test(one.textContent)) window.seen.raw.push(one.textContent.slice(-80));
        requestAnimationFrame(look);
    };
    look();
    new PerformanceObserver((list) => {
        for (const one of list.getEntries())
            for (const source of one.sources)
                window.seen.shift = Math.max(
                    window.seen.shift, Math.abs(source.currentRect.y - source.previousRect.y));
    }).observe({type: "layout-shift"});
}"""
"""Look for raw Markdown in every frame, and for moves of what is shown."""
_PLACE = """() => {
    const words = [...document.querySelectorAll(".assistant .words")].at(-1);
    return words.lastElementChild.getBoundingClientRect().y
        - document.querySelector("#messages").getBoundingClientRect().y;
}"""


class Typist(ScriptedModel):
    """Streams its answer in words, with a pause between them. It waits for `gate` after `text`."""

    def __init__(self, text: str, gate: Gate, *, pause: float = 1 / 60) -> None:
        super().__init__(says("It goes on."))
        self._text, self._gate, self._pause = text, gate, pause
        self._words = re.findall(r"\s*\S+", text)

    async def complete(
        self, prompt: Prompt, options: CallOptions, on_text: TextSink | None = None
    ) -> Reply:
        words, self._words = self._words, []
        for word in words:
            if on_text is not None:
                on_text(word, False)
            await asyncio.sleep(self._pause)
        if words:
            await self._gate()
            return says(self._text)
        return await super().complete(prompt, options, on_text)


async def _html(page: Page) -> str:
    html = str(await page.locator(".assistant .words").last.inner_html())
    return re.sub(r"\n+(?=<)", "\n", html).strip()


async def test_an_answer_streams_formatted_and_nothing_moves_at_its_end(
    tmp_path: Path, browser: Browser
) -> None:
    gate = Gate()
    async with (
        serving(tmp_path, Typist(ANSWER, gate)) as web,
        browse(browser, web) as page,
        browse(browser, web, size=PHONE, scheme="dark") as phone,
    ):
        await begin_chat(page)
        await phone.goto(page.url)
        for one in (page, phone):
            await one.evaluate(_WATCH)
        await write(page, "plan it")
        await gate.reached.wait()
        for one in (page, phone):
            await expect(one.locator("#now .words.markdown")).to_contain_text("word299")
            assert await one.evaluate("window.seen.raw") == []
            await expect(one.locator("#now .code .k").first).to_have_text("def")
            await expect(one.locator("#below")).to_be_hidden()  # it followed to the end
            await expect(one.locator("#now .mine .words")).to_be_in_viewport()  # the question
            await look(one, f"stream-{'phone' if one is phone else 'desktop'}")
            await one.evaluate("window.seen.shift = 0")
        places = [await one.evaluate(_PLACE) for one in (page, phone)]
        drafts = [await _html(one) for one in (page, phone)]
        gate.opened.set()
        for one, place, draft in zip((page, phone), places, drafts, strict=True):
            await expect(one.locator("#now > :not(#status)")).to_have_count(0)
            await expect(one.locator("#status")).to_be_hidden()
            assert await _html(one) == draft
            await expect(one.locator(".mine .words").last).to_be_in_viewport()
            assert abs(await one.evaluate(_PLACE) - place) <= 4
            assert await one.evaluate("window.seen.shift") <= 4
            assert await violations(one) == []


async def test_a_reader_who_scrolled_up_stays_there(tmp_path: Path, browser: Browser) -> None:
    text = "\n\n".join(f"Paragraph {number}." for number in range(60))
    gate = Gate()
    async with (
        serving(tmp_path, Typist(text, gate, pause=0.02)) as web,
        browse(browser, web) as page,
    ):
        await begin_chat(page)
        await write(page, "go")
        await expect(page.locator("#now")).to_contain_text("Paragraph 40.")
        await page.locator("#messages").hover()
        await page.mouse.wheel(0, -300)
        await expect(page.locator("#below")).to_be_visible()
        top = await page.evaluate("document.querySelector('#messages').scrollTop")
        await gate.reached.wait()
        await expect(page.locator("#now")).to_contain_text("Paragraph 59.")
        assert await page.evaluate("document.querySelector('#messages').scrollTop") == top
        assert await violations(page) == []
        await page.get_by_role("button", name="New text below").press("Enter")
        await expect(page.get_by_text("Paragraph 59.")).to_be_in_viewport()
        await expect(page.locator("#below")).to_be_hidden()
        gate.opened.set()
        await expect(page.locator("#status")).to_be_hidden()


async def test_a_stopped_answer_stays_and_is_continued(tmp_path: Path, browser: Browser) -> None:
    model = Typist("It **was** begun\n\nand", Gate())
    async with serving(tmp_path, model) as web, browse(browser, web) as page:
        await begin_chat(page)
        await write(page, "go")
        await expect(page.locator("#now .words strong")).to_have_text("was")
        await KeyboardUser(page).button("Stop")
        stopped = page.locator(".item.assistant").last
        await expect(stopped).to_contain_text("stopped")
        await look(page, "stopped")
        await expect(stopped.locator("strong")).to_have_text("was")
        await expect(page.locator(".mine .words")).to_have_text(["go"])
        await expect(page.locator(".item.extra")).to_have_count(0)  # the mark is enough
        await expect(page.locator("#now > :not(#status)")).to_have_count(0)
        assert await violations(page) == []
        await KeyboardUser(page).button("Continue")
        await expect(page.locator(".item.assistant").last).to_contain_text("It goes on.")
        await expect(page.locator(".mine .words").last).to_have_text("go on")
        await expect(page.get_by_role("button", name="Continue")).to_be_hidden()


async def test_text_and_tools_of_a_running_turn_are_shown_in_order_in_a_later_tab(
    tmp_path: Path, browser: Browser
) -> None:
    gate = Gate()
    tool = Probe(gate=gate)
    model = ScriptedModel(
        together(says("I **look**."), calls("probe", text="one")), says("Found `it`.")
    )
    async with (
        serving(tmp_path, model, tools=[tool]) as web,
        browse(browser, web) as first,
        browse(browser, web, size=PHONE) as second,
    ):
        await begin_chat(first)
        await write(first, "go")
        await gate.reached.wait()
        await second.goto(first.url)
        for page in (first, second):
            await expect(page.locator("#now .assistant strong")).to_have_text("look")
            await expect(page.locator("#now .assistant .words + .step")).to_contain_text(
                "probe one"
            )
        gate.opened.set()
        for page in (first, second):
            await expect(page.locator(".item.assistant code").last).to_have_text("it")
            await expect(page.locator("#now > :not(#status)")).to_have_count(0)
            await expect(page.locator(".assistant .words + .step")).to_have_count(1)


async def test_a_stream_begins_whatever_the_browser_calls_its_last_event(tmp_path: Path) -> None:
    async with serving(tmp_path) as web, web.visit() as visit:
        for last in ("9" * 5_000, "\u0669", "-1", "x"):
            header = {"Last-Event-ID": last}
            async with visit.open(f"/live?c={await visit.new_chat()}", **header) as live:
                assert live.status == 200
                assert await live.content.readline() == b"retry: 500\n"


async def test_after_a_kill_in_a_stream_every_page_shows_the_question_once_and_its_answer(
    tmp_path: Path, browser: Browser
) -> None:
    port, model = free_port(), SlowServer(begins=True, hanging=2)
    async with model.serving(), contextlib.AsyncExitStack() as kept:
        config = {"model": {"base_url": model.base_url, "name": "m", "context_window": 32_000}}
        async with kill_at_the_end(tmp_path, port, config) as web:
            pages = [
                await kept.enter_async_context(browse(browser, web, size=size))
                for size in (DESKTOP, DESKTOP, PHONE)
            ]
            await begin_chat(pages[0])
            for page in pages[1:]:
                await page.goto(pages[0].url)
            await write(pages[0], "go")
            for page in pages:
                await expect(page.locator("#now .assistant .words")).to_have_text("Let me see")
            await write(pages[1], "and then?")
            for page in pages:
                await expect(page.locator(".mine .words")).to_have_text(["go", "and then?"])
        await _expect_lost(pages)
        async with kill_at_the_end(tmp_path, port, config):
            await model.until_asked(2)
            await pages[2].reload()
            for page in pages:  # the answer that begins again streams, too
                await expect(page.locator("#connection")).to_be_empty()
                await expect(page.locator("#now .assistant .words")).to_have_text("Let me see")
                await expect(page.locator(".mine .words")).to_have_text(["go", "and then?"])
            await look(pages[2], "killed-phone")
        await _expect_lost(pages)
        async with kill_at_the_end(tmp_path, port, config):
            for page in pages:
                await expect(page.locator(".assistant .words")).to_have_text(["Done.", "Done."])
                await expect(page.locator("#now > :not(#status)")).to_have_count(0)
                await expect(page.locator(".mine .words")).to_have_text(["go", "and then?"])
            await pages[1].reload()
            await expect(pages[1].locator(".mine .words")).to_have_text(["go", "and then?"])


async def _expect_lost(pages: Sequence[Page]) -> None:
    for page in pages:
        await expect(page.locator("#connection")).to_contain_text("Not connected")
        await expect(page.locator(".mine .words")).to_have_text(["go", "and then?"])
