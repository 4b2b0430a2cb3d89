"""Which addresses are nobody's secret message: those that the person typed and those that a search
or an earlier fetch came up with. Pure.

An address can carry out whatever its author writes into it. One that the person wrote, or that a
search engine returned, was not put together by a model that has read somebody else's text. What
counts is the line of a result that nanobot wrote itself, and never its title, its snippet or the
text of a page.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from nanobot.messages import Message
from nanobot.security.egress import EgressRefused, Url, parse_url

SEARCH, FETCH = "web_search", "web_fetch"
FROM = "URL: "
"""How the first line of a fetched page begins; the address where it came from follows."""

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


def known_urls(messages: Iterable[Message]) -> frozenset[str]:
    """The addresses in a conversation that may be fetched unasked, as `parse_url` writes them."""
    return frozenset(
        str(url) for message in messages for text in _found(message) for url in _urls(text)
    )


def _found(message: Message) -> Iterator[str]:
    if message.content.startswith(_ERROR) and message.role == "tool":
        return  # it repeats what the model wrote
    if message.role == "tool" and message.name == SEARCH:
        yield from _HIT.findall(message.content)
    elif message.role == "tool" and message.name == FETCH:
        first = message.content.partition("\n")[0]
        if first.startswith(FROM):
            yield first.removeprefix(FROM)
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
