"""Which addresses may be fetched without asking, and which were fetched already. Pure.

An address can carry out whatever its author writes into it. One that the person wrote, or that a
search engine returned, was not put together by a model that has read somebody else's text. What
counts is the line of a search result that nanobot wrote itself, and never its title, its snippet or
the text of a page. Where a redirect led does not count either: a server could hand out an alphabet
of addresses that way. Because a choice among known addresses still says something, and so does
fetching one of them often, both are counted.

The search engines: what is asked of each, and what its answer says.

What always holds: a request goes to the configured address and follows no redirect elsewhere; an
answer that is none becomes a `ToolError` with what to do about it.

`web_search`: addresses for words.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from html import unescape
from typing import Literal, Protocol, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, Field, ValidationError

from nanobot.errors import ToolError
from nanobot.messages import Message, ToolCall
from nanobot.schema import parse_arguments
from nanobot.security.egress import (
    Egress,
    EgressLimits,
    EgressRefused,
    EgressRequest,
    EgressResponse,
    Url,
    parse_url,
)
from nanobot.tooling import Arguments, Caller, ToolResult
from nanobot.tools.web.pages import decode, read_hits

SEARCH, FETCH = "web_search", "web_fetch"

_ERROR = "Error: "
"""How the result of a call that failed begins."""

_HIT = re.compile(r"^[0-9]{1,3}\. .*\n   (https?://\S+)$", re.MULTILINE)
_TYPED = re.compile(r"https?://[^\s<>\"]+", re.IGNORECASE)
_BARE = re.compile(
    r"(?<![\w@/.:-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,24}(?::[0-9]{1,5})?"
    r"(?:/[^\s<>\"]*)?(?![\w@-])",
    re.IGNORECASE,
)
_MOST_TRAILING = 8
_TRAILING = ".,;:!?)]}'*_`…»”’"


class WebFetchArguments(Arguments):
    url: str
    start: int = Field(default=0, ge=0, description="Character to read on from.")


@dataclass(slots=True)
class Addresses:
    """The addresses in a conversation, as `parse_url` writes them.

    `known` are those that the person typed or a search returned. `typed` says in how many messages
    the person named each. `called` are the known ones that `web_fetch` was called with, in order.
    `earlier` are those called in a step before the present one, with the count in `typed` at that
    time: an address that the person types again may be fetched again.
    """

    known: set[str] = field(default_factory=set)
    typed: Counter[str] = field(default_factory=Counter)
    called: dict[str, None] = field(default_factory=dict)
    earlier: set[tuple[str, int]] = field(default_factory=set)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Addresses:
        """Those in `messages`; the present step is the last one with calls."""
        found = cls()
        step: set[tuple[str, int]] = set()
        for message in messages:
            if message.tool_calls:
                found.earlier |= step
                step = found._calls(message.tool_calls)
            named = {str(url) for text in _found(message) for url in _urls(text)}
            found.known |= named
            if message.role == "user":
                found.typed.update(named)
        return found

    def _calls(self, calls: Iterable[ToolCall]) -> set[tuple[str, int]]:
        urls = [url for call in calls if (url := _called(call)) in self.known]
        self.called.update(dict.fromkeys(urls))
        return {(url, self.typed[url]) for url in urls}


def _called(call: ToolCall) -> str:
    """The address that a call of `web_fetch` is about; empty where there is none."""
    if call.name.strip().removeprefix("functions.") != FETCH:
        return ""
    try:
        return str(parse_url(parse_arguments(WebFetchArguments, call.arguments).url))
    except ToolError:
        return ""


def _found(message: Message) -> Iterator[str]:
    if message.role == "tool":
        # An error repeats what the model wrote.
        if message.name == SEARCH and not message.content.startswith(_ERROR):
            yield from _HIT.findall(message.content)
    elif own := message.own_words:
        for text in _TYPED.findall(own):
            yield from _readings(text)
        for text in _BARE.findall(own):
            yield from _readings(f"https://{text}")


def _readings(text: str) -> Iterator[str]:
    """An address as it is written and without the punctuation that may belong to the sentence."""
    yield text
    for _ in range(_MOST_TRAILING):
        if not text or text[-1] not in _TRAILING:
            return
        text = text[:-1]
        yield text


def _urls(text: str) -> Iterator[Url]:
    try:
        url = parse_url(text)
    except EgressRefused:
        return
    yield url
    if url.scheme == "http" and url.port == 80:
        yield Url("https", url.host, 443, url.target)
    elif url.scheme == "https" and url.port == 443:
        yield Url("http", url.host, 80, url.target)


_Answer = TypeVar("_Answer", bound=BaseModel)

ProviderName = Literal["duckduckgo", "brave", "tavily", "searxng"]

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


@dataclass(frozen=True, slots=True)
class Hit:
    """One result, as the engine gave it."""

    title: str
    url: str
    snippet: str


class Engine(Protocol):
    """One search engine."""

    async def search(self, egress: Egress, query: str, count: int) -> list[Hit]:
        """About `count` results. Raises `ToolError`."""
        ...


def engine_of(settings: SearchSettings) -> Engine:
    """The engine for these settings. Raises `ToolError` where they are not complete."""
    if not settings.address:
        raise ToolError(f"searching with {settings.provider} needs its base_url", hint=_OWNERS)
    if settings.provider in ("brave", "tavily") and not settings.api_key:
        raise ToolError(f"searching with {settings.provider} needs an api_key", hint=_OWNERS)
    engines: dict[ProviderName, type[DuckDuckGo | Brave | Tavily | SearXNG]] = {
        "duckduckgo": DuckDuckGo,
        "brave": Brave,
        "tavily": Tavily,
        "searxng": SearXNG,
    }
    return engines[settings.provider](settings)


@dataclass(frozen=True, slots=True)
class DuckDuckGo:
    """The page for browsers without JavaScript; no key."""

    settings: SearchSettings

    async def search(self, egress: Egress, query: str, count: int) -> list[Hit]:
        """See `Engine`. A leading `!` would send the query to another site: it is not sent."""
        words = " ".join(word for word in query.split() if word[:1] not in "!\\")
        url = f"{self.settings.address}/html/?{urlencode({'q': words})}"
        answer = await _asked(egress, EgressRequest(url), "duckduckgo")
        html = decode(answer.body, answer.headers.get("content-type", ""))
        page = await asyncio.to_thread(read_hits, html, answer.url)
        if page.blocked or answer.status == 202:
            raise ToolError(
                "DuckDuckGo wants to see a person and does not answer programs from here now",
                hint="Try again later. The owner can set another provider (tools.web.search).",
            )
        return [Hit(*hit) for hit in page.hits]


class _BraveHit(BaseModel):
    title: str = ""
    url: str = ""
    description: str = ""


class _BraveWeb(BaseModel):
    results: list[_BraveHit] = []


class _BraveAnswer(BaseModel):
    web: _BraveWeb | None = None


@dataclass(frozen=True, slots=True)
class Brave:
    """Brave's API."""

    settings: SearchSettings

    async def search(self, egress: Egress, query: str, count: int) -> list[Hit]:
        """See `Engine`."""
        asked = urlencode({"q": query[:400], "count": count, "text_decorations": "false"})
        headers = {"X-Subscription-Token": self.settings.api_key, "Accept": "application/json"}
        url = f"{self.settings.address}/res/v1/web/search?{asked}"
        answer = await _asked(egress, EgressRequest(url, headers=headers), "brave")
        found = _parsed(_BraveAnswer, answer, "brave").web or _BraveWeb()
        return [Hit(_plain(hit.title), hit.url, _plain(hit.description)) for hit in found.results]


