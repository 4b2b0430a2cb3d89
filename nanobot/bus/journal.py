"""The journal's values: messages, turns and replies as they are stored and taken up again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from nanobot.bus.events import InboundMessage, OutboundMessage, OutboundPart

SUSPECT_AFTER = 2
"""Attempts after which no other such turn begins beside a turn, so that the next crash tells which
of them it was."""
GIVE_UP_AFTER = 3
"""Attempts after which a message is not tried again."""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A message to send, already split into `parts` that fit; `call` tells a turn's messages apart
    (`reply` is the final one)."""

    call: str
    parts: tuple[OutboundMessage, ...]
    event_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OutboxPart:
    """A stored part. `next_try_at` is in seconds since the epoch; `in_doubt`: an earlier attempt
    may have arrived."""

    id: int
    part: OutboundPart
    attempts: int = 0
    next_try_at: float = 0.0
    in_doubt: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One thing a turn did: `kind` is `message` or `start` (of a tool), `payload` JSON text."""

    kind: str
    payload: str


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """A stored message.

    `attempts` counts unclean ends before its turn came as far as asking the model, `runs` the
    turns made of it before this one. `turn_id` and `steps` are set when it comes back from a crash
    in the middle of its turn; `joined` are the messages that had been steered into that
    turn. `recovered`: it was there when this process started. `not_before` is in seconds since the
    epoch. `previous_turn` is the failed turn that was made of it before, when a person wants it run
    again; `outages` counts how often in a row this process found no model for it. `received_at` is
    since when its patience counts, in seconds since the epoch; 0: from when it is first needed.
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
    received_at: float = 0.0


@dataclass(frozen=True, slots=True)
class Completion:
    """All that ends a turn, or a command, in one transaction.

    `lines` are the session file's new lines; `republish` are messages to be handled again, after
    which the failed ones of `replaces_turn` need no decision any more; `report` is JSON text about
    the turn for `nanobot turn show`, empty for commands.
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


@dataclass(frozen=True, slots=True)
class Committed:
    """What a completion left to do: file `unfiled_id` (0: nothing), send, handle again."""

    unfiled_id: int
    parts: tuple[OutboxPart, ...]
    republished: tuple[InboxEntry, ...]


@dataclass(frozen=True, slots=True)
class Unfiled:
    """Lines that may not be in their session's file yet."""

    id: int
    session_key: str
    lines: str


@dataclass(frozen=True, slots=True)
class Leftovers:
    """What an earlier process left behind, each in the order it came."""

    unfiled: tuple[Unfiled, ...]
    entries: tuple[InboxEntry, ...]
    parts: tuple[OutboxPart, ...]
