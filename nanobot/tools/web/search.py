"""`web_search`: addresses for words."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.security.egress import Egress, EgressRefused, parse_url
from nanobot.tooling import Arguments, Caller, ToolResult
from nanobot.tools.web.known import SEARCH
from nanobot.tools.web.providers import Hit, SearchSettings, engine_of

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
