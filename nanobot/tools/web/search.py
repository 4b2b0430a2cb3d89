"""`web_search`: search with the engine that the owner configured.

Invariant: requests go only to the configured address and follow no redirect. An invalid answer
becomes a `ToolError` with advice."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import urlencode

import msgspec
from msgspec import Meta, Struct, field

from nanobot.errors import ToolError, ToolUnavailable
from nanobot.parsing import off_loop
from nanobot.security.egress import Egress, EgressLimits, EgressRequest, EgressResponse
from nanobot.security.egress.urls import EgressError, EgressRefused, parse_url
from nanobot.text import shorten
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext

SEARCH = "web_search"

ProviderName = Literal["duckduckgo", "brave", "tavily", "searxng"]

MAX_HITS = 10
_TITLE, _URL, _SNIPPET = 150, 800, 300
_LIMITS = EgressLimits(seconds=20.0, bytes=3_000_000, redirects=0)
_ADDRESSES: dict[ProviderName, str] = {
    "duckduckgo": "https://html.duckduckgo.com",
    "brave": "https://api.search.brave.com",
    "tavily": "https://api.tavily.com",
    "searxng": "",
}
_TAG = re.compile(r"<[^<>]{0,200}>")
_LATER = frozenset({429, 432})
_OWNERS = "Ask the owner to set tools.web.search in the configuration."


class SearchSettings(Struct, frozen=True):
    """The search engine. `base_url` replaces its address and is required for `searxng`."""

    provider: ProviderName = "duckduckgo"
    api_key: str = ""
    base_url: str = ""

    @property
    def address(self) -> str:
        """The engine's address, or an empty text if it is not configured."""
        return (self.base_url or _ADDRESSES[self.provider]).rstrip("/")


class WebSearchArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(min_length=1, max_length=500)]
    count: Annotated[int, Meta(ge=1, le=MAX_HITS)] = 5


class WebSearch(Tool, Struct, frozen=True):
    """Searches through `egress`, which must allow the engine's address."""

    egress: Egress
    settings: SearchSettings = field(default_factory=SearchSettings)
    name = SEARCH
    description = "Search the web: titles, URLs and snippets."
    arguments = WebSearchArguments

    async def __call__(self, arguments: WebSearchArguments, caller: TurnContext) -> ToolResult:
        settings = self.settings
        if not arguments.query.strip():
            raise ToolError("the query is empty")
        if not settings.address:
            raise ToolUnavailable(f"search with {settings.provider} needs a base_url", hint=_OWNERS)
        if settings.provider in ("brave", "tavily") and not settings.api_key:
            raise ToolUnavailable(f"search with {settings.provider} needs an api_key", hint=_OWNERS)
        query, count = arguments.query, arguments.count
        try:
            answer = await self.egress.fetch(build_request(settings, query, count), _LIMITS)
        except (EgressError, EgressRefused) as error:  # its text names the engine's address
            raise ToolUnavailable(str(error), hint=error.hint) from error
        refuse_failure(answer, settings.provider)
        if settings.provider == "duckduckgo":
            hits = await read_page_hits(answer)
        else:
            hits = await off_loop(len(answer.body), read_json_hits, answer, settings.provider)
        return ToolResult("\n".join(render_hits(hits, count)) or "[no results. Try other words]")


Hit = tuple[str, str, str]
"""Title, URL and snippet, as received."""


class _Result(Struct):
    """A hit. The snippet is `content` or `description`, depending on the engine."""

    title: str | None = ""
    url: str = ""
    content: str | None = ""
    description: str | None = ""


class _Answer(Struct):
    results: list[_Result] = field(default_factory=list)
    web: _Answer | None = None


def build_request(settings: SearchSettings, query: str, count: int) -> EgressRequest:
    """Return the request for an engine. For DuckDuckGo it is the page without JavaScript. There a
    leading `!` would send the query to another site, so it is removed."""
    address, key = settings.address, settings.api_key
    if settings.provider == "duckduckgo":
        # bangs lead to other sites
        words = " ".join(word for word in query.split() if word[:1] not in "!\\")
        return EgressRequest(f"{address}/html/?{urlencode({'q': words})}")
    if settings.provider == "brave":
        asked = {"q": query[:400], "count": count, "text_decorations": "false"}
        headers = {"X-Subscription-Token": key, "Accept": "application/json"}
        url = f"{address}/res/v1/web/search?{urlencode(asked)}"
        return EgressRequest(url, headers=headers)
    if settings.provider == "tavily":
        body = json.dumps({"query": query[:400], "max_results": count}).encode()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return EgressRequest(f"{address}/search", "POST", headers, body)
    return EgressRequest(f"{address}/search?{urlencode({'q': query, 'format': 'json'})}")


async def read_page_hits(answer: EgressResponse) -> list[Hit]:
    from nanobot.tools.web.pages import decode, read_hits  # 0.2 MB until a page is read

    html = decode(answer.body, answer.headers.get("content-type", ""))
    page = await asyncio.to_thread(read_hits, html, answer.url)
    if page.blocked or answer.status == 202:
        raise ToolError(
            "DuckDuckGo is asking for a captcha and does not answer programs at the moment",
            hint="Try again later. The owner can choose another provider with tools.web.search.",
        )
    return list(page.hits)


def read_json_hits(answer: EgressResponse, provider: ProviderName) -> list[Hit]:
    try:
        found = msgspec.json.decode(answer.body, type=_Answer)
    except (ValueError, RecursionError) as error:
        raise ToolUnavailable(f"{provider} returned an unreadable answer") from error
    results = (found.web or found).results[: 2 * MAX_HITS]  # some may be unusable
    return [
        (strip_tags(one.title or ""), one.url, strip_tags(one.content or one.description or ""))
        for one in results
    ]


def refuse_failure(answer: EgressResponse, provider: ProviderName) -> None:
    """Raise `ToolError` for an error status."""
    if not 200 <= answer.status < 300:
        later = answer.status in _LATER or answer.status >= 500
        hint = "Try again later." if later else _OWNERS
        if answer.status == 403 and provider == "searxng":
            hint = "The operator of SearXNG must add `json` to `search.formats` in its settings."
        raise ToolUnavailable(f"{provider} rejected the search ({answer.status})", hint=hint)


def strip_tags(text: str) -> str:
    from html import unescape

    return unescape(_TAG.sub("", text))


def render_hits(hits: Iterable[Hit], count: int) -> list[str]:
    """Return three lines per hit: number and title, URL, snippet. External text stays on its line,
    and only the URL after a number may be fetched (`Addresses`)."""
    lines: list[str] = []
    number = 0
    for title, address, text in hits:
        url = clean_url(address)
        if not url or number == count:
            continue
        number += 1
        lines.append(f"{number}. {shorten(title, _TITLE) or url}")
        lines.append(f"   {url}")
        if snippet := shorten(text, _SNIPPET):
            lines.append(f"   {snippet}")
    return lines


def clean_url(text: str) -> str:
    try:
        url = str(parse_url(text))
    except EgressRefused:
        return ""
    return url if len(url) <= _URL else ""
