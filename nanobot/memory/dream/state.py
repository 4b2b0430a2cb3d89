"""What Dream remembers between runs, what it was about to do (the document `dream`), and its
report.

The plan of a batch is stored before its first write and gone after its last. A start that finds one
carries it out again, which changes nothing where it was done already; so a crash anywhere neither
loses a fact nor learns one twice, and costs no second question to the model.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime

from nanobot.bus.state import Document, StateStore, UnfitDocument
from nanobot.memory.text.lines import Operation
from nanobot.providers.endpoint import count, items, mapping, parse_json, string


@dataclass(frozen=True, slots=True)
class Write:
    """Operations on one file, of whose lines the `retired` ones are over."""

    path: str
    operations: tuple[Operation, ...]
    retired: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Hold:
    """Operations on one file that wait for the owner's word."""

    path: str
    operations: tuple[Operation, ...]
    origins: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Plan:
    """What a batch comes to. `done` are the keys of entries that need not be read again, `skipped`
    those that the model left for later; `entries` is how many it read. What was forgotten since
    `since`, when the thinking began, may still be in it (None: whatever was forgotten). `run` is
    what the versions of one Dream share."""

    writes: tuple[Write, ...] = ()
    holds: tuple[Hold, ...] = ()
    done: frozenset[str] = frozenset()
    skipped: frozenset[str] = frozenset()
    entries: int = 0
    since: datetime | None = None
    run: str = ""


@dataclass(frozen=True, slots=True)
class ScopeState:
    """What is remembered of one scope.

    `last_run` is when a run last ended, or when this scope was first seen. `note` is the last day
    whose notes were distilled, as YYYY-MM-DD. `done` holds entries beyond the cursor that were
    read, `skipped` those left for later, and how often. After `failures` in a row nothing is tried
    before `retry_at`.
    """

    last_run: datetime | None = None
    note: str = ""
    done: frozenset[str] = frozenset()
    skipped: Mapping[str, int] = field(default_factory=dict)
    failures: int = 0
    retry_at: datetime | None = None
    plan: Plan | None = None


class DreamState(Document[dict[str, ScopeState]]):
    """The document `dream`, by scope. One that cannot be read counts as empty: what it held can be
    found out again, at the worst by a second reading. Blocks."""

    def __init__(self, store: StateStore) -> None:
        super().__init__(store, "dream", _decoded, _encoded, {}, "Dream reads again what is new.")
        self._unstored: dict[str, ScopeState] = {}

    def of(self, scope: str) -> ScopeState:
        """What is remembered of `scope`."""
        return self._unstored.get(scope) or self.load().get(scope, ScopeState())

    def put(self, scope: str, state: ScopeState) -> None:
        """Remember it, durably. Raises `StorageError`."""
        self.change(lambda scopes: {**scopes, scope: state})
        self._unstored.pop(scope, None)

    def put_for_now(self, scope: str, state: ScopeState) -> None:
        """Remember it until this process ends, where the disk does not take it."""
        self._unstored[scope] = state

    def drop_plans(self) -> None:
        """Let go of what was about to be done, durably; the entries behind it are read again."""
        self.change(
            lambda scopes: {name: replace(state, plan=None) for name, state in scopes.items()}
        )


def _encoded(scopes: Mapping[str, ScopeState]) -> bytes:
    content = {name: _as_json(one) for name, one in sorted(scopes.items())}
    return json.dumps(content, indent=1).encode()


def _decoded(content: bytes) -> dict[str, ScopeState]:
    try:
        found = mapping(parse_json(content))
    except ValueError:
        raise UnfitDocument("it is not JSON") from None
    return {name: _state(mapping(value)) for name, value in found.items()}


def succeeded(state: ScopeState, now: datetime) -> ScopeState:
    """After a run that came to its end."""
    return replace(state, last_run=now, failures=0, retry_at=None)


def settled(state: ScopeState, plan: Plan) -> tuple[frozenset[str], dict[str, int]]:
    """The entries that are done, and how often the others were skipped, after `plan`.

    An entry that was skipped twice is done.
    """
    skipped = {key: state.skipped.get(key, 0) + 1 for key in plan.skipped}
    given_up = {key for key, times in skipped.items() if times >= 2}
    done = state.done | plan.done | given_up
    counts = {**state.skipped, **skipped}
    return done, {key: times for key, times in counts.items() if key not in done}


def _as_json(state: ScopeState) -> dict[str, object]:
    return {
        "last_run": state.last_run.isoformat() if state.last_run else "",
        "note": state.note,
        "done": sorted(state.done),
        "skipped": dict(state.skipped),
        "failures": state.failures,
        "retry_at": state.retry_at.isoformat() if state.retry_at else "",
        "plan": _plan_as_json(state.plan) if state.plan else None,
    }


def _plan_as_json(plan: Plan) -> dict[str, object]:
    return {
        "writes": [
            {
                "path": write.path,
                "operations": [operation.as_json() for operation in write.operations],
                "retired": list(write.retired),
            }
            for write in plan.writes
        ],
        "holds": [
            {
                "path": hold.path,
                "operations": [operation.as_json() for operation in hold.operations],
                "origins": list(hold.origins),
            }
            for hold in plan.holds
        ],
        "done": sorted(plan.done),
        "skipped": sorted(plan.skipped),
        "entries": plan.entries,
        "since": plan.since.isoformat() if plan.since else "",
        "run": plan.run,
    }


