"""`search_memory`: the tool by which the agent looks up what was said and written down before.

What always holds: only scopes that the caller may read are searched, by a hit, by a neighbour and
by reading on from an id alike; a miss says what was looked for, so that "I don't know" is an honest
answer; facts that were retired are shown as such. A result counts as trusted only where nothing in
it came from elsewhere than this scope's own conversations. How it reads is in `search_text`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Literal, Protocol

from pydantic import Field

from nanobot.errors import ToolError
from nanobot.memory.index.text import Retired, Shown, around_text, result_text, retired_matching
from nanobot.memory.index.values import Passage, Query, SearchResult
from nanobot.tooling import Arguments, Caller, ToolResult

_AROUND = 6
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
class SearchMemory:
    """Searches what the caller's scope may read."""

    index: Searchable
    readable: Readable
    retired: RetiredOf
    name: str = "search_memory"
    description: str = _DESCRIPTION
    arguments: type[SearchArguments] = SearchArguments
    effects: bool = False
    parallel: bool = True

    async def __call__(self, arguments: SearchArguments, caller: Caller) -> ToolResult:
        scopes = self.readable(caller.scope)
        if arguments.around.strip():
            return _result(await self._around(arguments.around.strip(), scopes), caller)
        if not arguments.query.strip():
            raise ToolError("give a query to search for, or around with the id of a result")
        return _result(await self._search(arguments, scopes), caller)

    async def _around(self, id: str, scopes: tuple[str, ...]) -> Shown:
        passages = await self.index.around(id, scopes, _AROUND, _AROUND)
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


def _result(shown: Shown, caller: Caller) -> ToolResult:
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
