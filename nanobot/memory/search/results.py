"""What a search found as a text that a model reads and a person could. Pure.

What was found is put together by conversation and day, the best first, under one header each, and
within it in its order: so neighbours that several hits share are one run of text, and nothing is
shown twice. A number says which place a hit has among all. Lines that begin in the first column are
ours; everything that was found is indented, so that no found text can pass for a result of its own.

The text has a budget of characters. The hits take it in their order, each with what was said right
before and after it; what is left goes to what stands one step further. Long passages are shown
around the words looked for. A text that was shown already is left out of the neighbours, also where
a reply repeats most of it, and of another hit only its line is shown.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nanobot.memory.search import Hit, Passage, Query, SearchResult
from nanobot.memory.similarity import words
from nanobot.text import printable, shortened

Shown = tuple[str, Sequence[Passage]]
"""A text, and the passages of which it shows anything."""

_FRAME = 300
"""Characters kept for the first line and the last."""

_PASSAGE, _NEIGHBOUR, _REPLY = 700, 250, 100
"""Characters of a hit, of what stands beside it, and of a reply there that answers no question."""

_REPEATED = 0.7
"""The share of a reply's words that stand in its message, from which on it repeats that."""

_KINDS = {"history": "summary", "note": "note", "memory": "fact", "library": "document"}
_LINE_END = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")


def results_text(query: Query, result: SearchResult, most: int) -> Shown:
    """The hits, in at most `most` characters."""
    if not result.hits:
        return _miss(query, result), ()
    first = query.skip + 1
    page = _Page(result, first, most - _FRAME)
    last = query.skip + page.count
    head = f"Results {first} to {last} for {_quoted(query.text)}, [{first}] the best:"
    tail = "around=<id> reads on. Not it? Search again with other words."
    if result.left or page.count < len(result.hits):
        tail = f"More: the same query with more={last + 1}. {tail}"
    return "\n\n".join([head, *page.groups(), tail]), tuple(page.shown.values())


