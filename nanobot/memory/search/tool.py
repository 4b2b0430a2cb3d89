"""`search_memory`: the tool by which the agent looks up what was said and written down before.

Invariants: only scopes that the caller may read are searched, by a hit, by a neighbour and by
reading on from an id alike; a miss says what was looked for, so that "I don't know" is an honest
answer; facts that were retired are shown as such. A result counts as trusted only where nothing in
it came from elsewhere than this scope's own conversations.

Results are a text that a model reads and a person could. Lines that begin in the first column are
ours; everything that was found is indented, so that no found text can pass for a result of its own.
A text never grows beyond `MOST` characters: long passages are shown around the words looked for,
and the results that find no room are counted.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from typing import Literal, Protocol

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.memory.search.values import Hit, Passage, Query, SearchResult
from nanobot.memory.text.wording import late
from nanobot.text import shortened
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext

MOST = 6_000
"""Characters of a whole result."""

_PASSAGE, _NEIGHBOUR, _AROUND = 700, 160, 600
_RETIRED = 5
_WORD = late(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+|[^\W_]+")
_CJK = late(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_PLAIN = """
a an and are as at be but by did do does for from had has have how i in is it me my of on or our s
she he that the their they this to was we were what when where which who why will with you your user
nanobot
"""
_KINDS = {"history": "summary", "note": "note", "memory": "fact", "library": "document"}

Retired = tuple[date | str, str]
"""The day on which a fact was retired, and its line."""


@dataclass(frozen=True, slots=True)
class Shown:
    """A text, and the passages of which it shows anything."""

    text: str
    passages: tuple[Passage, ...]


class _Page:
    """Lines up to a number of characters."""

    def __init__(self, most: int) -> None:
        self._left = most
        self.parts: list[str] = []

    def add(self, part: str) -> bool:
        """Put `part` on the page if it fits."""
        if len(part) + 2 > self._left:
            return False
        self._left -= len(part) + 2
        self.parts.append(part)
        return True


def result_text(query: Query, result: SearchResult, retired: Sequence[Retired]) -> Shown:
    """The hits, best first, after the retired facts that speak of the same."""
    past = _retired_text(retired)
    if not result.hits:
        return Shown("\n\n".join(filter(None, (_miss(query, result), past))), ())
    page = _Page(MOST - 300)
    shown: list[Passage] = []
    if past:
        page.add(past)
    count = 0
    for number, found in enumerate(result.hits, 1):
        hit = _without(found, {passage.id for passage in shown})
        if not page.add(_hit_text(number, hit, result.terms)):
            break
        shown += [*hit.before, hit.passage, *hit.after]
        count = number
    head = f"{count} found for {_quoted(query.text)}{_filters(query)}, best first:"
    tail = "around=<id> reads on. Not it? Search again with other words."
    if count < len(result.hits):
        left = len(result.hits) - count
        tail = f"{left} more had no room here: narrow the search. {tail}"
    return Shown("\n\n".join([head, *page.parts, tail]), tuple(shown))


def around_text(id: str, passages: Sequence[Passage]) -> Shown:
    """A stretch of a conversation or document, in its order; the passage asked for is marked."""
    middle = next((n for n, passage in enumerate(passages) if passage.id == id), 0)
    nearest = sorted(range(len(passages)), key=lambda n: (abs(n - middle), n))
    page = _Page(MOST - 300)
    chosen: dict[int, str] = {}
    for number in nearest:
        mark = "> " if number == middle else ""
        text = f"{mark}{_who_when_where(passages[number])}\n{_indented(passages[number], _AROUND)}"
        if not page.add(text):
            break
        chosen[number] = text
    shown = [passages[number] for number in sorted(chosen)]
    head = f"Around {id}, in order:"
    tail = f"Before this: around={shown[0].id}. After this: around={shown[-1].id}."
    return Shown("\n\n".join([head, *(chosen[n] for n in sorted(chosen)), tail]), tuple(shown))


def retired_matching(text: str, retired: Iterable[Retired]) -> list[Retired]:
    """The retired facts that share the most telling words with `text`, newest first of equals."""
    asked = _words(text)
    scored = [(len(asked & _words(line)), str(day), line) for day, line in retired]
    most = max((score for score, _, _ in scored), default=0)
    least = max(1, most, (len(asked) + 1) // 2) if asked else 1
    found = sorted((item for item in scored if item[0] >= least), reverse=True)
    return [(day, line) for _, day, line in found[:_RETIRED]]


def _without(hit: Hit, seen: Collection[str]) -> Hit:
    """`hit` without the neighbours that were shown before."""
    before, after = (
        tuple(passage for passage in side if passage.id not in seen)
        for side in (hit.before, hit.after)
    )
    return replace(hit, before=before, after=after)


def _retired_text(retired: Sequence[Retired]) -> str:
    if not retired:
        return ""
    lines = [f"  - retired {day}: {shortened(line, 300)}" for day, line in retired]
    return "\n".join(["No longer true (retired from memory on the day given):", *lines])


def _hit_text(number: int, hit: Hit, terms: Sequence[str]) -> str:
    lines = [f"[{number}] {_who_when_where(hit.passage)}"]
    lines += [f"  before: {_neighbour(passage)}" for passage in hit.before]
    lines.append(_indented(hit.passage, _PASSAGE, terms, mark="  | "))
    lines += [f"  after: {_neighbour(passage)}" for passage in hit.after]
    return "\n".join(lines)


def _who_when_where(passage: Passage) -> str:
    when = f"{passage.when:%Y-%m-%d %a %H:%M}" if passage.when else "no date"
    where = passage.session if passage.source == "message" else passage.place
    origin = "" if passage.origin in ("", "nanobot") else f" · from {passage.origin}"
    return f"{when} · {_speaker(passage)} · {where}{origin} · id={passage.id}"


def _speaker(passage: Passage) -> str:
    if passage.source != "message":
        return _KINDS[passage.source]
    if passage.speaker and passage.speaker != passage.role:
        return f"{passage.role} ({shortened(passage.speaker, 60)})"
    return passage.role or "unknown"


def _neighbour(passage: Passage) -> str:
    who = _speaker(passage)
    when = f" {passage.when:%H:%M}" if passage.when and passage.source == "message" else ""
    return f"{who}{when}: {shortened(passage.text, _NEIGHBOUR)}"


def _indented(passage: Passage, most: int, terms: Sequence[str] = (), mark: str = "  | ") -> str:
    text = _window(passage.text.strip(), most, terms)
    return "\n".join(
        f"{mark}{line}" for line in re.split(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+", text)
    )


def _window(text: str, most: int, terms: Sequence[str]) -> str:
    """At most so many characters of `text`, where it holds most of the words looked for."""
    if len(text) <= most:
        return text
    low = text.lower()
    places = sorted(place for term in terms if (place := low.find(term.lower())) >= 0)
    best = max(
        places,
        key=lambda start: sum(start <= place < start + most - 100 for place in places),
        default=0,
    )
    start = max(0, min(best - 80, len(text) - most))
    end = start + most
    return f"{'…' if start else ''}{text[start:end].strip()}{'…' if end < len(text) else ''}"


def _miss(query: Query, result: SearchResult) -> str:
    lines = [f"Nothing found for {_quoted(query.text)}{_filters(query)}."]
    if result.terms:
        lines.append(f"Looked for the words: {', '.join(map(_word, result.terms[:20]))}.")
    else:
        lines.append("It holds no word to look for.")
    if result.near:
        lines.append(f"Words that are there and come close: {', '.join(map(_word, result.near))}.")
    lines.append("Try other words; if they find nothing either, say that you do not know.")
    return "\n".join(lines)


def _filters(query: Query) -> str:
    said = [
        f"in {shortened(query.session, 80)}" if query.session else "",
        f"since {query.since}" if query.since else "",
        f"until {query.until}" if query.until else "",
        f"said by {query.role}" if query.role else "",
        f"in {query.source}s only" if query.source in ("message", "note") else "",
        f"in {query.source} only" if query.source in ("history", "memory", "library") else "",
    ]
    filters = ", ".join(filter(None, said))
    return f" ({filters})" if filters else ""


def _quoted(text: str) -> str:
    return f"“{shortened(text, 200)}”"


def _word(word: str) -> str:
    return shortened(word, 40)


def _words(text: str) -> frozenset[str]:
    """Telling words, cut to their beginnings so that forms of one meet; CJK in pairs."""
    found: set[str] = set()
    plain = _PLAIN.split()
    for run in _WORD().findall(text.lower()):
        if _CJK().match(run):
            found.update(run[n : n + 2] for n in range(max(1, len(run) - 1)))
        elif run not in plain:
            found.add(run[:5])
    return frozenset(found)


_CONTEXT = 6
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[T ].*)?$")


class Searchable(Protocol):
    """What this needs of `MemoryIndex`."""

    async def search(self, query: Query) -> SearchResult: ...

    async def around(
        self, id: str, scopes: tuple[str, ...], before: int = 5, after: int = 5
    ) -> list[Passage]: ...


Readable = Callable[[str], tuple[str, ...]]
"""The scopes that a scope may read, itself first."""

RetiredOf = Callable[[str], Sequence[Retired]]
"""The retired facts of a scope. Called in a thread: it reads a file."""


class SearchArguments(Arguments):
    query: str = Field(
        "", description="What to look for: names, things, dates in plain words.", max_length=1_000
    )
    around: str = Field(
        "", description="An id from an earlier result: read what comes before and after it."
    )
    session: str = Field("", description="Only this conversation, such as telegram:123.")
    since: str = Field("", description="Not before this day, YYYY-MM-DD.")
    until: str = Field("", description="Not after this day, YYYY-MM-DD.")
    role: Literal["", "user", "assistant", "tool"] = Field("", description="Who said it.")
    source: Literal["", "message", "history", "note", "memory", "library"] = Field(
        "",
        description="Only messages, summaries of conversations, daily notes, long-term memory, or "
        "documents.",
    )
    limit: int = Field(8, ge=1, le=20, description="How many results.")


_DESCRIPTION = (
    "Search everything said in earlier conversations, summaries, daily notes, long-term memory and "
    "the documents in library/. Use it before you say that you do not know something about the "
    "person or the past. "
    "Search several times per question, with different words each time: synonyms, names, the words "
    "the person would have used, the other language; searches are cheap. Results come with date, "
    "speaker and an id; around=<id> reads on from there."
)


@dataclass(frozen=True, slots=True)
class SearchMemory(Tool):
    """Searches what the caller's scope may read."""

    index: Searchable
    readable: Readable
    retired: RetiredOf
    name = "search_memory"
    description = _DESCRIPTION
    arguments = SearchArguments

    async def __call__(self, arguments: SearchArguments, caller: TurnContext) -> ToolResult:
        scopes = self.readable(caller.scope)
        if arguments.around.strip():
            return _result(await self._around(arguments.around.strip(), scopes), caller)
        if not arguments.query.strip():
            raise ToolError("give a query to search for, or around with the id of a result")
        return _result(await self._search(arguments, scopes), caller)

    async def _around(self, id: str, scopes: tuple[str, ...]) -> Shown:
        passages = await self.index.around(id, scopes, _CONTEXT, _CONTEXT)
        if not passages:
            raise ToolError(
                f"there is nothing with the id {id[:200]!r}",
                hint="Ids stand in the results of search_memory; search again to get one.",
            )
        return around_text(id, passages)

    async def _search(self, arguments: SearchArguments, scopes: tuple[str, ...]) -> Shown:
        query = Query(
            arguments.query.strip(),
            scopes,
            session=arguments.session.strip(),
            since=_day(arguments.since, "since"),
            until=_day(arguments.until, "until", last=True),
            role=arguments.role,
            source=arguments.source,
            limit=arguments.limit,
        )
        result = await self.index.search(query)
        lists = [await asyncio.to_thread(self.retired, scope) for scope in scopes]
        retired = [fact for facts in lists for fact in facts]
        return result_text(query, result, retired_matching(query.text, retired))


def _result(shown: Shown, caller: TurnContext) -> ToolResult:
    trusted = all(_is_own(passage, caller.scope) for passage in shown.passages)
    return ToolResult(shown.text, trusted=trusted)


def _is_own(passage: Passage, scope: str) -> bool:
    """Whether a passage holds this scope's own words, or what the agent made of nothing else."""
    if passage.origin not in ("", "nanobot") or passage.scope != scope:
        return False
    return passage.source != "library" and passage.role != "tool"


def _day(text: str, name: str, *, last: bool = False) -> date | None:
    """The day that `text` names; of a month or a year the first, or the last."""
    if not text.strip():
        return None
    match = _DATE.match(text.strip())
    year, month, day = (int(part or 0) for part in match.groups()) if match else (0, 0, 0)
    try:
        if day or not last:
            return date(year, month or 1, day or 1)
        return date(year + (month in (0, 12)), month % 12 + 1, 1) - timedelta(days=1)
    except (ValueError, OverflowError) as error:
        raise ToolError(f"{name} must be a date such as 2026-03-10, not {text[:40]!r}") from error
