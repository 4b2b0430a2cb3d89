"""The values of the journal: messages, parts of replies, turns, and counts. See `sql_journal`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from nanobot.bus.events import InboundMessage, OutboundMessage, OutboundPart

KEEP_DAYS = 30
"""Days for which the journal remembers ended messages, to recognise duplicates."""

QUESTION = "ask-"
"""Prefix of the turn ids of questions to the owner. The code follows."""

NOTICE = "undelivered-"
"""Prefix of the turn ids of notices about undelivered parts. The turn id of the part follows."""

Redact = Callable[[str], str]
"""Returns a stored text (JSON, lines of JSON, or plain) in its redacted form."""

SUSPECT_AFTER = 2
"""Attempts after which a turn runs apart from other suspects, to identify it at the next crash."""
GIVE_UP_AFTER = 3
"""Attempts after which a message is not retried."""

MOST_DOUBTS = 2
"""Total number of times that a part is sent if it may have arrived."""


class Outgoing(Struct, frozen=True):
    """A message to send, already split into `parts` that fit. `call` distinguishes the messages of
    a turn, and `reply` is the final one."""

    call: str
    parts: tuple[OutboundMessage, ...]
    event_ids: tuple[str, ...] = ()


class MessageTurn(Struct, frozen=True):
    """The turn that a platform's message belongs to. `position` counts the turn's received messages
    from 0, and is -1 for a sent message."""

    turn_id: str
    session_key: str
    position: int = -1


class OutboxPart(Struct, frozen=True):
    """A stored part. `next_try_at` is in seconds since the epoch. `doubts` counts the attempts that
    may have arrived. `scope` is the part's lease in a team."""

    id: int
    part: OutboundPart
    attempts: int = 0
    next_try_at: float = 0.0
    doubts: int = 0
    scope: str = ""


class Step(Struct, frozen=True):
    """One step of a turn. `kind` is `message` or `start` (of a tool), `payload` is JSON text."""

    kind: str
    payload: str


class InboxEntry(Struct, frozen=True):
    """A stored message. All times are in seconds since the epoch.

    `attempts` counts unclean ends before its turn asked the model. `runs` counts earlier turns of
    the message. After a crash in the middle of its turn, it has a `turn_id`, the `steps` so far,
    and the messages that had `joined` the turn by steering. `recovered`: it was stored before this
    process started. `previous_turn` is the failed turn that a person wants to repeat. `outages` and
    `stalls` count how often in a row this process found no model for it, and how often the model's
    server was silent. `received_at` starts the wait for its model; 0 starts it at first need.
    `scope` is its lease in a team. `outcome`: another worker's result for it."""

    id: int
    message: InboundMessage
    attempts: int = 0
    runs: int = 0
    turn_id: str = ""
    not_before: float = 0.0
    reason: str = ""
    steps: tuple[Step, ...] = ()
    recovered: bool = False
    joined: tuple[InboxEntry, ...] = ()
    previous_turn: str = ""
    outages: int = 0
    stalls: int = 0
    received_at: float = 0.0
    scope: str = ""
    outcome: str = ""


class Completion(Struct, frozen=True):
    """The end of a turn or of a command, stored in one transaction.

    `lines` are the session file's new lines. `republish` are messages to handle again, after which
    the failed messages of `replaces_turn` need no decision. `report` is JSON text about the turn
    for `nanobot turn show`, empty for commands. `given_up`: the turn failed, but its messages need
    no decision and count as stopped."""

    turn_id: str
    session_key: str
    entry_ids: tuple[int, ...]
    state: Literal["done", "failed", "stopped"]
    lines: str = ""
    outgoing: tuple[Outgoing, ...] = ()
    republish: tuple[InboundMessage, ...] = ()
    replaces_turn: str = ""
    report: str = ""
    reason: str = ""
    given_up: bool = False


class Committed(Struct, frozen=True):
    """The work that a completion leaves: file `unfiled_id` (0: nothing), send, handle again."""

    unfiled_id: int
    parts: tuple[OutboxPart, ...]
    republished: tuple[InboxEntry, ...]


class Unfiled(Struct, frozen=True):
    """Lines that may not be in their session's file yet."""

    id: int
    session_key: str
    lines: str
    scope: str = ""


class Leftovers(Struct, frozen=True):
    """The open work of earlier processes, each kind in the order of arrival."""

    unfiled: tuple[Unfiled, ...]
    entries: tuple[InboxEntry, ...]
    parts: tuple[OutboxPart, ...]


class QueueCounts(Struct, frozen=True):
    """Number of rows in each open state. `put_off` counts the `received` rows that wait for the
    model or ask it again. `dead` counts parts of replies."""

    received: int = 0
    working: int = 0
    failed: int = 0
    outbox_pending: int = 0
    dead: int = 0
    put_off: int = 0


class TurnCounts(Struct, frozen=True):
    """Number of turns by outcome."""

    done: int = 0
    failed: int = 0
    stopped: int = 0


class QueueRow(Struct, frozen=True):
    """A row to show. `id` is `in-12` or `out-7`. `place` is the session, or the chat it goes to."""

    id: str
    place: str
    state: str
    attempts: int
    since: str
    reason: str
    text: str


class TurnRecord(Struct, frozen=True):
    """The stored record of a turn. `report` is the agent's report, decoded."""

    id: str
    session_key: str
    state: str
    started_at: str
    report: dict[str, object]
    system_prompt: str


class TurnRow(Struct, frozen=True):
    """A turn in a list. `milliseconds` and the tokens are 0 while it runs. Here and below, `cost`
    is in millionths of the owner's currency, or None if no price was known."""

    id: str
    session_key: str
    state: str
    started_at: str
    model: str = ""
    milliseconds: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cost: int | None = None


def in_currency(cost: int | None) -> float | None:
    """Convert a cost from millionths to units of the owner's currency."""
    return None if cost is None else cost / 1_000_000


class DayUsage(Struct, frozen=True):
    """Usage by the turns of one conversation on a day, in ISO format."""

    day: str
    session_key: str
    turns: int
    prompt: int
    cached: int
    completion: int
    cost: int | None = None


class DayTimes(Struct, frozen=True):
    """Durations of a day's answered turns in milliseconds: the median and the 95th percentile."""

    day: str
    turns: int
    p50: int
    p95: int


class UsageTotals(Struct, frozen=True):
    """Tokens of a number of turns, or of calls outside turns. `cached` is the part of `prompt` that
    the provider had cached."""

    turns: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cost: int | None = None


LEARNING = "memory"
"""The name for memory's own calls among conversations."""


def sum_usage(used: Iterable[DayUsage], session: str = "", since: str = "") -> UsageTotals:
    """Sum the usage of one conversation, or of all without memory's own calls, since a day."""
    total = UsageTotals()
    for one in used:
        is_wanted = one.session_key == session if session else one.session_key != LEARNING
        if is_wanted and one.day >= since:
            total = UsageTotals(
                total.turns + one.turns,
                total.prompt + one.prompt,
                total.cached + one.cached,
                total.completion + one.completion,
                total.cost if one.cost is None else (total.cost or 0) + one.cost,
            )
    return total


class Spent(Struct, frozen=True):
    """Tokens of one day, and whether the owner was warned on it."""

    tokens: int = 0
    warned: bool = False
