"""Whether a line says more than others do: by words, and by what looks like data. Pure.

Used on edits of phase 2, which may only reword what was accepted. Small changes of form are free; a
number, a link, the name of a file or an address is not.
"""

from __future__ import annotations

import re

from nanobot.memory.text.wording import share, similar, words

_TOKEN = re.compile(r"[^\s,;!?()\[\]<>\"'`*]+")
_DATA = re.compile(r"[\w-][@/\\:.=#]+\w|^[@/#~]\w|\d")


def data_tokens(line: str) -> frozenset[str]:
    """What must be copied and cannot be reworded: numbers, links, paths, addresses, handles."""
    tokens = (token.strip(".:-").casefold() for token in _TOKEN.findall(line))
    return frozenset(token for token in tokens if _DATA.search(token))


def says_no_more(line: str, *sources: str) -> bool:
    """Whether `line` says nothing beyond `sources`: no data is new, and of its words at most a
    quarter, or one beside others, is."""
    said = "\n".join(sources)
    if not data_tokens(line) <= data_tokens(said):
        return False
    own, known = words(line), words(said)
    new = [word for word in own if not any(similar(word, other) for other in known)]
    return not new or (len(new) <= max(1, len(own) // 4) and len(new) < len(own))


def shared(line: str, other: str) -> float:
    """Which part of the content words of `line` the other text has as well; 0 to 1."""
    return share(words(line), other)
