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
from collections.abc import Callable, Iterable, Sequence
from datetime import date, timedelta
from typing import Annotated, Literal

from msgspec import Meta, Struct

from nanobot.errors import ToolError
from nanobot.memory.search import Hit, Passage, Query, SearchResult
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.wording import words
from nanobot.text import shortened
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext

MOST = 6_000
"""Characters of a whole result."""

_ROOM = MOST - 300
_PASSAGE, _NEIGHBOUR, _AROUND = 700, 160, 550
_RETIRED, _CONTEXT, _BEST = 5, 4, 3
_KINDS = {"history": "summary", "note": "note", "memory": "fact", "library": "document"}
_LINE_END = re.compile(r"[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[T ].*)?$")

Retired = tuple[date | str, str]
"""The day on which a fact was retired, and its line."""

Shown = tuple[str, Sequence[Passage]]
"""A text, and the passages of which it shows anything."""


class SearchArguments(Arguments, frozen=True):
    query: Annotated[str, Meta(max_length=1_000)] = ""
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
    limit: Annotated[int, Meta(ge=1, le=20)] = 8


_DESCRIPTION = (
    "Search everything said in earlier conversations, summaries, daily notes, long-term memory and "
    "the documents in library/. Use it before you say that you do not know something about the "
    "person or the past, and several times per question, with different words: synonyms, names, "
    "words the person would have used, their other language. Searches are cheap."
)


class SearchMemory(Tool, Struct, frozen=True):
    """Searches what the caller's scope may read. `readable` gives the scopes that a scope may read,
    itself first; `retired` the retired facts of one, in a thread, since it reads a file. `note_use`
    is told, in a thread, which facts of a scope were looked up."""

    index: MemoryIndex
    readable: Callable[[str], tuple[str, ...]]
    retired: Callable[[str], Sequence[Retired]]
    note_use: Callable[[str, Sequence[str]], None] = lambda _, __: None
    name = "search_memory"
    description = _DESCRIPTION
    arguments = SearchArguments

    async def __call__(self, arguments: SearchArguments, caller: TurnContext) -> ToolResult:
        scopes = self.readable(caller.scope)
        if id := arguments.around.strip():
            text, shown = await self._around(id, scopes)
        elif arguments.query.strip():
            text, shown = await self._search(arguments, scopes)
        else:
            raise ToolError("give a query to search for, or around with the id of a result")
        return ToolResult(text, trusted=all(_is_own(passage, caller.scope) for passage in shown))

    async def _around(self, id: str, scopes: tuple[str, ...]) -> Shown:
        passages = await self.index.around(id, scopes, _CONTEXT, _CONTEXT)
        if not passages:
            raise ToolError(
                f"there is nothing with the id {id[:200]!r}",
                hint="Ids are in the results of search_memory; search again to get one.",
            )
        return _around_text(id, passages)

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
        for scope, facts in looked_up(result).items():
            await asyncio.to_thread(self.note_use, scope, facts)
        lists = [await asyncio.to_thread(self.retired, scope) for scope in scopes]
        retired = [fact for facts in lists for fact in facts]
        return _result_text(query, result, retired_matching(query.text, retired))


def looked_up(result: SearchResult) -> dict[str, list[str]]:
    """The facts of long-term files to which a search led, by scope: those of its best hits."""
    found: dict[str, list[str]] = {}
    for hit in result.hits[:_BEST]:
        if hit.passage.source == "memory":
            found.setdefault(hit.passage.scope, []).append(hit.passage.text)
    return found


def retired_matching(text: str, retired: Iterable[Retired]) -> list[Retired]:
    """The retired facts that share the most words with `text`, newest first of equals."""
    asked = words(text)
    scored = [(len(asked & words(line)), str(day), line) for day, line in retired]
    most = max((score for score, _, _ in scored), default=0)
    least = max(1, most, (len(asked) + 1) // 2)
    found = sorted((item for item in scored if item[0] >= least), reverse=True)
    return [(day, line) for _, day, line in found[:_RETIRED]]


def _is_own(passage: Passage, scope: str) -> bool:
    """Whether a passage holds this scope's own words, or what the agent made of nothing else."""
    if passage.origin not in ("", "nanobot") or passage.scope != scope:
        return False
    return passage.source != "library" and passage.role != "tool"


def _result_text(query: Query, result: SearchResult, retired: Sequence[Retired]) -> Shown:
    """The hits, best first, after the retired facts that speak of the same."""
    past = _retired_text(retired)
    if not result.hits:
        return "\n\n".join([_miss(query, result), *past]), ()
    hits, shown = list[str](), dict[str, Passage]()
    room = _ROOM - sum(map(len, past))
    for hit in result.hits:
        text = _hit_text(len(hits) + 1, hit, result.terms, shown)
        room -= len(text) + 2
        if room < 0:
            break
        hits.append(text)
        shown |= {passage.id: passage for passage in (*hit.before, hit.passage, *hit.after)}
    count = len(hits)
    head = f"{count} found for {_quoted(query.text)}, best first:"
    tail = "around=<id> reads on. Not it? Search again with other words."
    if left := len(result.hits) - count:
        tail = f"{left} more had no room here: narrow the search. {tail}"
    return "\n\n".join([head, *past, *hits, tail]), tuple(shown.values())


def _around_text(id: str, passages: Sequence[Passage]) -> Shown:
    """A stretch of a conversation or document, in its order; the passage asked for is marked."""
    texts = [
        f"{'> ' if one.id == id else ''}{_who_when_where(one)}\n{_indented(one.text, _AROUND)}"
        for one in passages
    ]
    head = f"Around {id}, in order:"
    tail = f"Before this: around={passages[0].id}. After this: around={passages[-1].id}."
    return "\n\n".join([head, *texts, tail]), passages


def _retired_text(retired: Sequence[Retired]) -> list[str]:
    if not retired:
        return []
    lines = [f"  - retired {day}: {shortened(line, 300)}" for day, line in retired]
    return ["\n".join(["No longer true (retired from memory on the day given):", *lines])]


def _hit_text(number: int, hit: Hit, terms: Sequence[str], seen: Iterable[str]) -> str:
    """A hit with its neighbours, but for those that were `seen` before."""
    known = set(seen)
    before, after = (
        [f"  {where}: {_neighbour(one)}" for one in side if one.id not in known]
        for where, side in (("before", hit.before), ("after", hit.after))
    )
    here = [f"[{number}] {_who_when_where(hit.passage)}"]
    return "\n".join([*here, *before, _indented(hit.passage.text, _PASSAGE, terms), *after])


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
    when = f" {passage.when:%H:%M}" if passage.when and passage.source == "message" else ""
    return f"{_speaker(passage)}{when}: {shortened(passage.text, _NEIGHBOUR)}"


def _indented(text: str, most: int, terms: Sequence[str] = ()) -> str:
    return "\n".join(f"  | {line}" for line in _LINE_END.split(_window(text.strip(), most, terms)))


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
    looked = ", ".join(shortened(word, 40) for word in result.terms[:20])
    lines = [
        f"Nothing found for {_quoted(query.text)}.",
        f"Looked for the words: {looked}." if looked else "It holds no word to look for.",
        "Try other words; if they find nothing either, say that you do not know.",
    ]
    return "\n".join(lines)


def _quoted(text: str) -> str:
    return f"“{shortened(text, 200)}”"


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
