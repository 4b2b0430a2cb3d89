"""`web_fetch`: what stands at an address, as text that a model reads, and which may be fetched.

An address can carry out whatever its author writes into it. One that the person wrote, or that a
search engine returned, was not put together by a model that has read somebody else's text. What
counts is the line of a search result that nanobot wrote itself, and never its title, its snippet or
the text of a page. Where a redirect led does not count either: a server could hand out an alphabet
of addresses that way. Because a choice among known addresses still says something, and so does
fetching one of them often, both are counted.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from http import HTTPStatus
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
"""Addresses that are fetched in one conversation before the owner is asked about the next."""

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
_HTML = re.compile(
    r"\s*(?:<\?xml[^>]*>\s*)?(?:<!--(?:(?!-->).)*-->\s*)*<(?:!doctype html|html|head|body)\b",
    re.IGNORECASE | re.DOTALL,
)
_CLOSED = "The site blocks programs or requires a login. Try another source."
_HINTS = {
    401: _CLOSED,
    403: _CLOSED,
    404: "The address may be wrong or outdated. Use web_search to find another.",
    429: "The site limits requests. Try again later, or use another source.",
}


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


class WebFetchArguments(Arguments, frozen=True):
    url: str
    start: Annotated[int, Meta(ge=0)] = 0


class Addresses(Struct):
    """The addresses in a conversation, as `parse_url` writes them.

    `known` are those that the person typed or a search returned. `typed` says in how many messages
    the person named each. `earlier` are the known ones that `web_fetch` was called with in a step
    before the present one, with the count in `typed` at that time: an address that the person
    types again may be fetched again.
    """

    known: set[str] = field(default_factory=set)
    typed: Counter[str] = field(default_factory=Counter)
    earlier: set[tuple[str, int]] = field(default_factory=set)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Addresses:
        """Those in `messages`; the present step is the last one with calls."""
        found = cls()
        step: set[tuple[str, int]] = set()
        for message in messages:
            if message.tool_calls:
                found.earlier |= step
                called = set(map(_called, message.tool_calls)) & found.known
                step = {(url, found.typed[url]) for url in called}
            named = {str(url) for text in _found(message) for url in _urls(text)}
            found.known |= named
            if message.role == "user":
                found.typed.update(named)
        return found


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


_Page = tuple[str, int]
"""An address, and in how many messages the person had typed it when it was fetched."""

_BYTES = 64_000_000
_PAGES = 1_000
_CONVERSATIONS = 1_000

_Answer = EgressResponse | ToolError


class PageCache:
    """Pages that conversations have fetched, in memory, and which addresses each has asked for. At
    most `_BYTES` of bodies; those go first that were not used for longest. A failure is kept
    like a page: trying again would be a request more."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, _Page], _Answer] = {}  # what was used last stands last
        self._asked: dict[str, set[str]] = {}
        self._locks: dict[tuple[str, _Page], asyncio.Lock] = {}

    def has(self, conversation: str, page: _Page) -> bool:
        key = (conversation, page)
        if key in self._answers:
            self._answers[key] = self._answers.pop(key)  # it is about to be read
        return key in self._answers

    def may_fetch(self, conversation: str, url: str, before: Iterable[str], most: int) -> bool:
        """Whether `url` is among the first `most` addresses of a conversation, which is noted.
        `before` are those of earlier steps, which an earlier process may have fetched."""
        asked = self._asked[conversation] = self._asked.pop(conversation, set())
        while len(self._asked) > _CONVERSATIONS:
            del self._asked[next(iter(self._asked))]
        asked.update(before)
        if url not in asked and len(asked) >= most:
            return False
        asked.add(url)
        return True

    async def once(
        self, conversation: str, page: _Page, ask: Callable[[], Awaitable[EgressResponse]]
    ) -> EgressResponse:
        """The page, from here or by asking. Raises `ToolError`, the same one each time."""
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
                        len(kept) > _PAGES or sum(map(_size, kept.values())) > _BYTES
                    ):
                        del kept[next(iter(kept))]
                answer = kept[key]
        finally:
            if not lock.locked():
                self._locks.pop(key, None)
        if isinstance(answer, ToolError):
            raise answer
        return answer