class _ContentHit(BaseModel):
    title: str | None = ""
    url: str = ""
    content: str | None = ""


class _ContentAnswer(BaseModel):
    results: list[_ContentHit] = []


@dataclass(frozen=True, slots=True)
class Tavily:
    """Tavily's API."""

    settings: SearchSettings

    async def search(self, egress: Egress, query: str, count: int) -> list[Hit]:
        """See `Engine`."""
        body = json.dumps({"query": query[:400], "max_results": count}).encode()
        headers = {
            "Authorization": f"Bearer {self.settings.api_key}",
            "Content-Type": "application/json",
        }
        request = EgressRequest(f"{self.settings.address}/search", "POST", headers, body)
        answer = await _asked(egress, request, "tavily")
        return _content_hits(_parsed(_ContentAnswer, answer, "tavily"))


@dataclass(frozen=True, slots=True)
class SearXNG:
    """A SearXNG of the owner's or of somebody they trust."""

    settings: SearchSettings

    async def search(self, egress: Egress, query: str, count: int) -> list[Hit]:
        """See `Engine`."""
        asked = urlencode({"q": query, "format": "json"})
        request = EgressRequest(f"{self.settings.address}/search?{asked}")
        answer = await egress.fetch(request, _LIMITS)
        if answer.status == 403:
            raise ToolError(
                "this SearXNG does not answer programs",
                hint="Its owner must add `json` to `search.formats` in its settings.",
            )
        _refuse_no(answer, "searxng")
        return _content_hits(_parsed(_ContentAnswer, answer, "searxng"))


