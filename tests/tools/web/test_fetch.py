"""`web_fetch` through the gate, against a site on loopback."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import pytest

from nanobot.errors import ToolError
from nanobot.messages import Message, ToolCall
from nanobot.security.egress import Egress
from nanobot.tooling import OwnersPolicy, ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.web.fetch import WebFetch
from tests.doubles.web import FakeWeb

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="
)


@pytest.fixture
async def web() -> AsyncIterator[FakeWeb]:
    async with FakeWeb() as site:
        yield site


@asynccontextmanager
async def fetching(
    web: FakeWeb, pdf_text: Callable[[bytes], str] | None = None, megabytes: float = 1.0
) -> AsyncIterator[WebFetch]:
    egress = Egress(allow_hosts=[web.place], tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    yield WebFetch(egress, pdf_text, seconds=5.0, megabytes=megabytes)
    await egress.close()


async def fetch(
    web: FakeWeb, url: str, start: int = 0, messages_read: Iterable[Message] = (), **options: object
) -> ToolResult:
    caller = TurnContext(
        "cli",
        "direct",
        "cli:direct",
        "1",
        messages_read=lambda: messages_read,
        origins=lambda: ("web",),
    )
    pdf_text = options.get("pdf_text")
    async with fetching(web, pdf_text if callable(pdf_text) else None) as tool:
        registry = ToolRegistry(policy=OwnersPolicy() if options.get("guarded") else None)
        registry.register(tool)
        arguments = json.dumps({"url": url, "start": start})
        return await registry.call(ToolCall("1", "web_fetch", arguments), caller)


async def test_a_page_comes_as_markdown_with_its_title_and_where_it_came_from(web: FakeWeb) -> None:
    web.put("/end", "<title>Stones</title><h1>About</h1><p>Hard.")
    result = await fetch(web, web.redirect("/start", "/end"))
    assert result == ToolResult(f"URL: {web.url('/end')}\nTitle: Stones\n\n# About\n\nHard.")


async def test_text_and_json_come_as_they_are(web: FakeWeb) -> None:
    url = web.put("/data", '{"a": [1,  2]}', "application/json")
    assert (await fetch(web, url)).text == f'URL: {url}\n\n{{"a": [1,  2]}}'


async def test_an_image_comes_as_an_image(web: FakeWeb) -> None:
    result = await fetch(web, web.put("/stone", PNG, "image/png"))
    assert result.images == ((base64.b64encode(PNG).decode(), "image/png"),)


async def test_a_pdf_comes_as_its_text(web: FakeWeb) -> None:
    url = web.put("/paper", b"%PDF-1.7 ...", "application/pdf")
    assert (await fetch(web, url, pdf_text=lambda _: "On stones")).text.endswith("\n\nOn stones")
    assert "which can't be read here" in (await fetch(web, url)).text


async def test_a_long_page_is_read_piece_by_piece(web: FakeWeb) -> None:
    lines = [f"line {number}" for number in range(5_000)]
    url, start, seen = web.put("/long", "\n".join(lines), "text/plain"), 0, ""
    while True:
        text = (await fetch(web, url, start)).text
        assert len(text) < 12_500
        _, piece = text.split("\n\n", 1)
        body, _, note = piece.rpartition("\n\n[")
        seen += body + "\n"
        if "start=" not in note:
            break
        start = int(note.partition("start=")[2].rstrip("]"))
    assert seen.split() == "\n".join(lines).split()
    assert "has only" in (await fetch(web, url, 10**6)).text


@pytest.mark.parametrize(
    ("path", "complaint"),
    [
        ("large", "the limit of 1 MB"), ("endless", "the limit of 1 MB"),
        ("gzip-bomb", "the limit of 1 MB"), ("redirects/0", "more than 5 redirects"),
        ("binary", "binary"), ("zip", "unsupported type: application/zip"),
        ("to-loopback", "not on the public Internet"), ("truncated", "could not be read"),
    ],
)  # fmt: skip
async def test_a_hostile_page_is_a_clear_error(web: FakeWeb, path: str, complaint: str) -> None:
    result = await fetch(web, web.url(f"/hostile/{path}"))
    assert result.is_error
    assert complaint in result.text


async def test_a_page_that_lies_about_its_encoding_is_read(web: FakeWeb) -> None:
    assert (await fetch(web, web.url("/hostile/wrong-charset"))).text.endswith("Grüße aus Köln")


async def test_an_answer_that_says_no_is_an_error_with_a_way_on(web: FakeWeb) -> None:
    result = await fetch(web, web.url("/gone"))
    assert result.is_error
    assert "404 Not Found" in result.text
    assert "web_search" in result.text


async def test_an_empty_page_says_why(web: FakeWeb) -> None:
    assert "JavaScript" in (await fetch(web, web.put("/", "<div id=app></div>"))).text


async def test_an_address_from_elsewhere_waits_for_the_owner_and_is_not_asked(web: FakeWeb) -> None:
    url = web.put("/page", "text", "text/plain")
    person = [Message("user", f"read {web.url('/page')}"), Message("user", "x", origin="forwarded")]
    assert (await fetch(web, url, messages_read=person, guarded=True)).text.endswith("text")
    assert (await fetch(web, f"{url}?stolen", messages_read=person, guarded=True)).is_error
    assert [asked.target for asked in web.requests] == ["/page"]


async def test_a_risk_shows_the_whole_address_as_it_will_be_asked(web: FakeWeb) -> None:
    caller = TurnContext("cli", "direct", "cli:direct", "1")
    async with fetching(web) as tool:
        risk = await tool.risk(tool.arguments(url="https://аpple.com/?a=ä"), caller)
        assert risk is not None
        assert risk.details == "https://xn--pple-43d.com/?a=%C3%A4"
        with pytest.raises(ToolError):
            await tool.risk(tool.arguments(url="file:///etc/passwd"), caller)


def make_calls(*urls: str) -> Message:
    calls = [
        ToolCall(str(number), "web_fetch", json.dumps({"url": url}))
        for number, url in enumerate(urls)
    ]
    return Message("assistant", "", tool_calls=tuple(calls))


class Conversation:
    """A conversation with untrusted content whose model fetches, step by step, with no one to
    ask."""

    def __init__(self, tool: WebFetch, *said: str) -> None:
        self.messages = [Message("user", text) for text in said]
        self._registry = ToolRegistry(policy=OwnersPolicy())
        self._registry.register(tool)

    async def step(self, *urls: str, helper: bool = False) -> list[ToolResult]:
        calls = make_calls(*urls)
        before = tuple(self.messages)
        if not helper:
            self.messages.append(calls)
        caller = TurnContext(
            "cli",
            "direct",
            "helper:1" if helper else "cli:direct",
            "1",
            messages_read=lambda: (*before, calls),
            origins=lambda: ("tool:web_fetch",),
            conversation="cli:direct 1",
        )
        return await asyncio.gather(*(self._registry.call(c, caller) for c in calls.tool_calls))


def count_answers(results: Iterable[ToolResult]) -> int:
    return sum(not result.is_error for result in results)


async def test_where_a_redirect_led_is_not_fetched_unasked(web: FakeWeb) -> None:
    start = web.redirect("/start", "/alphabet/a")
    web.put("/alphabet/a", "text", "text/plain")
    async with fetching(web) as tool:
        conversation = Conversation(tool, f"read {start}")
        (page,) = await conversation.step(start)
        assert not page.is_error
        conversation.messages.append(Message("tool", page.text, name="web_fetch"))
        assert count_answers(await conversation.step(web.url("/alphabet/a"))) == 0
    assert [asked.target for asked in web.requests] == ["/start", "/alphabet/a"]


async def test_an_address_is_asked_for_once_however_often_it_is_fetched(web: FakeWeb) -> None:
    url = web.put("/page", "text", "text/plain")
    missing = web.url("/missing")
    async with fetching(web) as tool:
        conversation = Conversation(tool, f"read {url} {missing}")
        for _ in range(3):
            assert count_answers(await conversation.step(url, url)) == 2
            assert count_answers(await conversation.step(missing, missing)) == 0
        assert count_answers(await conversation.step(url, helper=True)) == 1
    assert [asked.target for asked in web.requests] == ["/page", "/missing"]


async def test_an_address_that_is_typed_again_is_asked_for_again(web: FakeWeb) -> None:
    url = web.put("/page", "text", "text/plain")
    async with fetching(web) as tool:
        conversation = Conversation(tool, f"read {url}")
        await conversation.step(url)
        conversation.messages.append(Message("user", f"and now? {url}"))
        assert count_answers(await conversation.step(url)) == 1
    assert len(web.requests) == 2


@pytest.mark.parametrize("at_once", [True, False])
async def test_ten_addresses_of_a_conversation_are_fetched_unasked(
    web: FakeWeb, at_once: bool
) -> None:
    urls = [web.put(f"/{number}", "text", "text/plain") for number in range(16)]
    async with fetching(web) as tool:
        conversation = Conversation(tool, " ".join(urls))
        steps = [urls] if at_once else [[url] for url in urls]
        assert sum([count_answers(await conversation.step(*step)) for step in steps]) == 10
        assert count_answers(await conversation.step(*urls, helper=True)) == 10
    assert len(web.requests) == 10


async def test_helpers_of_a_conversation_have_ten_addresses_together(web: FakeWeb) -> None:
    urls = [web.put(f"/{number}", "text", "text/plain") for number in range(30)]
    async with fetching(web) as tool:
        conversation = Conversation(tool, " ".join(urls))
        for start in range(0, 30, 5):
            await conversation.step(*urls[start : start + 5], helper=True)
    assert len(web.requests) == 10


async def test_what_was_fetched_is_known_after_a_restart(web: FakeWeb) -> None:
    urls = [web.put(f"/{number}", "text", "text/plain") for number in range(12)]
    async with fetching(web) as tool:
        conversation = Conversation(tool, " ".join(urls))
        for url in urls[:9]:
            await conversation.step(url)
    async with fetching(web) as restarted:
        again = Conversation(restarted)
        again.messages = conversation.messages
        assert count_answers(await again.step(urls[0])) == 0
        assert count_answers(await again.step(*urls[9:])) == 1
    assert len(web.requests) == 10
