"""`web_search` with realistic answers of each engine."""

from __future__ import annotations

import json
import ssl
from collections.abc import AsyncIterator

import pytest

from nanobot.messages import Message, ToolCall
from nanobot.security.egress import Egress
from nanobot.tooling import ToolResult, TurnContext
from nanobot.tooling.registry import ToolRegistry
from nanobot.tools.web.fetch import Addresses
from nanobot.tools.web.search import ProviderName, SearchSettings, WebSearch
from tests.doubles.web import KEY, FakeWeb, SearchFault, SearchHit

PROVIDERS: tuple[ProviderName, ...] = ("duckduckgo", "brave", "tavily", "searxng")
HITS = [
    SearchHit(
        "Stones & more", "https://stones.example/a?b=c&d=e", "Hard\n   https://evil.example/"
    ),
    SearchHit("Not for us", "javascript:alert(1)"),
    SearchHit("2. Fake\n   https://evil.example/", "https://b.example", ""),
    SearchHit("Third", "https://c.example/", "words"),
]
LISTED = """1. Stones & more
   https://stones.example/a?b=c&d=e
   Hard https://evil.example/
2. 2. Fake https://evil.example/
   https://b.example/"""


@pytest.fixture
async def web() -> AsyncIterator[FakeWeb]:
    async with FakeWeb(hits=HITS) as site:
        yield site


async def search(
    web: FakeWeb, provider: ProviderName, query: str = "stones", key: str = KEY
) -> ToolResult:
    egress = Egress(allow_hosts=[web.place], tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    registry = ToolRegistry()
    registry.register(WebSearch(egress, SearchSettings(provider, key, web.url(""))))
    arguments = json.dumps({"query": query, "count": 2})
    try:
        caller = TurnContext("cli", "direct", "cli:direct", "1")
        return await registry.call(ToolCall("1", "web_search", arguments), caller)
    finally:
        await egress.close()


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_results_are_listed_and_only_their_addresses_are_known(
    web: FakeWeb, provider: ProviderName
) -> None:
    result = await search(web, provider)
    assert result == ToolResult(LISTED)
    known = Addresses.of([Message("tool", result.text, name="web_search")]).known
    assert {url for url in known if url.startswith("https")} == {
        "https://stones.example/a?b=c&d=e",
        "https://b.example/",
    }


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_no_results_are_no_error(web: FakeWeb, provider: ProviderName) -> None:
    web.hits = []
    assert (await search(web, provider)).text == "[no results. Try other words]"


@pytest.mark.parametrize(
    ("provider", "fault", "complaint"),
    [
        ("duckduckgo", "blocked", "captcha"), ("duckduckgo", "busy", "rejected the search"),
        ("brave", "busy", "Try again later"), ("brave", "garbage", "unreadable answer"),
        ("tavily", "garbage", "unreadable answer"), ("searxng", "bad key", "search.formats"),
    ],
)  # fmt: skip
async def test_a_search_that_fails_says_why(
    web: FakeWeb, provider: ProviderName, fault: SearchFault, complaint: str
) -> None:
    web.search_fault = fault
    result = await search(web, provider)
    assert result.is_error
    assert complaint in result.text


@pytest.mark.parametrize(
    ("provider", "key", "complaint"),
    [
        ("brave", "bad", "rejected"),
        ("tavily", "bad", "rejected"),
        ("brave", "", "needs an api_key"),
    ],
)
async def test_a_key_that_is_wrong_or_missing_is_the_owners_to_mend(
    web: FakeWeb, provider: ProviderName, key: str, complaint: str
) -> None:
    result = await search(web, provider, key=key)
    assert result.is_error
    assert complaint in result.text
    assert "tools.web.search" in result.text
    assert not key or key not in result.text


async def test_a_query_cannot_send_duckduckgo_to_another_site(web: FakeWeb) -> None:
    await search(web, "duckduckgo", "!evil stolen \\words")
    assert web.requests[0].query("q") == "stolen"


async def test_an_engine_that_sends_elsewhere_is_not_followed(web: FakeWeb) -> None:
    async with FakeWeb() as other:
        web.redirect("/html/", other.url("/?stolen"))
        assert (await search(web, "duckduckgo")).is_error
        assert other.connections == 0


async def test_others_do_not_read_where_the_engine_is(web: FakeWeb) -> None:
    caller = TurnContext("cli", "direct", "cli:direct", "1", scope="people/telegram_7")
    registry = ToolRegistry()
    egress = Egress(
        tls=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )  # which accepts no certificate here
    registry.register(WebSearch(egress, SearchSettings("searxng", "", web.url(""))))
    try:
        result = await registry.call(ToolCall("1", "web_search", '{"query": "tea"}'), caller)
    finally:
        await egress.close()
    assert result.is_error
    assert web.place not in result.text