_LIMITS = EgressLimits(seconds=20.0, bytes=3_000_000, redirects=0)


async def _asked(egress: Egress, request: EgressRequest, provider: ProviderName) -> EgressResponse:
    answer = await egress.fetch(request, _LIMITS)
    _refuse_no(answer, provider)
    return answer


def _refuse_no(answer: EgressResponse, provider: ProviderName) -> None:
    if answer.status == 429 or (answer.status == 432 and provider == "tavily"):
        raise ToolError(f"{provider} takes no more searches for now", hint="Try again later.")
    if answer.status in _BAD_KEY:
        raise ToolError(f"{provider} refused the search ({answer.status})", hint=_OWNERS)
    if not 200 <= answer.status < 300:
        raise ToolError(f"{provider} answered {answer.status}", hint="Try again later.")


def _parsed(kind: type[_Answer], answer: EgressResponse, provider: ProviderName) -> _Answer:
    try:
        return kind.model_validate_json(answer.body)
    except ValidationError as error:
        raise ToolError(f"{provider} gave no answer that can be read") from error


def _content_hits(answer: _ContentAnswer) -> list[Hit]:
    return [Hit(hit.title or "", hit.url, hit.content or "") for hit in answer.results]


def _plain(text: str) -> str:
    return unescape(_TAG.sub("", text))


MAX_HITS = 10
_TITLE, _URL, _SNIPPET = 150, 800, 300


class WebSearchArguments(Arguments):
    query: str = Field(min_length=1, max_length=500)
    count: int = Field(default=5, ge=1, le=MAX_HITS)


@dataclass(frozen=True, slots=True)
class WebSearch:
    """Asks the configured engine through `egress`, which must let its address pass."""

    egress: Egress
    settings: SearchSettings = field(default_factory=SearchSettings)
    name: str = SEARCH
    description: str = "Search the web: titles, URLs and snippets."
    arguments: type[WebSearchArguments] = WebSearchArguments
    effects: bool = False
    parallel: bool = True

    async def __call__(self, arguments: WebSearchArguments, caller: Caller) -> ToolResult:
        if not arguments.query.strip():
            raise ToolError("the query is empty")
        engine = engine_of(self.settings)
        hits = await engine.search(self.egress, arguments.query, arguments.count)
        lines = _listed(hits, arguments.count)
        return ToolResult("\n".join(lines) or "[nothing found; try other words]")


def _listed(hits: Iterable[Hit], count: int) -> list[str]:
    """Three lines each: a number and the title, the URL, the snippet. All that came from outside is
    kept to its line, and only what follows a number is an address (`known`)."""
    lines: list[str] = []
    number = 0
    for hit in hits:
        url = _url(hit.url)
        if not url or number == count:
            continue
        number += 1
        lines.append(f"{number}. {_line(hit.title, _TITLE) or url}")
        lines.append(f"   {url}")
        if snippet := _line(hit.snippet, _SNIPPET):
            lines.append(f"   {snippet}")
    return lines


def _url(text: str) -> str:
    try:
        url = str(parse_url(text))
    except EgressRefused:
        return ""
    return url if len(url) <= _URL else ""


def _line(text: str, most: int) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else f"{line[: most - 1]}…"
