"""`search_memory`: the agent's tool to search earlier conversations and memory.

Invariants: only scopes that the caller may read are searched, whether by a hit, a neighbour or
reading on from an id. A miss lists the search terms, so that "I don't know" is an honest answer.
Pending and outdated facts are marked as such. A result is trusted only if all of it is from this
scope's own conversations.

Results are grouped by conversation and day, the best group first, under one header each, and within
it in order. So neighbours that several hits share are one run of text, and nothing is shown twice.
A number is the rank of a hit among all. Lines that begin in the first column are ours. All found
text is indented, so that it can't pass for a result.

The text has a budget of characters. The hits use it in their order, each with its direct
neighbours. The rest goes to the neighbours one step further. Long passages are cut to the part
around the search terms. Text that is already shown is left out of the neighbours, even if a reply
repeats most of it, and of another hit only its line is shown."""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import date
from itertools import chain
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from nanobot.errors import ToolError
from nanobot.memory.analysis import cut_window
from nanobot.memory.days import Span, read_days
from nanobot.memory.documents import FACTS
from nanobot.memory.search import Hit, Passage, Query, SearchResult
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.similarity import words
from nanobot.text import printable, shorten
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext

MOST_CHARACTERS = 12_000
"""Maximum characters of one search, including neighbours: 3,000 tokens of the prompt."""
_CONTEXT, _BEST = 4, 3
_DATE = r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[T ].*)?$"

RenderedPassages = tuple[str, Sequence[Passage]]
"""A text, and the passages that are in it, if only in part."""

# The score of a hit is the sum of 1 / (this + place), from 0, over the searches that find it.
_TOP = 5

_FRAME = 300  # characters reserved for the first line and the last

# Characters of a hit, of a neighbour, and of a neighbouring reply that answers no question.
_PASSAGE, _NEIGHBOUR, _REPLY = 700, 250, 100

_FARTHEST = 4  # maximum distance of a neighbour in passages: as many as a `Hit` has

# Share of a reply's words that are also in its message, at which it counts as a repetition.
_REPEATED = 0.6

_KINDS = {"history": "summary", "note": "note", "memory": "fact", "library": "document"}
_LINE_END = r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+"


class SearchArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(max_length=1_000)] = ""
    queries: Annotated[
        tuple[Annotated[str, Meta(max_length=1_000)], ...],
        Meta(max_length=8, description="Searched as well: synonyms, members of a kind."),
    ] = ()
    around: Annotated[
        str, Meta(description="Instead of query: the id of a result, to read around it.")
    ] = ""
    session: Annotated[str, Meta(description="Only this chat, such as telegram:123.")] = ""
    since: Annotated[str, Meta(description="First day, YYYY-MM-DD.")] = ""
    until: Annotated[str, Meta(description="Last day.")] = ""
    role: Literal["", "user", "assistant", "tool"] = ""
    source: Annotated[
        Literal["", "message", "history", "note", "memory", "library"],
        Meta(description="history: the summaries."),
    ] = ""
    limit: Annotated[int, Meta(ge=0, le=50)] = 0
    more: Annotated[int, Meta(ge=0, le=1_000, description="Go on from this result.")] = 0


_DESCRIPTION = (
    "Search earlier conversations (your advice: role assistant), summaries, daily notes, long-term "
    "memory and library/. Use it before you say you do not know something about the person or "
    "the past, with several queries: synonyms, names, words the person would have used, their "
    "other language, for hobbies also sports and music. For lists and counts, go on with more "
    "until nothing new comes."
)


