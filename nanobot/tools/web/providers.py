"""The search engines: what is asked of each, and what its answer says.

What always holds: a request goes to the configured address and follows no redirect elsewhere; an
answer that is none becomes a `ToolError` with what to do about it.
"""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass
from html import unescape
from typing import Literal, Protocol, TypeVar
from urllib.parse import urlencode

from pydantic import BaseModel, ValidationError

from nanobot.errors import ToolError
from nanobot.security.egress import Egress, EgressLimits, EgressRequest, EgressResponse
from nanobot.tools.web.charsets import decode
from nanobot.tools.web.pages import read_hits

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
