"""What Dream remembers between runs, what it was about to do (the document `dream`), and its
report.

The plan of a batch is stored before its first write and gone after its last. A start that finds one
carries it out again, which changes nothing where it was done already; so a crash anywhere neither
loses a fact nor learns one twice, and costs no second question to the model.
"""

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


class Unintelligible(NanobotError):
    """The model does not answer in the form that it is asked for."""


class RunBudgetSpent(NanobotError):
    """A run has asked as much as it may; what is left waits for the next."""


class DreamLimits(Struct, frozen=True):
    """What one run may use. `batch` is entries a question; `max_tokens` counts questions and
    answers."""

    batch: int = 20
    max_calls: int = 20
    max_tokens: int = 200_000


class Write(Struct, frozen=True):
    """Operations on one file, of whose lines the `retired` ones are over."""

    path: str
    operations: tuple[Operation, ...]
    retired: tuple[str, ...] = ()


class Hold(Struct, frozen=True):
    """Operations on one file that wait for the owner's word."""

    path: str
    operations: tuple[Operation, ...]
    origins: tuple[str, ...]


class DreamPlan(Struct, frozen=True):
    """What a batch comes to. `done` are the keys of its entries; `entries` is how many the model
    read. `run` is what the versions of one Dream share. `set_aside` says what was not taken, and
    why."""

    writes: tuple[Write, ...] = ()
    holds: tuple[Hold, ...] = ()
    done: frozenset[str] = frozenset()
    entries: int = 0
    run: str = ""
    set_aside: tuple[str, ...] = ()


class ScopeState(Struct, frozen=True):
    """What is remembered of one scope.

    `last_run` is when a run last ended, in ISO 8601, empty for never. `note` is the last day whose
    notes were distilled, as YYYY-MM-DD, `digest` the last month that was condensed, as YYYY-MM.
    """

    last_run: str = ""
    note: str = ""
    digest: str = ""
    plan: DreamPlan | None = None


class DreamState(Document[dict[str, ScopeState]]):
    """The document `dream`, by scope. One that cannot be read counts as empty: what it held can be
    found out again, at the worst by a second reading. Blocks.

    `lock` is for Dream's writes and for forgetting; `forgotten` counts how often something was
    forgotten: a plan from before may hold it.
    """

    def __init__(self, store: StateStore) -> None:
        super().__init__(
            store, "dream", _decoded, _encoded, {}, "Dream reads the new entries again."
        )
        self.lock, self.forgotten = asyncio.Lock(), 0

    def of(self, scope: str) -> ScopeState:
        """What is remembered of `scope`, of which the last `load` knows."""
        return self.known.get(scope, ScopeState())

    def put(self, scope: str, state: ScopeState) -> None:
        """Remember it, durably. Raises `StorageError`."""
        self.change(lambda scopes: {**scopes, scope: state})

    def drop_plans(self, is_ours: Callable[[str], bool]) -> None:
        """Let go of what was about to be done in these scopes, durably; the entries behind it are
        read again."""
        self.change(
            lambda scopes: {
                name: replace(state, plan=None) if is_ours(name) else state
                for name, state in scopes.items()
            }
        )


def _encoded(scopes: dict[str, ScopeState]) -> bytes:
    # Half of an emoji, which a model may write, is no UTF-8.
    return json.dumps(to_builtins(scopes)).encode("ascii")


def _decoded(content: bytes) -> dict[str, ScopeState]:
    try:
        return convert(json.loads(content), dict[str, ScopeState])
    except (ValueError, ValidationError) as error:
        raise InvalidDocument(str(error)) from None


_SHOWN = 12
"""Lines of one kind in a message; the rest is counted."""


class DreamReport(Struct):
    """What one run of Dream did for one scope; it grows as the run goes on.

    `entries` is how many were read through. `learned`, `retired` and `held_back` are lines without
    bullets, `refused` lines that are over but may not go; `versions` the numbers of the versions
    that it made, oldest first, any of which stands for all. `digests` are the files of months that
    it condensed, `rated` counts facts of which it said how important they are, `set_aside` says
    what was not learned, and why. `problem` says why it ended early, in a sentence, empty if it did
    not.
    """

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
        """Report what was written, and the version that it became, 0 for none."""
        old = (without_list_mark(one.old) for one in write.operations if one.old)
        over = {without_list_mark(line) for line in write.retired}
        self.learned += tuple(without_list_mark(one.new) for one in write.operations if one.states)
        self.rated += sum(one.says_nothing_new for one in write.operations)
        self.retired += tuple(line for line in old if line in over)
        self.versions += (version,) if version else ()

    @property
    def is_news(self) -> bool:
        """Whether there is anything to tell a person who did not ask."""
        return bool(self.learned or self.retired or self.held_back or self.refused)

    @property
    def undoable(self) -> int:
        """The version that undoes the run, 0 where it made none."""
        return max(self.versions, default=0)

    @property
    def text(self) -> str:
        """For a person who asked for it."""
        problem = self.problem if self.scope == OWNER_ACCOUNT else WITHHELD
        parts = [
            _listed("While dreaming I learned:", self.learned),
            _listed("Outdated, so I moved it to memory/retired.md:", self.retired),
            _listed("Pending your approval (`/memory pending`):", self.held_back),
            _listed(
                "These seem outdated, but I may not remove so many at once, so I kept them:",
                self.refused,
            ),
            _listed("Not learned:", self.set_aside),
            _listed("I wrote digests of these months (the notes are kept):", self.digests),
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
        """For a person who did not ask: the same, and how to undo it."""
        undo = f"Not right? Undo it with `/dream-restore --version {self.undoable}`."
        return f"{self.text}\n\n{undo}" if self.undoable else self.text


def _listed(heading: str, lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    shown = [f"- {line}" for line in lines[:_SHOWN]]
    more = len(lines) - len(shown)
    return "\n".join([heading, *shown, *([f"- … and {more} more"] if more else [])])
