"""The values of the journal: messages, parts of replies, turns, and counts. See `sql_journal`."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

from msgspec import Struct

from nanobot.bus.events import InboundMessage, OutboundMessage, OutboundPart

KEEP_DAYS = 30
"""How long ended messages are known, so that duplicates are recognised."""

QUESTION = "ask-"
"""How the names of questions to the owner begin in the outbox; the code follows."""

NOTICE = "undelivered-"
"""How the names of notices that a part could not be delivered begin in the outbox; the name of what
said the part follows."""

Redact = Callable[[str], str]
"""Gives back a stored text (JSON, lines of JSON, or plain) as it may stay."""

SUSPECT_AFTER = 2
"""Attempts after which no other such turn begins beside a turn, so that the next crash tells which
of them it was."""
GIVE_UP_AFTER = 3
"""Attempts after which a message is not tried again."""

MOST_DOUBTS = 2
"""How often a part is sent that may have arrived: once, and once more."""


class Outgoing(Struct, frozen=True):
    """A message to send, already split into `parts` that fit; `call` tells a turn's messages apart
    (`reply` is the final one)."""

    call: str
    parts: tuple[OutboundMessage, ...]
    event_ids: tuple[str, ...] = ()


class MessageTurn(Struct, frozen=True):
    """The turn that a message of a platform belongs to: it was the one at `position` of those that
    were received in it, from 0, or, with -1, it was sent."""

    turn_id: str
    session_key: str
    position: int = -1


class OutboxPart(Struct, frozen=True):
    """A stored part. `next_try_at` is in seconds since the epoch; `doubts` counts the attempts that
    may have arrived. `scope`: whose lease it belongs to, in a team."""

    id: int
    part: OutboundPart
    attempts: int = 0
    next_try_at: float = 0.0
    doubts: int = 0
    scope: str = ""


class Step(Struct, frozen=True):
    """One thing a turn did: `kind` is `message` or `start` (of a tool), `payload` JSON text."""

    kind: str
    payload: str


class InboxEntry(Struct, frozen=True):
    """A stored message.

    `attempts` counts unclean ends before its turn came as far as asking the model, `runs` the turns
    made of it before this one. `turn_id` and `steps` are set when it comes back from a crash in the
    middle of its turn; `joined` are the messages that had been steered into that turn. `recovered`:
    it was there when this process started. `not_before` is in seconds since the epoch.
    `previous_turn` is the failed turn that was made of it before, when a person wants it run again;
    `outages` counts how often in a row this process found no model for it, `stalls` how often in a
    row the model's server was silent. `received_at` is since
    when the wait for its model counts, in seconds since the epoch; 0: from when it is first needed.
    `scope`: whose lease it belongs to, in a team; `outcome`: what another worker did of it already.
    """

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
    """All that ends a turn, or a command, in one transaction.

    `lines` are the session file's new lines; `republish` are messages to be handled again, after
    which the failed ones of `replaces_turn` need no decision any more; `report` is JSON text about
    the turn for `nanobot turn show`, empty for commands. `given_up`: the turn failed, but no person
    has to decide about its messages, which count as stopped.
    """

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
    """What a completion left to do: file `unfiled_id` (0: nothing), send, handle again."""

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
    """What an earlier process left behind, each in the order it came."""

    unfiled: tuple[Unfiled, ...]
    entries: tuple[InboxEntry, ...]
    parts: tuple[OutboxPart, ...]


class QueueCounts(Struct, frozen=True):
    """How many rows are in each state that is not an end. `put_off` are those of `received` that
    wait for the model, or ask it once more; `dead` are parts of replies."""

    received: int = 0
    working: int = 0
    failed: int = 0
    outbox_pending: int = 0
    dead: int = 0
    put_off: int = 0


class TurnCounts(Struct, frozen=True):
    """How many turns ended in which way."""

    done: int = 0
    failed: int = 0
    stopped: int = 0


class QueueRow(Struct, frozen=True):
    """A row for people. `id` is `in-12` or `out-7`; `place` the session, or the chat it goes to."""

    id: str
    place: str
    state: str
    attempts: int
    since: str
    reason: str
    text: str


class TurnRecord(Struct, frozen=True):
    """What is kept of a turn. `report` is what the agent wrote about it, decoded."""

    id: str
    session_key: str
    state: str
    started_at: str
    report: dict[str, object]
    system_prompt: str


class TurnRow(Struct, frozen=True):
    """A turn in a list. `milliseconds` and the tokens are 0 while it runs. `cost` here and below is
    in millionths of the owner's currency, None if no price was known."""

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
    """A cost that is kept in millionths of the owner's currency, in that currency."""
    return None if cost is None else cost / 1_000_000


class DayUsage(Struct, frozen=True):
    """What the turns of one conversation used on a day, in ISO format."""

    day: str
    session_key: str
    turns: int
    prompt: int
    cached: int
    completion: int
    cost: int | None = None


class DayTimes(Struct, frozen=True):
    """How long the answered turns of a day took, in milliseconds: half of them, and 95 of 100, took
    no longer than that."""

    day: str
    turns: int
    p50: int
    p95: int


class UsageTotals(Struct, frozen=True):
    """Tokens of a number of turns, or of calls that belong to none. `cached` are those of `prompt`
    that the provider had cached."""

    turns: int = 0
    prompt: int = 0
    cached: int = 0
    completion: int = 0
    cost: int | None = None


LEARNING = "memory"
"""The name for memory's own calls among conversations."""


def sum_usage(used: Iterable[DayUsage], session: str = "", since: str = "") -> UsageTotals:
    """Sum the usage of one conversation, or of all without memory's own calls, from the day `since`
    on."""
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