def _size(answer: _Answer) -> int:
    return 0 if isinstance(answer, ToolError) else len(answer.body)


class WebFetch(Tool, Struct, frozen=True):
    """Pages as Markdown, images as images, PDF as what `pdf_text` makes of it (blocks; raises
    `ToolError`), other text as it is. `seconds` and `megabytes` bound one request. `for_others` is
    the way into the network for callers other than the owner, where that is another one.

    Once untrusted content is in a conversation, what is fetched can say something to the owner of
    the site, even among known addresses: so each is fetched once, then read from memory, and the
    owner is asked after `MOST_UNASKED`. What was called is read from the conversation, so that it
    survives a restart; `pages` counts across its helpers, too."""

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
        """None for a known address that was not fetched yet or is in memory; see `known`. Such a
        one takes up a place among `MOST_UNASKED`."""
        url = str(parse_url(arguments.url))
        addresses = Addresses.of(caller.messages_read())
        if url not in addresses.known:
            return Risk("fetch", "fetch an address that neither you typed nor a search found", url)
        page = url, addresses.typed[url]
        if self.pages.has(caller.conversation, page):
            return None
        if page in addresses.earlier:
            return Risk("fetch", "fetch an address again in the same conversation", url)
        before = [address for address, _ in addresses.earlier]
        if not self.pages.may_fetch(caller.conversation, url, before, MOST_UNASKED):
            return Risk("fetch", f"fetch more than {MOST_UNASKED} addresses in a conversation", url)
        return None

    async def __call__(self, arguments: WebFetchArguments, caller: TurnContext) -> ToolResult:
        url = str(parse_url(arguments.url))
        page = url, Addresses.of(caller.messages_read()).typed[url]
        limits = EgressLimits(self.seconds, int(self.megabytes * MEGABYTE), types=_TYPES)
        egress = self.egress if caller.scope == OWNER else self.for_others or self.egress
        asking = partial(egress.fetch, EgressRequest(url, headers={"Accept": _ACCEPT}), limits)
        answer = await self.pages.once(caller.conversation, page, asking)
        if not 200 <= answer.status < 300:
            status = str(answer.status)
            with suppress(ValueError):
                status += f" {HTTPStatus(answer.status).phrase}"
            raise ToolError(f"{answer.url} returned {status}", hint=_HINTS.get(answer.status, ""))
        if mime := image_type(answer.body):
            return image_result(answer.url, answer.body, mime)
        title, text = await asyncio.to_thread(self._text, answer)
        return ToolResult(_piece(answer.url, title, text, arguments.start))

    def _text(self, answer: EgressResponse) -> tuple[str, str]:
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
        if kind not in _PAGE_TYPES and not (sniffed and _HTML.match(text[:2_000])):
            return "", text
        page = read_page(text, answer.url)
        return page.title, page.text


def _piece(url: str, title: str, text: str, start: int) -> str:
    head = f"URL: {url}\n" + (f"Title: {title}\n" if title else "") + "\n"
    if not text.strip():
        return f"{head}[no readable text. The page may need JavaScript]"
    if start >= len(text):
        raise ToolError(f"{url} has only {len(text):,} characters")
    end = start + PIECE
    if end < len(text):  # at the end of a line where one is near
        end = max(text.rfind("\n", end - 1_000, end) + 1, 0) or end
    piece = text[start:end].rstrip()
    if start == 0 and end >= len(text):
        return head + piece
    more = f". Continue with start={end}" if end < len(text) else ""
    return f"{head}{piece}\n\n[characters {start}-{min(end, len(text))} of {len(text)}{more}]"
