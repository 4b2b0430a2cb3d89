"""State of Dream between runs, including the pending plan (the document `dream`), and its report.

The plan of a batch is stored before its first write and removed after its last. A start that finds
one applies it again, which changes nothing that was done already. So a crash anywhere neither loses
a fact nor learns one twice, and costs no second request to the model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable

from msgspec import Struct, ValidationError, convert, to_builtins
from msgspec.structs import replace

from nanobot.bus.events import OWNER_ACCOUNT
from nanobot.bus.state import Document, InvalidDocument, StateStore
from nanobot.errors import WITHHELD, NanobotError
from nanobot.memory.guard import without_list_mark
from nanobot.memory.line_changes import Operation
from nanobot.text import pluralize


class UnreadableAnswer(NanobotError):
    """The model does not answer in the requested form."""


class RunBudgetSpent(NanobotError):
    """A run has used up its requests. The rest waits for the next run."""


class DreamLimits(Struct, frozen=True):
    """Limits of one run. `batch` is entries per request; `max_tokens` counts requests and
    answers."""

    batch: int = 20
    max_calls: int = 20
    max_tokens: int = 200_000


class Write(Struct, frozen=True):
    """Operations on one file. Their `retired` lines are over."""

    path: str
    operations: tuple[Operation, ...]
    retired: tuple[str, ...] = ()


class Hold(Struct, frozen=True):
    """Operations on one file that need the owner's approval."""

    path: str
    operations: tuple[Operation, ...]
    origins: tuple[str, ...]


class DreamPlan(Struct, frozen=True):
    """The results of a batch. `done` are the keys of its entries, `entries` is the number that the
    model read. The versions of one Dream share `run`. `set_aside` lists rejected facts with
    reasons."""

    writes: tuple[Write, ...] = ()
    holds: tuple[Hold, ...] = ()
    done: frozenset[str] = frozenset()
    entries: int = 0
    run: str = ""
    set_aside: tuple[str, ...] = ()


class ScopeState(Struct, frozen=True):
    """Stored state of one scope.

    `last_run` is the end of the last run in ISO 8601, or empty. `note` is the last day whose notes
    were distilled (YYYY-MM-DD), `digest` the last condensed month (YYYY-MM)."""

    last_run: str = ""
    note: str = ""
    digest: str = ""
    plan: DreamPlan | None = None


class DreamState(Document[dict[str, ScopeState]]):
    """The document `dream`, by scope. An unreadable one counts as empty: its content can be found
    again, at worst by a second reading. Blocks.

    `lock` is for Dream's writes and for forgetting. `forgotten` counts each time that something was
    forgotten: an older plan may contain it."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(
            store, "dream", _decode, _encode, {}, "Dream will read the new entries again."
        )
        self.lock, self.forgotten = asyncio.Lock(), 0

    def of(self, scope: str) -> ScopeState:
        """Return the state of `scope` as of the last `load`."""
        return self.value.get(scope, ScopeState())

    def put(self, scope: str, state: ScopeState) -> None:
        """Store the state, durably. Raise `StorageError`."""
        self.change(lambda scopes: {**scopes, scope: state})

    def drop_plans(self, is_ours: Callable[[str], bool]) -> None:
        """Drop the plans of these scopes, durably. Their entries are read again."""
        self.change(
            lambda scopes: {
                name: replace(state, plan=None) if is_ours(name) else state
                for name, state in scopes.items()
            }
        )


def _encode(scopes: dict[str, ScopeState]) -> bytes:
    # ASCII, because half of an emoji, which a model may write, is no UTF-8.
    return json.dumps(to_builtins(scopes)).encode("ascii")


def _decode(content: bytes) -> dict[str, ScopeState]:
    try:
        return convert(json.loads(content), dict[str, ScopeState])
    except (ValueError, ValidationError) as error:
        raise InvalidDocument(str(error)) from None


_SHOWN = 12
"""Maximum lines of one kind in a message. The rest is counted."""


class DreamReport(Struct):
    """The results of one run of Dream for one scope. It grows as the run proceeds.

    `entries` is the number of processed entries. `learned`, `retired` and `held_back` are lines
    without bullets, `refused` outdated lines that may not go. `versions` has the numbers of the
    run's versions, oldest first, any of which identifies all. `digests` are condensed months,
    `rated` counts rated facts, `set_aside` lists rejected facts with reasons. `problem` is the
    sentence why it ended early, or empty."""

    scope: str
    entries: int = 0
    learned: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    problem: str = ""
    refused: tuple[str, ...] = ()
    digests: tuple[str, ...] = ()
    rated: int = 0
    set_aside: tuple[str, ...] = ()

    def add(self, write: Write, version: int) -> None:
        """Report a write, and its version or 0."""
        old = (without_list_mark(one.old) for one in write.operations if one.old)
        over = {without_list_mark(line) for line in write.retired}
        self.learned += tuple(without_list_mark(one.new) for one in write.operations if one.states)
        self.rated += sum(one.only_rates for one in write.operations)
        self.retired += tuple(line for line in old if line in over)
        self.versions += (version,) if version else ()

    @property
    def is_news(self) -> bool:
        """True if there is something to report to a person who did not ask."""
        return bool(self.learned or self.retired or self.held_back or self.refused)

    @property
    def undoable(self) -> int:
        """The version that undoes the run, or 0."""
        return max(self.versions, default=0)

    @property
    def text(self) -> str:
        """Text for a person who asked for it."""
        problem = self.problem if self.scope == OWNER_ACCOUNT else WITHHELD
        parts = [
            render_section("While dreaming I learned:", self.learned),
            render_section("Moved to memory/retired.md because they are outdated:", self.retired),
            render_section("Pending your approval (`/memory pending`):", self.held_back),
            render_section(
                "These seem outdated, but I can't remove so many at once, so I kept them:",
                self.refused,
            ),
            render_section("Not learned:", self.set_aside),
            render_section("I wrote digests for these months (the notes are kept):", self.digests),
            f"I rated the importance of {pluralize(self.rated, 'fact')}."
            " `/memory` shows the ratings."
            if self.rated
            else "",
            f"I had to stop early: {problem}" if self.problem else "",
        ]
        if text := "\n\n".join(filter(None, parts)):
            return text
        if not self.entries:
            return "Nothing new to dream about."
        things = "one entry" if self.entries == 1 else f"{self.entries} entries"
        return f"I read {things} and found nothing new."

    @property
    def digest(self) -> str:
        """Text for a person who did not ask, with the command to undo it."""
        undo = f"Not right? Undo it with `/dream-restore --version {self.undoable}`."
        return f"{self.text}\n\n{undo}" if self.undoable else self.text


def render_section(heading: str, lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    shown = [f"- {line}" for line in lines[:_SHOWN]]
    more = len(lines) - len(shown)
    return "\n".join([heading, *shown, *([f"- … and {more} more"] if more else [])])
