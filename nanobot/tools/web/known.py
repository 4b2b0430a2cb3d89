"""Which addresses may be fetched without asking, and which were fetched already. Pure.

An address can carry out whatever its author writes into it. One that the person wrote, or that a
search engine returned, was not put together by a model that has read somebody else's text. What
counts is the line of a search result that nanobot wrote itself, and never its title, its snippet or
the text of a page. Where a redirect led does not count either: a server could hand out an alphabet
of addresses that way. Because a choice among known addresses still says something, and so does
fetching one of them often, both are counted.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.messages import Message, ToolCall
from nanobot.schema import parse_arguments
from nanobot.security.egress import EgressRefused, Url, parse_url
from nanobot.tooling import Arguments

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
