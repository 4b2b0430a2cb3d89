"""`web_fetch`: the content of an address as text for the model, and which addresses may be fetched.

An address can leak data that its author put into it. An address that the person typed or a search
engine returned was not composed by a model that had read untrusted content. Only the line of a
search result that nanobot wrote counts, never its title, its snippet or the text of a page.
Redirect targets don't count either, because a server could offer an alphabet of addresses. A choice
among known addresses and repeated fetches also leak information, so both are limited."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Annotated

from msgspec import Meta, Struct, field

from nanobot.errors import ToolError
from nanobot.messages import Message, ToolCall
from nanobot.security.egress import MEGABYTE, Egress, EgressLimits, EgressRequest, EgressResponse
from nanobot.security.egress.urls import EgressRefused, Url, parse_url
from nanobot.tooling import OWNER, Arguments, Risk, Tool, ToolResult, TurnContext
from nanobot.tooling.registry import parse_arguments
from nanobot.tools.read_tools import image_result, image_type
from nanobot.tools.web.search import SEARCH

FETCH = "web_fetch"

PIECE = 12_000
"""Characters of a page in one result."""

MOST_UNASKED = 10
"""Addresses fetched in one conversation without asking the owner."""

_TYPES = (
    "text/", "image/", "application/json", "application/ld+json", "application/xml",
    "application/xhtml", "application/rss", "application/atom", "application/feed",
    "application/pdf", "application/x-pdf", "application/javascript", "application/x-javascript",
    "application/yaml", "application/x-yaml", "application/toml", "application/x-ndjson",
    "application/octet-stream", "application/vnd.api+json", "application/geo+json",
    "binary/octet-stream",
)  # fmt: skip
_PAGE_TYPES = ("text/html", "application/xhtml+xml")
_ACCEPT = "text/html,application/xhtml+xml,application/json;q=0.9,text/plain;q=0.9,*/*;q=0.5"
_HTML = (
    r"(?is)\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*"
    r"<(?:!doctype html|html|head|body)\b"
)
_CLOSED = "The site blocks programs or requires a login. Try another source."
_HINTS = {
    401: _CLOSED,
    403: _CLOSED,
    404: "The address may be wrong or outdated. Use web_search to find another.",
    429: "The site limits requests. Try again later, or use another source.",
}


_ERROR = "Error: "
"""Prefix of the result of a failed call."""

_HIT = r"(?m)^[0-9]{1,3}\. .*\n   (https?://\S+)$"
_TYPED = r"(?i)https?://[^\s<>\"]+"
_BARE = (
    r"(?i)(?<![\w@/.:-])(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z]{2,24}(?::[0-9]{1,5})?"
    r"(?:/[^\s<>\"]*)?(?![\w@-])"
)
_MOST_TRAILING = 8
_TRAILING = ".,;:!?)]}'*_`…»”’"


class WebFetchArguments(Arguments, frozen=True):
    url: str
    start: Annotated[int, Meta(ge=0)] = 0


class Addresses(Struct):
    """The addresses in a conversation, as `parse_url` writes them.

    `known` were typed by the person or returned by a search. `typed` counts the messages in which
    the person named each. `earlier` are the known addresses of `web_fetch` calls in previous steps,
    with their count in `typed` at that time: an address that the person types again may be fetched
    again."""

    known: set[str] = field(default_factory=set)
    typed: Counter[str] = field(default_factory=Counter)
    earlier: set[tuple[str, int]] = field(default_factory=set)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Addresses:
        """Collect the addresses of `messages`. The last message with calls is the current step."""
        found = cls()
        step: set[tuple[str, int]] = set()
        for message in messages:
            if message.tool_calls:
                found.earlier |= step  # the step before is complete
                called = set(map(address_of_call, message.tool_calls)) & found.known
                step = {(url, found.typed[url]) for url in called}
            named = {str(url) for text in find_addresses(message) for url in parse_variants(text)}
            found.known |= named
            if message.role == "user":
                found.typed.update(named)
        return found


def address_of_call(call: ToolCall) -> str:
    """Return the address of a `web_fetch` call, or an empty text."""
    if call.name.strip().removeprefix("functions.") != FETCH:
        return ""
    try:
        return str(parse_url(parse_arguments(WebFetchArguments, call.arguments).url))
    except ToolError:
        return ""


def find_addresses(message: Message) -> Iterator[str]:
    if message.role == "tool":
        # An error quotes the model's text.
        if message.name == SEARCH and not message.content.startswith(_ERROR):
            yield from re.findall(_HIT, message.content)
    elif own := message.own_words:
        for text in re.findall(_TYPED, own):
            yield from spell_address(text)
        for text in re.findall(_BARE, own):
            yield from spell_address(f"https://{text}")


def spell_address(text: str) -> Iterator[str]:
    """Yield an address as written, and without trailing punctuation of the sentence."""
    yield text
    for _ in range(_MOST_TRAILING):
        if not text or text[-1] not in _TRAILING:
            return
        text = text[:-1]
        yield text


def parse_variants(text: str) -> Iterator[Url]:
    try:
        url = parse_url(text)
    except EgressRefused:
        return
    yield url
    if url.scheme == "http" and url.port == 80:  # both schemes count as the same page
        yield Url("https", url.host, 443, url.target)
    elif url.scheme == "https" and url.port == 443:
        yield Url("http", url.host, 80, url.target)


_Page = tuple[str, int]
"""An address, and the number of messages in which the person had typed it."""

_BYTES = 64_000_000
_PAGES = 1_000
_CONVERSATIONS = 1_000

_Answer = EgressResponse | ToolError


class PageCache:
    """In-memory cache of fetched pages, and the addresses that each conversation requested. Bodies
    take at most `_BYTES`; the least recently used go first. Failures are cached like pages, because
    a retry would be another request."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, _Page], _Answer] = {}  # the last used comes last
        self._asked: dict[str, set[str]] = {}
        self._locks: dict[tuple[str, _Page], asyncio.Lock] = {}

    def has(self, conversation: str, page: _Page) -> bool:
        key = (conversation, page)
        if key in self._answers:
            self._answers[key] = self._answers.pop(key)  # mark it as used
        return key in self._answers

    def may_fetch(self, conversation: str, url: str, before: Iterable[str], most: int) -> bool:
        """Record `url` and check whether it is among a conversation's first `most` addresses.
        `before` has the addresses of earlier steps, possibly of an earlier process."""
        asked = self._asked[conversation] = self._asked.pop(conversation, set())
        while len(self._asked) > _CONVERSATIONS:
            del self._asked[next(iter(self._asked))]  # the least recently used
        asked.update(before)
        if url not in asked and len(asked) >= most:
            return False
        asked.add(url)
        return True

    async def once(
        self, conversation: str, page: _Page, ask: Callable[[], Awaitable[EgressResponse]]
    ) -> EgressResponse:
        """Return the page from the cache or from `ask`. Raise the same `ToolError` each time."""
        key, kept = (conversation, page), self._answers
        lock = self._locks.setdefault(key, asyncio.Lock())
        try:
            async with lock:
                if key not in kept:
                    try:
                        kept[key] = await ask()
                    except ToolError as error:
                        kept[key] = error
                    while len(kept) > 1 and (
                        len(kept) > _PAGES or sum(map(size_of, kept.values())) > _BYTES
                    ):
                        del kept[next(iter(kept))]
                answer = kept[key]
        finally:
            if not lock.locked():
                self._locks.pop(key, None)
        if isinstance(answer, ToolError):
            raise answer
        return answer


