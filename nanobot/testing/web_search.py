"""The search engines as they answer: DuckDuckGo's page, and the APIs of Brave, Tavily, SearXNG."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from urllib.parse import quote

from nanobot.testing.web_values import Asked, Handler, Line, SearchFault, SearchHit

KEY = "a-good-key"
"""The key that the APIs take."""

_JSON = {"Content-Type": "application/json"}


def engines(
    hits: Callable[[], Sequence[SearchHit]], fault: Callable[[], SearchFault]
) -> Mapping[str, Handler]:
    """The engines by path; each asks for the results, and for what is wrong, when it answers."""
    answers = _Answers(hits, fault)
    return {
        "/html/": answers.duckduckgo,
        "/res/v1/web/search": answers.brave,
        "/search": answers.tavily_or_searxng,
    }


@dataclass(frozen=True, slots=True)
class _Answers:
    hits: Callable[[], Sequence[SearchHit]]
    fault: Callable[[], SearchFault]

    async def duckduckgo(self, _: Asked, line: Line) -> None:
        if self.fault() == "blocked":
            page = '<div class="anomaly-modal__title">Unfortunately, bots use DuckDuckGo too.</div>'
            await line.answer(page.encode(), status=202, headers={"Content-Type": "text/html"})
        elif not await _failed(line, self.fault()):
            page = _duckduckgo_page(self.hits())
            await line.answer(page.encode(), headers={"Content-Type": "text/html; charset=UTF-8"})

    async def brave(self, asked: Asked, line: Line) -> None:
        if asked.headers.get("x-subscription-token") != KEY:
            await line.answer(b'{"error": {}}', status=422, headers=_JSON)
        elif not await _failed(line, self.fault()):
            found = [
                {"title": hit.title, "url": hit.url, "description": f"<b>{escape(hit.snippet)}</b>"}
                for hit in self.hits()
            ]
            await line.answer(json.dumps({"web": {"results": found}}).encode(), headers=_JSON)

    async def tavily_or_searxng(self, asked: Asked, line: Line) -> None:
        closed = self.fault() == "bad key" or asked.query("format") != "json"
        if asked.method == "POST" and asked.headers.get("authorization") != f"Bearer {KEY}":
            await line.answer(b'{"detail": {}}', status=401, headers=_JSON)
        elif asked.method == "GET" and closed:
            await line.answer(b"Forbidden", status=403)
        elif not await _failed(line, self.fault()):
            found = [
                {"title": hit.title, "url": hit.url, "content": hit.snippet} for hit in self.hits()
            ]
            await line.answer(json.dumps({"results": found}).encode(), headers=_JSON)


async def _failed(line: Line, fault: SearchFault) -> bool:
    if fault == "busy":
        await line.answer(b"{}", status=429, headers=_JSON)
    elif fault == "garbage":
        await line.answer(b'{"web": 7, "results": 7}', headers=_JSON)
    return fault in ("busy", "garbage")


def _duckduckgo_page(hits: Sequence[SearchHit]) -> str:
    advert = (
        '<div class="result result--ad"><a class="result__a" '
        'href="https://duckduckgo.com/y.js?ad_domain=shop.example">Buy!</a></div>'
    )
    counted = "//duckduckgo.com/l/?rut=0&amp;uddg="
    results = "".join(
        '<div class="result results_links"><h2 class="result__title"><a class="result__a" '
        f'href="{counted}{quote(hit.url, safe="")}">{escape(hit.title)}</a></h2>'
        f'<a class="result__snippet" href="#">{escape(hit.snippet)}</a></div>'
        for hit in hits
    )
    return f"<html><body><div id=links>{advert}{results}</div></body></html>"
