"""`web_search`: addresses for words, from the search engine of the owner's choice.

Invariant: a request goes to the configured address and follows no redirect elsewhere; an answer
that is none becomes a `ToolError` with what to do about it.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from html import unescape
from typing import Literal, TypeVar
from urllib.parse import urlencode

from pydantic import AliasChoices, BaseModel, Field, ValidationError

from nanobot.errors import ToolError
from nanobot.security.egress import Egress, EgressLimits, EgressRequest, EgressResponse
from nanobot.security.egress.urls import EgressRefused, parse_url
from nanobot.text import shortened
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext
from nanobot.tools.web.pages import decode, read_hits

T = TypeVar("T", bound=BaseModel)

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
_BAD_KEY = frozenset({401, 403, 422})
_OWNERS = "Tell the owner: it is set with tools.web.search in the configuration."


@dataclass(frozen=True, slots=True)
class SearchSettings:
    """Which engine. `base_url` replaces its own address and is needed for `searxng`."""

    provider: ProviderName = "duckduckgo"
    api_key: str = ""
    base_url: str = ""

    @property
    def address(self) -> str:
        """Where to ask; empty where that is not said."""
        return (self.base_url or _ADDRESSES[self.provider]).rstrip("/")


class WebSearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=500)
    count: int = Field(default=5, ge=1, le=MAX_HITS)


@dataclass(frozen=True, slots=True)
class WebSearch(Tool):
    """Asks the configured engine through `egress`, which must let its address pass."""

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
            raise ToolError(f"searching with {settings.provider} needs its base_url", hint=_OWNERS)
        if settings.provider in ("brave", "tavily") and not settings.api_key:
            raise ToolError(f"searching with {settings.provider} needs an api_key", hint=_OWNERS)
        search = _ENGINES[settings.provider]
        hits = await search(self.egress, settings, arguments.query, arguments.count)
        lines = _listed(hits, arguments.count)
        return ToolResult("\n".join(lines) or "[nothing found; try other words]")


Hit = tuple[str, str, str]
"""Title, URL and snippet, as the engine gave them."""


class _Result(BaseModel):
    title: str | None = ""
    url: str = ""
    content: str | None = Field("", validation_alias=AliasChoices("content", "description"))


class _Answer(BaseModel):
    results: list[_Result] = []


class _BraveAnswer(BaseModel):
    web: _Answer | None = None


async def _duckduckgo(egress: Egress, settings: SearchSettings, query: str, _: int) -> list[Hit]:
    """The page for browsers without JavaScript; no key. A leading `!` would send the query to
    another site: it is not sent."""
    words = " ".join(word for word in query.split() if word[:1] not in "!\\")
    request = EgressRequest(f"{settings.address}/html/?{urlencode({'q': words})}")
    answer = await _asked(egress, settings, request)
    html = decode(answer.body, answer.headers.get("content-type", ""))
    page = await asyncio.to_thread(read_hits, html, answer.url)
    if page.blocked or answer.status == 202:
        raise ToolError(
            "DuckDuckGo wants to see a person and does not answer programs from here now",
            hint="Try again later. The owner can set another provider (tools.web.search).",
        )
    return list(page.hits)


async def _brave(egress: Egress, settings: SearchSettings, query: str, count: int) -> list[Hit]:
    asked = urlencode({"q": query[:400], "count": count, "text_decorations": "false"})
    headers = {"X-Subscription-Token": settings.api_key, "Accept": "application/json"}
    url = f"{settings.address}/res/v1/web/search?{asked}"
    answer = await _asked(egress, settings, EgressRequest(url, headers=headers))
    found = _hits(_parsed(_BraveAnswer, answer, settings).web or _Answer())
    return [(_plain(title), url, _plain(snippet)) for title, url, snippet in found]


async def _tavily(egress: Egress, settings: SearchSettings, query: str, count: int) -> list[Hit]:
    body = json.dumps({"query": query[:400], "max_results": count}).encode()
    headers = {
        "Authorization": f"Bearer {settings.api_key}",
        "Content-Type": "application/json",
    }
    request = EgressRequest(f"{settings.address}/search", "POST", headers, body)
    return _hits(_parsed(_Answer, await _asked(egress, settings, request), settings))


async def _searxng(egress: Egress, settings: SearchSettings, query: str, _: int) -> list[Hit]:
    """A SearXNG of the owner's or of somebody they trust."""
    asked = urlencode({"q": query, "format": "json"})
    request = EgressRequest(f"{settings.address}/search?{asked}")
    return _hits(_parsed(_Answer, await _asked(egress, settings, request), settings))


_ENGINES: dict[ProviderName, Callable[[Egress, SearchSettings, str, int], Awaitable[list[Hit]]]] = {
    "duckduckgo": _duckduckgo,
    "brave": _brave,
    "tavily": _tavily,
    "searxng": _searxng,
}


async def _asked(
    egress: Egress, settings: SearchSettings, request: EgressRequest
) -> EgressResponse:
    """The answer, where it is one. Raises `ToolError`."""
    answer, provider = await egress.fetch(request, _LIMITS), settings.provider
    if answer.status == 429 or (answer.status == 432 and provider == "tavily"):
        raise ToolError(f"{provider} takes no more searches for now", hint="Try again later.")
    if answer.status == 403 and provider == "searxng":
        raise ToolError(
            "this SearXNG does not answer programs",
            hint="Its owner must add `json` to `search.formats` in its settings.",
        )
    if answer.status in _BAD_KEY:
        raise ToolError(f"{provider} refused the search ({answer.status})", hint=_OWNERS)
    if not 200 <= answer.status < 300:
        raise ToolError(f"{provider} answered {answer.status}", hint="Try again later.")
    return answer


def _parsed(kind: type[T], answer: EgressResponse, settings: SearchSettings) -> T:
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as error:
        raise ToolError(f"{settings.provider} gave no answer that can be read") from error


def _hits(answer: _Answer) -> list[Hit]:
    return [(one.title or "", one.url, one.content or "") for one in answer.results]


def _plain(text: str) -> str:
    return unescape(_TAG.sub("", text))


def _listed(hits: Iterable[Hit], count: int) -> list[str]:
    """Three lines each: a number and the title, the URL, the snippet. All that came from outside is
    kept to its line, and only what follows a number may be fetched (`Addresses`)."""
    lines: list[str] = []
    number = 0
    for title, address, text in hits:
        url = _url(address)
        if not url or number == count:
            continue
        number += 1
        lines.append(f"{number}. {shortened(title, _TITLE) or url}")
        lines.append(f"   {url}")
        if snippet := shortened(text, _SNIPPET):
            lines.append(f"   {snippet}")
    return lines


def _url(text: str) -> str:
    try:
        url = str(parse_url(text))
    except EgressRefused:
        return ""
    return url if len(url) <= _URL else ""