class _Page:
    """As many hits as have room, numbered from `first`, and what was said around them."""

    def __init__(self, result: SearchResult, first: int, room: int) -> None:
        self.shown: dict[str, Passage] = {}
        self._texts: dict[str, str] = {}
        self._headers: set[str] = set()
        self._room, self._terms = room, result.terms
        self._numbers = {hit.passage.id: number for number, hit in enumerate(result.hits, first)}
        self.count = 0
        for hit in result.hits:
            text = self._hit_text(hit.passage, min(_PASSAGE, room // 3))
            if not self.shown:  # the first is shown in any case, so that each page goes on
                text = text[: room - len(_group(hit.passage)) - 3]
            if not (self._is_told(hit) or self._add(hit.passage, text)):
                break
            self.count += 1
            self._add_beside(hit, 1)
        farther = range(2, 1 + max(max(len(h.before), len(h.after)) for h in result.hits))
        for distance in farther:
            for hit in result.hits[: self.count]:
                self._add_beside(hit, distance)

    def groups(self) -> Iterator[str]:
        """The passages of one conversation and day under one header, the best group first."""
        groups: dict[str, list[Passage]] = {}
        for passage in self.shown.values():
            groups.setdefault(_group(passage), []).append(passage)
        for header, passages in groups.items():
            passages.sort(key=lambda one: (one.id.rpartition(":")[0], one.seq))
            yield "\n".join([header, *(self._texts[one.id] for one in passages)])

    def _is_told(self, hit: Hit) -> bool:
        """Whether it says again what is shown right before it."""
        before = hit.before[-1:]
        return any(one.id in self.shown and _repeats(hit.passage, one) for one in before)

    def _add(self, passage: Passage, text: str) -> bool:
        """Show `text` of a passage; False where there is no room for it."""
        header = _group(passage)
        cost = len(text) + 1 + (len(header) + 2) * (header not in self._headers)
        if cost > self._room:
            return False
        self._room -= cost
        self._headers.add(header)
        self.shown[passage.id], self._texts[passage.id] = passage, text
        return True

    def _hit_text(self, passage: Passage, most: int) -> str:
        what = _who(passage) if passage.source == "message" else printable(passage.place)
        head = f"[{self._numbers[passage.id]}] {what}{_marks(passage)} · id={_id(passage)}"
        for other in self.shown.values():
            if other.id in self._numbers and other.text == passage.text:
                return f"{head} · the same text as [{self._numbers[other.id]}]"
        return f"{head}\n{_indented(passage.text, most, self._terms)}"

    def _add_beside(self, hit: Hit, distance: int) -> None:
        """Show what stands so far from a hit, unless it is shown or is a hit itself."""
        talk = [*hit.before, hit.passage, *hit.after]
        here, known = len(hit.before), self._numbers.keys() | self.shown.keys()
        for at in (here - distance, here + distance):
            if not 0 <= at < len(talk) or talk[at].id in known:
                continue
            one, before = talk[at], talk[at - 1] if at else None
            if before is None or not _repeats(one, before):
                is_aside = one.role == "assistant" and not (before and _asks(before))
                text = shortened(one.text, _REPLY if is_aside else _NEIGHBOUR)
                self._add(one, f"  {_who(one)}: {text}")


def _group(passage: Passage) -> str:
    day = f"{passage.when:%Y-%m-%d %a}" if passage.when else "no date"
    what = _KINDS.get(passage.source) or printable(passage.session)
    return f"{day} · {what}"


def _id(passage: Passage) -> str:
    """The id, whatever a file or a conversation is called."""
    return _LINE_END.sub(" ", passage.id)


def _repeats(reply: Passage, said: Passage) -> bool:
    """Whether the agent only says again what was said to it; an answer to a question does not."""
    if reply.role != "assistant" or said.role != "user" or _asks(said):
        return False
    again = words(reply.text)
    return len(again & words(said.text)) >= _REPEATED * len(again)


def _asks(passage: Passage) -> bool:
    return "?" in passage.text or "？" in passage.text


def around_text(id: str, passages: Sequence[Passage], most: int) -> Shown:
    """A stretch of a conversation or document, in its order; the passage asked for is marked."""
    each = max(100, most // len(passages) - 200)
    texts = [
        f"{'> ' if one.id == id else ''}{_who_when_where(one)}\n{_indented(one.text, each)}"
        for one in passages
    ]
    head = f"Around {_LINE_END.sub(' ', id)}, in order:"
    tail = f"Before this: around={_id(passages[0])}. After this: around={_id(passages[-1])}."
    return "\n\n".join([head, *texts, tail]), passages


def _who_when_where(passage: Passage) -> str:
    when = f"{passage.when:%Y-%m-%d %a %H:%M}" if passage.when else "no date"
    where = printable(passage.session if passage.source == "message" else passage.place)
    return f"{when} · {_speaker(passage)} · {where}{_marks(passage)} · id={_id(passage)}"


def _marks(passage: Passage) -> str:
    """Where a passage came from that is not their own words, and whether it is marked to keep."""
    origin = "" if passage.origin in ("", "nanobot") else f" · from {passage.origin}"
    return f"{origin} · marked to keep" if passage.kept else origin


def _speaker(passage: Passage) -> str:
    if passage.source != "message":
        return _KINDS[passage.source]
    if passage.speaker and passage.speaker != passage.role:
        return f"{passage.role} ({shortened(passage.speaker, 60)})"
    return passage.role or "unknown"


def _who(passage: Passage) -> str:
    """The time of a message and who wrote it; the kind of another text."""
    when = f"{passage.when:%H:%M} " if passage.when and passage.source == "message" else ""
    return f"{when}{_speaker(passage)}"


def _indented(text: str, most: int, terms: Sequence[str] = ()) -> str:
    lines = _LINE_END.split(_window(text.strip(), most - 10, terms))
    return "\n".join(f"  | {line}" for line in lines)[:most]


def _window(text: str, most: int, terms: Sequence[str]) -> str:
    """At most so many characters of `text`, where it holds most of the words looked for."""
    if len(text) <= most:
        return text
    low = text.lower()
    # By its beginning, as a word was found in another form.
    begun = [term.lower()[: max(4, len(term) * 3 // 4)] for term in terms]
    places = sorted(place for term in begun if (place := low.find(term)) >= 0)
    best = max(
        places,
        key=lambda start: sum(start <= place < start + most - 100 for place in places),
        default=0,
    )
    start = max(0, min(best - 80, len(text) - most))
    end = start + most
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"


def _miss(query: Query, result: SearchResult) -> str:
    looked = ", ".join(shortened(word, 40) for word in result.terms[:20])
    if query.skip:
        return f"There is nothing more for {_quoted(query.text)}."
    lines = [
        f"Nothing found for {_quoted(query.text)}.",
        f"Looked for the words: {looked}." if looked else "It holds no word to look for.",
        "Try other words; if they find nothing either, say that you do not know.",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return f"“{shortened(text, 100)}”"
