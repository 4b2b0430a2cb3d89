"""`web_fetch`: what stands at an address, as text that a model reads."""

from __future__ import annotations

import asyncio
import base64
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

from nanobot.errors import ToolError
from nanobot.security.egress import (
    MEGABYTE,
    Egress,
    EgressLimits,
    EgressRequest,
    EgressResponse,
    parse_url,
)
from nanobot.tooling import Caller, Risk, ToolResult
from nanobot.tooling.policy import OWNER
from nanobot.tools.reading import binary_kind, image_type
from nanobot.tools.web.pages import KeptPages, decode, is_wide, read_page
from nanobot.tools.web.search import FETCH, Addresses, WebFetchArguments

PIECE = 12_000
"""Characters of a page in one result."""

MAX_IMAGE = 5_000_000

MOST_UNASKED = 10
"""Addresses that are fetched in one conversation before the owner is asked about the next."""

_TYPES = (
    "text/", "image/", "application/json", "application/ld+json", "application/xml",
    "application/xhtml", "application/rss", "application/atom", "application/feed",
    "application/pdf", "application/x-pdf", "application/javascript", "application/x-javascript",
    "application/yaml", "application/x-yaml", "application/toml", "application/x-ndjson",
    "application/octet-stream", "application/vnd.api+json", "application/geo+json",
    "binary/octet-stream",
)  # fmt: skip
_ACCEPT = "text/html,application/xhtml+xml,application/json;q=0.9,text/plain;q=0.9,*/*;q=0.5"
_HTML = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_CLOSED = "The site lets no program in, or wants a login. Look for the same elsewhere."
_HINTS = {
    401: _CLOSED,
    403: _CLOSED,
    404: "The address may be wrong or old; web_search finds others.",
    429: "The site wants fewer requests; try later or elsewhere.",
}


@dataclass(frozen=True, slots=True)
class WebFetch:
    """Pages as Markdown, images as images, PDF as what `pdf_text` makes of it (blocks; raises
    `ToolError`), other text as it is. `seconds` and `megabytes` bound one request. `for_others` is
    the way into the network for callers other than the owner, where that is another one.

    Once text from elsewhere is in a conversation, what is fetched can say something to whoever runs
    the site, even among known addresses: so each is fetched once, then read from memory, and the
    owner is asked after `MOST_UNASKED`. What was called is read from the conversation, so that it
    survives a restart; `pages` counts across its helpers, too."""

    egress: Egress
    pdf_text: Callable[[bytes], str] | None = None
    seconds: float = 30.0
    megabytes: float = 10.0
    for_others: Egress | None = None
    pages: KeptPages = field(default_factory=KeptPages)
    name: str = FETCH
    description: str = "Fetch a URL: a page as Markdown, a PDF as text, an image."
    arguments: type[WebFetchArguments] = WebFetchArguments
    effects: bool = False
    parallel: bool = True

    async def risk(self, arguments: WebFetchArguments, caller: Caller) -> Risk | None:
        """None for a known address that was not fetched yet or is in memory; see `known`. Such a
        one takes up a place among `MOST_UNASKED`."""
        url = str(parse_url(arguments.url))
        addresses = Addresses.of(caller.heard())
        if url not in addresses.known:
            return Risk("fetch", "fetch an address that neither you typed nor a search found", url)
        page = url, addresses.typed[url]
        if self.pages.has(caller.conversation, page):
            return None
        if page in addresses.earlier:
            return Risk("fetch", "fetch an address again in the same conversation", url)
        places = [*addresses.called, url][:MOST_UNASKED]
        before = [address for address, _ in addresses.earlier]
        place = self.pages.takes_place(caller.conversation, url, before, MOST_UNASKED)
        if url not in places or not place:
            return Risk("fetch", f"fetch more than {MOST_UNASKED} addresses in a conversation", url)
        return None

    async def __call__(self, arguments: WebFetchArguments, caller: Caller) -> ToolResult:
        url = str(parse_url(arguments.url))
        page = url, Addresses.of(caller.heard()).typed[url]
        asking = partial(self._asked, url, caller)
        answer = await self.pages.once(caller.conversation, page, asking)
        if not 200 <= answer.status < 300:
            raise ToolError(
                f"{answer.url} answered {_status(answer.status)}",
                hint=_HINTS.get(answer.status, ""),
            )
        if mime := image_type(answer.body):
            return _image(answer, mime)
        title, text = await asyncio.to_thread(self._text, answer)
        return ToolResult(_piece(answer.url, title, text, arguments.start))

    async def _asked(self, url: str, caller: Caller) -> EgressResponse:
        limits = EgressLimits(self.seconds, int(self.megabytes * MEGABYTE), types=_TYPES)
        egress = self.egress if caller.scope == OWNER else self.for_others or self.egress
        return await egress.fetch(EgressRequest(url, headers={"Accept": _ACCEPT}), limits)

    def _text(self, answer: EgressResponse) -> tuple[str, str]:
        """Title, or empty, and text."""
        if answer.body.startswith(b"%PDF-"):
            if self.pdf_text is None:
                raise ToolError(f"{answer.url} is a PDF, and PDFs are not read here")
            return "", self.pdf_text(answer.body)
        declared = answer.headers.get("content-type", "")
        kind = "" if is_wide(answer.body, declared) else binary_kind(answer.body)
        if kind:
            raise ToolError(
                f"{answer.url} is binary ({kind}, {len(answer.body):,} bytes); "
                "it cannot be shown as text"
            )
        text = decode(answer.body, declared)
        if not _is_html(answer.content_type, text):
            return "", text
        page = read_page(text, answer.url)
        return page.title, page.text


def _is_html(content_type: str, text: str) -> bool:
    if content_type in ("text/html", "application/xhtml+xml"):
        return True
    sniffed = content_type in ("", "application/octet-stream", "binary/octet-stream")
    return sniffed and _HTML.match(text[:2_000]) is not None


def _image(answer: EgressResponse, mime: str) -> ToolResult:
    size = len(answer.body)
    if size > MAX_IMAGE:
        raise ToolError(f"{answer.url} is an image of {size:,} bytes, more than can be shown")
    return ToolResult(
        f"URL: {answer.url}\n[image, {mime}, {size:,} bytes]",
        images=((base64.b64encode(answer.body).decode(), mime),),
    )


def _piece(url: str, title: str, text: str, start: int) -> str:
    head = f"URL: {url}\n" + (f"Title: {title}\n" if title else "") + "\n"
    if not text.strip():
        return f"{head}[no readable text; the page may need JavaScript]"
    if start >= len(text):
        raise ToolError(f"{url} has only {len(text):,} characters")
    end = start + PIECE
    if end < len(text):  # at the end of a line where one is near
        end = max(text.rfind("\n", end - 1_000, end) + 1, 0) or end
    piece = text[start:end].rstrip()
    if start == 0 and end >= len(text):
        return head + piece
    more = f"; read on with start={end}" if end < len(text) else ""
    return f"{head}{piece}\n\n[characters {start}-{min(end, len(text))} of {len(text)}{more}]"


def _status(status: int) -> str:
    try:
        return f"{status} {HTTPStatus(status).phrase}"
    except ValueError:
        return str(status)
