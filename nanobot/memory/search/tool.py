"""`search_memory`: the tool by which the agent looks up what was said and written down before.

Invariants: only scopes that the caller may read are searched, by a hit, by a neighbour and by
reading on from an id alike; a miss says what was looked for, so that "I don't know" is an honest
answer; facts that wait or are no longer true are shown as such. A result counts as trusted only
where nothing in it came from elsewhere than this scope's own conversations.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from typing import Annotated, Literal

from msgspec import Meta, Struct

from nanobot.errors import ToolError
from nanobot.memory.documents import FACTS
from nanobot.memory.search import Passage, Query, SearchResult
from nanobot.memory.search.index import MemoryIndex
from nanobot.memory.search.question import Span
from nanobot.memory.search.results import Shown, around_text, results_text
from nanobot.tooling import Arguments, Tool, ToolResult, TurnContext

MOST_CHARACTERS = 12_000
"""Of one search: what was said around the results included, and 3,000 tokens of the prompt."""
_CONTEXT, _BEST = 4, 3
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?(?:[T ].*)?$")


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
    limit: Annotated[int, Meta(ge=0, le=50)] = 0
    more: Annotated[int, Meta(ge=0, le=1_000, description="Go on from this result.")] = 0


_DESCRIPTION = (
    "Search what was said in earlier conversations, summaries, daily notes, long-term memory and "
    "library/. Use it before you say that you do not know something about the person or the past, "
    "and several times, with different words: synonyms, names, words the person would have used, "
    "their other language. For lists and counts, also go on with more until nothing new comes."
)


class SearchMemory(Tool, Struct, frozen=True):
    """Searches what the caller's scope may read. `readable` gives the scopes that a scope may read,
    itself first. `note_use` is told, in a thread, which facts of a scope were looked up, unless
    untrusted content was read, which may have asked for it. A call shows so many `results`, or
    half as many again where there is room, unless it says how many, in at most so many
    `characters`."""

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
            text, shown = await self._around(id, scopes)
        elif arguments.query.strip():
            text, shown = await self._search(arguments, scopes, counts=not caller.origins())
        else:
            raise ToolError("give a query to search for, or around with the id of a result")
        return ToolResult(text, trusted=all(_is_own(passage, caller.scope) for passage in shown))

    async def _around(self, id: str, scopes: tuple[str, ...]) -> Shown:
        beside = min(_CONTEXT, self.characters // 1_000)
        passages = await self.index.around(id, scopes, beside, beside)
        if not passages:
            raise ToolError(
                f"there is nothing with the id {id[:200]!r}",
                hint="Ids are in the results of search_memory; search again to get one.",
            )
        return around_text(id, passages, self.characters)

    async def _search(
        self, arguments: SearchArguments, scopes: tuple[str, ...], *, counts: bool
    ) -> Shown:
        since, until = _days("since", arguments.since), _days("until", arguments.until)
        query = Query(
            arguments.query.strip(),
            scopes,
            session=arguments.session.strip(),
            since=since.first if since else None,
            until=until.last if until else None,
            role=arguments.role,
            source=arguments.source,
            limit=arguments.limit or self.results * 3 // 2,
            skip=max(0, arguments.more - 1),
        )
        result = await self.index.search(query)
        for scope, facts in (looked_up(result) if counts and not query.skip else {}).items():
            await asyncio.to_thread(self.note_use, scope, facts)
        return results_text(query, result, self.characters)


def looked_up(result: SearchResult) -> dict[str, list[str]]:
    """The facts of long-term files to which a search led, by scope: those of its best hits."""
    found: dict[str, list[str]] = {}
    for hit in result.hits[:_BEST]:
        passage = hit.passage
        if passage.source == "memory" and passage.place.partition(":")[0] in FACTS:
            found.setdefault(passage.scope, []).append(passage.text.rpartition("\n")[2])
    return found


def _is_own(passage: Passage, scope: str) -> bool:
    """Whether a passage holds this scope's own words, or what the agent made of nothing else."""
    if passage.origin not in ("", "nanobot") or passage.scope != scope:
        return False
    return passage.source != "library" and passage.role != "tool"


def _days(name: str, text: str) -> Span | None:
    """The day, month or year that the argument `name` says."""
    if not text.strip():
        return None
    match = _DATE.match(text.strip())
    try:
        return Span.of(*(int(part or 0) for part in match.groups())) if match else Span.of(0)
    except (ValueError, OverflowError) as error:
        raise ToolError(f"{name} must be a date such as 2026-03-10, not {text[:40]!r}") from error