def size_of(answer: _Answer) -> int:
    return 0 if isinstance(answer, ToolError) else len(answer.body)


class WebFetch(Tool, Struct, frozen=True):
    """Fetches pages as Markdown, images, PDF through `pdf_text` (blocks; raises `ToolError`), and
    other text unchanged. `seconds` and `megabytes` limit one request. `for_others` is the egress
    for callers other than the owner, if it differs.

    With untrusted content in a conversation, even fetching a known address can leak data to the
    site's owner. So each is fetched once and then read from the cache, and the owner is asked after
    `MOST_UNASKED`. Earlier calls are read from the conversation, so they survive a restart; `pages`
    also counts its subagents' pages."""

    egress: Egress
    pdf_text: Callable[[bytes], str] | None = None
    seconds: float = 30.0
    megabytes: float = 10.0
    for_others: Egress | None = None
    pages: PageCache = field(default_factory=PageCache)
    name = FETCH
    description = "Fetch a URL: a page as Markdown, a PDF as text, an image."
    arguments = WebFetchArguments

    async def risk(self, arguments: WebFetchArguments, caller: TurnContext) -> Risk | None:
        """Return None for a known address that is new or cached (see `Addresses`). It counts
        towards `MOST_UNASKED`."""
        url = str(parse_url(arguments.url))
        addresses = Addresses.of(caller.messages_read())
        if url not in addresses.known:
            return Risk(
                "fetch", "fetch an address that came neither from you nor from a search", url
            )
        page = url, addresses.typed[url]
        if self.pages.has(caller.conversation, page):
            return None
        if page in addresses.earlier:
            return Risk("fetch", "fetch an address again in the same conversation", url)
        before = [address for address, _ in addresses.earlier]
        if not self.pages.may_fetch(caller.conversation, url, before, MOST_UNASKED):
            return Risk("fetch", f"fetch over {MOST_UNASKED} addresses in one conversation", url)
        return None

    async def __call__(self, arguments: WebFetchArguments, caller: TurnContext) -> ToolResult:
        url = str(parse_url(arguments.url))
        page = url, Addresses.of(caller.messages_read()).typed[url]
        limits = EgressLimits(self.seconds, int(self.megabytes * MEGABYTE), types=_TYPES)
        egress = self.egress if caller.scope == OWNER else self.for_others or self.egress
        asking = partial(egress.fetch, EgressRequest(url, headers={"Accept": _ACCEPT}), limits)
        answer = await self.pages.once(caller.conversation, page, asking)
        if not 200 <= answer.status < 300:
            from http import HTTPStatus  # not needed at the start

            status = str(answer.status)
            with suppress(ValueError):
                status += f" {HTTPStatus(answer.status).phrase}"
            raise ToolError(f"{answer.url} returned {status}", hint=_HINTS.get(answer.status, ""))
        if mime := image_type(answer.body):
            return image_result(answer.url, answer.body, mime)
        title, text = await asyncio.to_thread(self._extract_text, answer)
        return ToolResult(cut_piece(answer.url, title, text, arguments.start))

    def _extract_text(self, answer: EgressResponse) -> tuple[str, str]:
        from nanobot.tools.web.pages import decode, read_page  # 0.2 MB until a page is read

        if answer.body.startswith(b"%PDF-"):
            if self.pdf_text is None:
                raise ToolError(f"{answer.url} is a PDF, which can't be read here")
            return "", self.pdf_text(answer.body)
        declared = answer.headers.get("content-type", "")
        text = decode(answer.body, declared)
        if "\0" in text[:8_192]:
            raise ToolError(f"{answer.url} is binary and cannot be shown as text")
        kind = answer.content_type
        sniffed = kind in ("", "application/octet-stream", "binary/octet-stream")
        if kind not in _PAGE_TYPES and not (sniffed and re.match(_HTML, text[:2_000])):
            return "", text
        page = read_page(text, answer.url)
        return page.title, page.text


def cut_piece(url: str, title: str, text: str, start: int) -> str:
    head = f"URL: {url}\n" + (f"Title: {title}\n" if title else "") + "\n"
    if not text.strip():
        return f"{head}[no readable text. The page may need JavaScript]"
    if start >= len(text):
        raise ToolError(f"{url} has only {len(text):,} characters")
    end = start + PIECE
    if end < len(text):  # cut at a near line end
        end = max(text.rfind("\n", end - 1_000, end) + 1, 0) or end
    piece = text[start:end].rstrip()
    if start == 0 and end >= len(text):
        return head + piece
    more = f". Continue with start={end}" if end < len(text) else ""
    return f"{head}{piece}\n\n[characters {start}-{min(end, len(text))} of {len(text)}{more}]"