def _state(fields: Mapping[str, object]) -> ScopeState:
    plan = fields.get("plan")
    skipped = {key: count(times) for key, times in mapping(fields.get("skipped")).items()}
    return ScopeState(
        last_run=_moment(fields.get("last_run")),
        note=string(fields.get("note")),
        done=frozenset(_texts(fields.get("done"))),
        skipped=skipped,
        failures=count(fields.get("failures")),
        retry_at=_moment(fields.get("retry_at")),
        plan=_plan(mapping(plan)) if plan else None,
    )


def _plan(fields: Mapping[str, object]) -> Plan:
    writes = [mapping(item) for item in items(fields.get("writes"))]
    holds = [mapping(item) for item in items(fields.get("holds"))]
    return Plan(
        tuple(
            Write(string(one.get("path")), _operations(one), _texts(one.get("retired")))
            for one in writes
        ),
        tuple(
            Hold(string(one.get("path")), _operations(one), _texts(one.get("origins")))
            for one in holds
        ),
        frozenset(_texts(fields.get("done"))),
        frozenset(_texts(fields.get("skipped"))),
        count(fields.get("entries")),
        _moment(fields.get("since")),
        string(fields.get("run")),
    )


def _operations(fields: Mapping[str, object]) -> tuple[Operation, ...]:
    found = map(Operation.from_json, items(fields.get("operations")))
    return tuple(operation for operation in found if operation is not None)


def _texts(value: object) -> tuple[str, ...]:
    return tuple(item for item in items(value) if isinstance(item, str))


def _moment(value: object) -> datetime | None:
    try:
        found = datetime.fromisoformat(string(value))
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


_SHOWN = 12
"""Lines of one kind in a message; the rest is counted."""


@dataclass(frozen=True, slots=True)
class DreamReport:
    """What one run of Dream did for one scope.

    `entries` is how many were read through. `learned`, `retired` and `held_back` are lines without
    bullets, `refused` lines that are over but may not go; `versions` the numbers of the versions
    that it made, oldest first, any of which stands for all. `problem` says why it ended early, in a
    sentence, empty where it did not; `is_outage` tells that the model could not be asked, so that
    other scopes fare no better.
    """

    scope: str
    entries: int = 0
    learned: tuple[str, ...] = ()
    retired: tuple[str, ...] = ()
    held_back: tuple[str, ...] = ()
    versions: tuple[int, ...] = ()
    problem: str = ""
    refused: tuple[str, ...] = ()
    is_outage: bool = False

    @property
    def is_news(self) -> bool:
        """Whether there is anything to tell a person who did not ask."""
        return bool(self.learned or self.retired or self.held_back or self.refused)

    @property
    def text(self) -> str:
        """For a person who asked for it."""
        parts = [
            self._learned(),
            self._retired(),
            self._held_back(),
            self._refused(),
            self._problem(),
        ]
        return "\n\n".join(part for part in parts if part) or self._nothing()

    @property
    def digest(self) -> str:
        """For a person who did not ask: the same, and how to undo it."""
        return "\n\n".join(part for part in (self.text, self._undo()) if part)

    @property
    def undoable(self) -> int:
        """The version that undoes the run, 0 where it made none."""
        return max(self.versions, default=0)

    def plus(self, later: DreamReport) -> DreamReport:
        """This and what came after it, as one."""
        return DreamReport(
            self.scope,
            self.entries + later.entries,
            (*self.learned, *later.learned),
            (*self.retired, *later.retired),
            (*self.held_back, *later.held_back),
            (*self.versions, *later.versions),
            later.problem or self.problem,
            (*self.refused, *later.refused),
            self.is_outage or later.is_outage,
        )

    def _learned(self) -> str:
        return _listed("While dreaming I learned:", self.learned)

    def _retired(self) -> str:
        return _listed("No longer true, so I put it aside (memory/retired.md):", self.retired)

    def _held_back(self) -> str:
        heading = "These wait for your word, since text from elsewhere was read (/memory pending):"
        return _listed(heading, self.held_back)

    def _refused(self) -> str:
        heading = "These seem to be over, but so much may not go at once, so they stay:"
        return _listed(heading, self.refused)

    def _problem(self) -> str:
        return f"I had to stop early: {self.problem}" if self.problem else ""

    def _nothing(self) -> str:
        if not self.entries:
            return "Nothing new to dream about."
        things = "one entry" if self.entries == 1 else f"{self.entries} entries"
        return f"Nothing new: I looked through {things} and already knew what matters."

    def _undo(self) -> str:
        if not self.undoable:
            return ""
        return f"Not right? Undo it with `/dream-restore --version {self.undoable}`."


def _listed(heading: str, lines: tuple[str, ...]) -> str:
    if not lines:
        return ""
    shown = [f"- {line}" for line in lines[:_SHOWN]]
    more = len(lines) - len(shown)
    return "\n".join([heading, *shown, *([f"- … and {more} more"] if more else [])])
