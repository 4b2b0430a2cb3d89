"""Untrusted text is text in every place of the pages: titles, names, hits, versions, files, models,
jobs, commands, notices, steps, questions, and a streamed answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

from playwright.async_api import Browser, Page, expect

from nanobot.messages import Attachment, Message, ToolCall
from nanobot.providers.port import Prompt, Reply
from nanobot.session.records import Metadata, Retraction, encode, stem_of
from nanobot.testing.model import ScriptedModel, calls, says, together
from nanobot.tooling import Arguments, Risk, TurnContext
from tests.channels.web.browser import begin_chat, browse, write
from tests.channels.web.support import Web, serving
from tests.channels.web.test_hostile_text import strings
from tests.doubles.openai.server import FakeOpenAI
from tests.support import Probe

_AT = datetime(2026, 11, 1, tzinfo=UTC)
_PIECE = 20
"""Hits of one search."""
_SUSPECTS = """async (paths) => {
    const own = (url) => !url || new URL(url, location).origin === location.origin;
    const attribute = /^on|^(srcdoc|formaction|style|background|ping)$/i;
    const element = /^(iframe|object|embed|base|style|noscript|template|frame|applet)$/i;
    const isSuspect = (one) => {
        const at = (name) => one.getAttribute(name), kind = one.localName;
        const address = at("src") ?? at("action") ?? at("href");
        return [...one.attributes].some((a) => attribute.test(a.name) && one.id !== "text")
            || element.test(kind)
            || (kind === "script" && !/^\\/static\\/app.*\\.js/.test(at("src")))
            || (kind === "link" && !at("href").startsWith("/static/"))
            || (/^(img|audio|form|input|use|image)$/.test(kind) && !own(address))
            || (kind === "a" && !/^(https?:|mailto:)$/.test(one.protocol));
    };
    const pages = [document];
    for (const path of paths) {
        const answer = await fetch(path, {headers: {Accept: "text/html"}});
        if (!answer.ok) return [`${path}: ${answer.status}`];
        pages.push(new DOMParser().parseFromString(await answer.text(), "text/html"));
    }
    return pages.flatMap((page) => [...page.querySelectorAll("*")].filter(isSuspect)
        .map((one) => one.outerHTML.slice(0, 200)));
}"""
"""Find everything that no page of nanobot has, on this page and on others."""
_LOAD_LIST = """async () => {
    for (let more; (more = document.querySelector("#list [data-more]")); )
        more.closest("li").outerHTML = await (await fetch(more.dataset.more)).text();
}"""


@dataclass(frozen=True)
class Dangerous(Probe):
    """A tool that asks with the text of its call, and returns it."""

    name: str = "danger"

    async def risk(self, arguments: Arguments, caller: TurnContext) -> Risk:
        return Risk("mcp", getattr(arguments, "text", ""), getattr(arguments, "text", ""))


def _write_chats(home: Path, texts: Sequence[str]) -> None:
    """Write a chat for each text, every second one archived, as a title, name, file and word."""
    (home / "sessions").mkdir()
    for number, text in enumerate(texts):
        key, at = f"telegram:{number}", _AT + timedelta(minutes=number)
        facts = {"title": text, "name": text, "archived": number % 2 == 1}
        words = f"zebra batch{number // _PIECE} {text}"
        file = Attachment("x.txt", name=text, size=12)
        call = ToolCall("c1", "probe", json.dumps({"text": text}))
        lines: tuple[Message | Metadata | Retraction, ...] = (
            Metadata(key, at, at),
            Message("user", words, at, 1, turn_id="t1", media=(file,)),
            Message("assistant", f"{text}\n\n{text}", at, 2, turn_id="t1", tool_calls=(call,)),
            Message("tool", text, at, 3, turn_id="t1", tool_call_id="c1"),
            Retraction("t1", 1, 3, at),
            Message("user", words, at, 4, turn_id="t2", replaces=("t1",), media=(file,)),
            Message("assistant", f"- {text}\n\n> {text}", at, 5, turn_id="t2"),
            Metadata(key, at, at, metadata=facts),
        )
        path = home / "sessions" / f"{stem_of(key)}.jsonl"
        path.write_text("".join(encode(one) for one in lines))


def _paths(count: int) -> Iterator[str]:
    """Yield the addresses of chats, their versions, hits, and pages of changes."""
    for number in range(count):
        key = f"telegram:{number}"
        yield f"/chat?{urlencode({'c': key})}"
        yield f"/chat/versions?{urlencode({'c': key, 'turn': 't2'})}"
        yield f"/chat/delete?{urlencode({'c': key})}"
        yield f"/chat/menu?{urlencode({'c': key})}"
        if number % _PIECE == 0:
            yield f"/chat?q=batch{number // _PIECE}&list=1"


async def _expect_text_only(page: Page, *others: str) -> None:
    assert await page.evaluate(_SUSPECTS, others) == [], page.url


async def test_no_stored_text_becomes_more(tmp_path: Path, browser: Browser) -> None:
    texts = strings()
    _write_chats(tmp_path, texts)
    async with serving(tmp_path) as web, browse(browser, web) as page:
        ran: list[str] = []
        page.on("dialog", lambda dialog: ran.append(dialog.message))
        for at in ("/chat?list=1", "/chat?archived=1"):
            await page.goto(f"{web.base}{at}")
            await page.evaluate(_LOAD_LIST)
            assert await page.locator("#list .row").count() >= len(texts) // 2
            await _expect_text_only(page)
        await _expect_text_only(page, *_paths(len(texts)))
        for number in range(0, len(texts), _PIECE):
            await page.goto(f"{web.base}/chat?c=telegram:{number}")
            await expect(page.locator(".item .chip")).to_have_count(1)
            await expect(page.locator(".item .words")).to_have_count(2)
            await _expect_text_only(page)
        await _check_jobs(web, page, texts)
        assert ran == []


async def _check_jobs(web: Web, page: Page, texts: Sequence[str]) -> None:
    for start in range(0, len(texts), _PIECE):
        text = "\n".join(texts[start : start + _PIECE])
        given = {"schedule": "every day at 8", "message": text, "kind": "reminder"}
        await page.goto(f"{web.base}/jobs")
        await page.request.post(
            f"{web.base}/jobs/add",
            form={**given, "token": await page.get_attribute("[name=form-token]", "content") or ""},
        )
        await page.goto(f"{web.base}/jobs")
        await expect(page.locator(".entries .row").first).to_be_visible()
        await _expect_text_only(page)


async def test_no_name_of_a_model_becomes_more(tmp_path: Path, browser: Browser) -> None:
    texts = strings()
    for start in range(0, len(texts), 250):
        async with FakeOpenAI(models=texts[start : start + 250]) as model:
            config = {"model": {"base_url": model.base_url, "name": "fake", "api_key": "k"}}
            home = tmp_path / str(start)
            async with (
                serving(home, config=config) as web,
                browse(browser, web) as page,
            ):
                await begin_chat(page)
                await page.locator(".model summary").click()
                await expect(page.locator("[data-model]").nth(1)).to_be_visible()
                await _expect_text_only(page)


def _answer(prompt: Prompt) -> Reply:
    last = prompt.messages[-1]
    if last.role == "tool":
        return says("zq8 " + last.text[-2_000:])
    name = "danger" if "danger" in last.text else "probe"
    return together(says(last.text), calls(name, text=last.text))


async def test_no_text_that_comes_live_becomes_more(tmp_path: Path, browser: Browser) -> None:
    model, tools = ScriptedModel(author=_answer), [Probe(), Dangerous(effects=True)]
    config = {"tools": {"approval": {"mcp": "ask"}}}
    async with (
        serving(tmp_path, model, config=config, tools=tools) as web,
        browse(browser, web) as page,
    ):
        ran: list[str] = []
        page.on("dialog", lambda dialog: ran.append(dialog.message))
        await begin_chat(page)
        for number, text in enumerate(strings()):
            if number % 25 == 0:
                await begin_chat(page)
            await write(page, f"{'danger' if number % 10 == 1 else ''}{text}")
            if number % 10 == 1:
                await page.locator("[data-approval]").wait_for()
                await _expect_text_only(page)
                await page.locator("[data-answer=once]").click()
            await page.get_by_text("zq8").nth(number % 25).wait_for()
            await _expect_text_only(page)
        assert ran == []


async def test_no_command_or_notice_becomes_more(tmp_path: Path, browser: Browser) -> None:
    texts = strings()
    menu = [{"name": f"x{number}{text}", "summary": text} for number, text in enumerate(texts)]
    async with serving(tmp_path) as web, browse(browser, web) as page:
        text = await begin_chat(page)
        await page.route("**/chat/commands", lambda route: route.fulfill(json=menu))
        refusal = {"error": "\n".join(texts), "hint": "\n".join(texts)}
        await page.route("**/chat/send", lambda route: route.fulfill(status=400, json=refusal))
        await text.press_sequentially("/x")
        await expect(page.get_by_role("option")).to_have_count(len(texts))
        await _expect_text_only(page)
        await text.press("Tab")
        await text.press("Enter")
        await expect(page.locator("#toast p")).to_be_visible()
        await _expect_text_only(page)