class SearchMemory(Tool, Struct, frozen=True):
    """Tool that searches the readable scopes.

    `readable` returns the scopes that a scope may read, itself first. `note_use` gets, in a thread,
    the facts of a scope that were looked up, unless the caller read untrusted content, which may
    have asked for it. A call without a limit shows `results` hits, or up to 1.75 times as many if
    there is room, in at most so many `characters`."""

    index: MemoryIndex
    readable: Callable[[str], tuple[str, ...]]
    note_use: Callable[[str, Sequence[str]], None] = lambda _, __: None
    results: int = 20
    characters: int = MOST_CHARACTERS
    name = "search_memory"
    description = _DESCRIPTION
    arguments = SearchArguments

    async def __call__(self, arguments: SearchArguments, caller: TurnContext) -> ToolResult:
        scopes = self.readable(caller.scope)
        if id := arguments.around.strip():
            beside = min(_CONTEXT, self.characters // 1_000)
            passages = await self.index.around(id, scopes, beside, beside)
            if not passages:
                raise ToolError(
                    f"no result has the id {id[:200]!r}",
                    hint="Use an id from the results of search_memory.",
                )
            text, shown = around_text(id, passages, self.characters)
        elif any(map(str.strip, (arguments.query, *arguments.queries))):
            text, shown = await self._search(arguments, scopes, counts=not caller.origins())
        else:
            raise ToolError("give a query to search for, or around with the id of a result")
        return ToolResult(text, trusted=all(_is_own(passage, caller.scope) for passage in shown))

    async def _search(
        self, arguments: SearchArguments, scopes: tuple[str, ...], *, counts: bool
    ) -> RenderedPassages:
        today = self.index.today()
        since = parse_days("since", arguments.since, today)
        until = parse_days("until", arguments.until, today)
        asked = filter(None, map(str.strip, (arguments.query, *arguments.queries)))
        texts = list(dict.fromkeys(asked))
        query = Query(
            "; ".join(texts),
            scopes,
            session=arguments.session.strip(),
            since=since.first if since else None,
            until=until.last if until else None,
            role=arguments.role,
            source=arguments.source,
            limit=arguments.limit or self.results * 7 // 4,
            skip=max(0, arguments.more - 1),
        )
        result = await self._search_each(texts, query)
        for scope, facts in (collect_facts(result) if counts and not query.skip else {}).items():
            await asyncio.to_thread(self.note_use, scope, facts)
        return results_text(query, result, self.characters)

    async def _search_each(self, texts: Sequence[str], query: Query) -> SearchResult:
        """Return the results of a query for each of the `texts`, as one list."""
        if len(texts) == 1:
            return await self.index.search(query)
        end = query.skip + query.limit
        each = [replace(query, text=text, limit=end, skip=0) for text in texts]
        return fuse_results([await self.index.search(one) for one in each], query.skip, end)


def fuse_results(results: Sequence[SearchResult], first: int, end: int) -> SearchResult:
    """Return the hits from place `first` to `end` of all results, in the order of their places: a
    hit with several counts more."""
    hits, scores = dict[str, Hit](), defaultdict[str, float](float)
    for place, hit in chain.from_iterable(enumerate(result.hits) for result in results):
        hits.setdefault(hit.passage.id, hit)
        scores[hit.passage.id] += 1 / (_TOP + place)
    best = sorted(scores, key=scores.__getitem__, reverse=True)
    terms = dict.fromkeys(chain.from_iterable(result.terms for result in results))
    left = max(0, len(best) - end) + max(result.left for result in results)
    return SearchResult(tuple(hits[id] for id in best[first:end]), tuple(terms), left)


def collect_facts(result: SearchResult) -> dict[str, list[str]]:
    """Return the facts of long-term files among the best hits of a search, by scope."""
    found: dict[str, list[str]] = {}
    for hit in result.hits[:_BEST]:
        passage = hit.passage
        if passage.source == "memory" and passage.place.partition(":")[0] in FACTS:
            found.setdefault(passage.scope, []).append(passage.text.rpartition("\n")[2])
    return found


def _is_own(passage: Passage, scope: str) -> bool:
    """Return True if a passage is this scope's own words, or the agent's without untrusted
    content."""
    if passage.origin not in ("", "nanobot") or passage.scope != scope:
        return False
    return passage.source != "library" and passage.role != "tool"


def parse_days(name: str, text: str, today: date) -> Span | None:
    """Return the day, month or year in the argument `name`, of several readings all."""
    if not text.strip():
        return None
    if not (match := re.match(_DATE, text.strip())):
        spans = read_days(text, today).spans
        if spans:
            return Span(min(one.first for one in spans), max(one.last for one in spans))
    try:
        return Span.of(*(int(part or 0) for part in match.groups())) if match else Span.of(0)
    except (ValueError, OverflowError) as error:
        raise ToolError(f"{name} must be a date such as 2026-03-10, not {text[:40]!r}") from error


def results_text(query: Query, result: SearchResult, most: int) -> RenderedPassages:
    """Render the hits in at most `most` characters."""
    if not result.hits:
        return render_miss(query, result), ()
    first = query.skip + 1
    page = _Page(result, first, most - _FRAME)
    last = query.skip + page.count
    head = f"Results {first} to {last} for {_quote(query.text)}, [{first}] the best:"
    tail = "around=<id> reads on. Not it? Search again with other words."
    if result.left or page.count < len(result.hits):
        tail = f"More: the same query with more={last + 1}. {tail}"
    return "\n\n".join([head, *page.groups(), tail]), tuple(page.shown.values())


class _Page:
    """As many hits as fit, numbered from `first`, and their neighbours."""

    def __init__(self, result: SearchResult, first: int, room: int) -> None:
        self.shown: dict[str, Passage] = {}
        self._texts: dict[str, str] = {}
        self._groups: dict[str, list[Passage]] = {}
        self._room, self._terms = room, result.terms
        self._numbers = {hit.passage.id: number for number, hit in enumerate(result.hits, first)}
        self.count = 0
        for hit in result.hits:
            text = self._render_hit(hit.passage, min(_PASSAGE, room // 3))
            if not self.shown:  # the first is always shown, so that each page advances
                text = text[: room - len(render_group(hit.passage)) - 3]
            if not (self._is_repetition(hit) or self._add(hit.passage, text)):
                break
            self.count += 1
            self._add_beside(hit, 1)
        for distance in range(2, _FARTHEST + 1):
            for hit in result.hits[: self.count]:
                self._add_beside(hit, distance)

    def groups(self) -> Iterator[str]:
        """Render the passages of each conversation and day under one header, the best group
        first."""
        for header, passages in self._groups.items():
            passages.sort(key=lambda one: (one.id.rpartition(":")[0], one.seq))
            yield "\n".join([header, *(self._texts[one.id] for one in passages)])

    def _is_repetition(self, hit: Hit) -> bool:
        """Return True if it repeats a passage that is shown right before it."""
        before = hit.before[-1:]
        return any(one.id in self.shown and repeats_message(hit.passage, one) for one in before)

    def _add(self, passage: Passage, text: str) -> bool:
        """Show `text` of a passage. Return False if it does not fit."""
        header = render_group(passage)
        cost = len(text) + 1 + (len(header) + 2) * (header not in self._groups)
        if cost > self._room:
            return False
        self._room -= cost
        self._groups.setdefault(header, []).append(passage)
        self.shown[passage.id], self._texts[passage.id] = passage, text
        return True

    def _render_hit(self, passage: Passage, most: int) -> str:
        what = _who(passage) if passage.source == "message" else printable(passage.place)
        head = f"[{self._numbers[passage.id]}] {what}{render_marks(passage)} · id={_id(passage)}"
        for other in self.shown.values():
            if other.id in self._numbers and other.text == passage.text:
                return f"{head} · the same text as [{self._numbers[other.id]}]"
        return f"{head}\n{_indent(passage.text, most, self._terms)}"

    def _add_beside(self, hit: Hit, distance: int) -> None:
        """Show the neighbours at this distance that are neither shown nor hits."""
        talk = [*hit.before, hit.passage, *hit.after]
        here, known = len(hit.before), self._numbers.keys() | self.shown.keys()
        for at in (here - distance, here + distance):
            if not 0 <= at < len(talk) or talk[at].id in known:
                continue
            one, before = talk[at], talk[at - 1] if at else None
            if before is None or not repeats_message(one, before):
                is_aside = one.role == "assistant" and not (before and _asks(before))
                text = shorten(one.text, _REPLY if is_aside else _NEIGHBOUR)
                self._add(one, f"  {_who(one)}: {text}")


def render_group(passage: Passage) -> str:
    day = f"{passage.when:%Y-%m-%d %a}" if passage.when else "no date"
    what = _KINDS.get(passage.source) or printable(passage.session)
    return f"{day} · {what}"


def _id(passage: Passage) -> str:
    """Return the id on one line: names of files and conversations may contain line breaks."""
    return re.sub(_LINE_END, " ", passage.id)


def repeats_message(reply: Passage, said: Passage) -> bool:
    """Return True if the agent only repeats its message. An answer to a question does not count."""
    if reply.role != "assistant" or said.role != "user" or _asks(said):
        return False
    again = words(reply.text)
    return len(again & words(said.text)) >= _REPEATED * len(again)


def _asks(passage: Passage) -> bool:
    return "?" in passage.text or "？" in passage.text


def around_text(id: str, passages: Sequence[Passage], most: int) -> RenderedPassages:
    """Render a stretch of a conversation or document, in order, with the requested passage
    marked."""
    each, texts = max(100, most // len(passages) - 200), list[str]()
    for one in passages:
        mark = "> " if one.id == id else ""
        when = f"{one.when:%Y-%m-%d %a %H:%M}" if one.when else "no date"
        where = printable(one.session if one.source == "message" else one.place)
        about = f"{when} · {_speaker(one)} · {where}{render_marks(one)} · id={_id(one)}"
        texts.append(f"{mark}{about}\n{_indent(one.text, each)}")
    head = f"Around {re.sub(_LINE_END, ' ', id)}, in order:"
    tail = f"Before this: around={_id(passages[0])}. After this: around={_id(passages[-1])}."
    return "\n\n".join([head, *texts, tail]), passages


def render_marks(passage: Passage) -> str:
    """Render a passage's untrusted origin, and whether it is marked to keep."""
    origin = "" if passage.origin in ("", "nanobot") else f" · from {passage.origin}"
    return f"{origin} · marked to keep" if passage.kept else origin


def _speaker(passage: Passage) -> str:
    if passage.source != "message":
        return _KINDS[passage.source]
    if passage.speaker and passage.speaker != passage.role:
        return f"{passage.role} ({shorten(passage.speaker, 60)})"
    return passage.role or "unknown"


def _who(passage: Passage) -> str:
    """Return the time and author of a message, or the kind of another text."""
    when = f"{passage.when:%H:%M} " if passage.when and passage.source == "message" else ""
    return f"{when}{_speaker(passage)}"


def _indent(text: str, most: int, terms: Sequence[str] = ()) -> str:
    lines = re.split(_LINE_END, cut_window(text.strip(), most - 10, terms))
    return "\n".join(f"  | {line}" for line in lines)[:most]


def render_miss(query: Query, result: SearchResult) -> str:
    looked = ", ".join(shorten(word, 40) for word in result.terms[:20])
    if query.skip:
        return f"There is nothing more for {_quote(query.text)}."
    lines = [
        f"Nothing found for {_quote(query.text)}.",
        f"Looked for the words: {looked}." if looked else "It holds no word to look for.",
        "Try other words. If they find nothing either, say that you do not know.",
    ]
    return "\n".join(lines)


def _quote(text: str) -> str:
    return f"“{shorten(text, 100)}”"
