"""The journal: what must survive a crash, as a port (`Journal`) and its values.

The contract of every implementation:

- Writes apply in call order, whether they are awaited or posted; a posted write is not waited for.
- A method that is awaited returns once its change is durable.
- Every write is safe to repeat after an unknown outcome of a commit.
- `complete` is one transaction: the session lines, the closed inbox entries and the replies become
  durable together or not at all.
- `StorageError` means that nothing of the call was stored, unless the method says otherwise.

Nothing here names a file, a thread or a database, so that another store needs no change elsewhere.
"""

from __future__ import annotations

import re
from asyncio import Future
from collections.abc import Callable, Collection, Iterable, Sequence
from datetime import date, datetime
from typing import Literal, Protocol

from msgspec import Struct

from nanobot.bus.events import InboundMessage, OutboundMessage, OutboundPart
from nanobot.errors import StorageError

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

    def is_wanted(key: str) -> bool:
        return key == session if session else key != LEARNING

    wanted = [one for one in used if one.day >= since and is_wanted(one.session_key)]
    costs = [one.cost for one in wanted if one.cost is not None]
    return UsageTotals(
        sum(one.turns for one in wanted),
        sum(one.prompt for one in wanted),
        sum(one.cached for one in wanted),
        sum(one.completion for one in wanted),
        sum(costs) if costs else None,
    )


class Spent(Struct, frozen=True):
    """Tokens of one day, and whether the owner was warned on it."""

    tokens: int = 0
    warned: bool = False


class Journal(Protocol):
    """Messages on their way in, turns under way, replies on their way out; at the end what people
    ask of it, and what is counted beside turns.

    `scopes`: where several processes share the store, what concerns these scopes of memory; None is
    all of them. A store of one process has no scopes in its rows and may take it for None.
    """

    @property
    def has_died(self) -> bool:
        """Whether it can store nothing any more until the process is started again."""

    @property
    def refusal(self) -> StorageError | None:
        """Why the last write was refused, if it was."""

    async def open(self) -> None:
        """Open it and forget what is older than `KEEP_DAYS`. Raises `StorageError`."""

    async def close(self) -> None:
        """Store what is queued, then close."""

    def receive(
        self, channel: str, messages: Sequence[InboundMessage], cursor: str | None = None
    ) -> Future[tuple[InboxEntry, ...]]:
        """Store messages and the platform cursor that covers them; the entries that were new. It
        happens whether or not the future is awaited."""

    async def cursor(self, channel: str) -> str | None:
        """The cursor that was stored last for a channel."""

    async def has_received(
        self, channel: str, chat_id: str, event_id: str, *, unanswered: bool = False
    ) -> bool:
        """Whether an event was received here, answered or not, in the last `KEEP_DAYS`."""

    async def find_turn(self, channel: str, chat_id: str, platform_id: str) -> MessageTurn | None:
        """Where a message that was received as the event `platform_id`, or sent under this id,
        belongs; None for one of no turn, or from before the last `KEEP_DAYS`."""

    async def is_busy(self, session_key: str) -> bool:
        """Whether a message of this conversation waits or is being answered."""

    def claim(
        self, turn_id: str, session_key: str, entry_ids: Sequence[int], *, at_once: bool
    ) -> None:
        """A turn begins, or is resumed, for these messages. Posted: a crash before it is durable
        only means that the turn never began. `at_once` is for what may have killed a process
        before, so that its attempts are counted however quickly it does so again."""

    async def mark_model_asked(self, turn_id: str) -> None:
        """A turn that was taken up after a crash has come as far as asking the model: if the
        process dies now, the turn is no suspect, unless that happens too often in a row."""

    async def mark_owner_asked(self, turn_id: str) -> None:
        """A turn is about to wait for the owner's answer: if the process dies now, the turn is no
        suspect, however often."""

    async def begin_command(self, entry_id: int) -> None:
        """A command is about to have an effect that must not happen twice: its entry counts a run
        more."""

    def add_steps(
        self, turn_id: str, first: int, steps: Sequence[Step], joined: Sequence[int] = ()
    ) -> Future[None]:
        """Append steps numbered from `first`; `joined` inbox entries become part of the turn. Where
        the future holds a `StorageError`, steps without those are stored later, but before the
        turn's next step. It need not be awaited for steps whose repetition does no harm."""

    def remember_prompt(self, prompt_id: str, text: str) -> None:
        """Keep a system prompt, once, for `nanobot turn show`. Posted."""

    async def complete(self, completion: Completion) -> Committed:
        """The commit point of a turn or a command."""

    def mark_filed(self, unfiled_ids: Sequence[int]) -> None:
        """The session file holds these lines durably: the copy may go. Posted."""

    async def postpone(self, entry_ids: Sequence[int], not_before: float, reason: str) -> None:
        """The model is out: these wait until `not_before` (seconds since the epoch)."""

    async def may_act(self) -> None:
        """Return when this process may do what cannot be undone, such as an effect of a tool or a
        request to a platform: at once where it has the home to itself. A worker of a team that lost
        touch waits here until it is sure that no other has taken over."""

    async def release(self, scopes: Collection[str] | None = None) -> None:
        """A clean end: turns under way resume at the next start and no attempt is counted."""

    async def leftovers(self, scopes: Collection[str] | None = None) -> Leftovers:
        """What there is to do after a start; counts attempts, so call it once."""

    async def resolve_button(
        self, button_id: str, channel: str, chat_id: str, sender_ids: Collection[str]
    ) -> str | None:
        """The value of a button of this chat that a person with these ids may press."""

    def add_outgoing(self, turn_id: str, outgoing: Outgoing) -> Future[tuple[OutboxPart, ...]]:
        """Put a message in the outbox outside a completion, whether or not the future is awaited.
        The same `call` of a turn is stored once."""

    def mark_sending(self, item: OutboxPart) -> None:
        """An attempt to send a part begins. Posted. If no outcome follows, it counts as one that
        may have arrived."""

    async def mark_sent(
        self, item: OutboxPart, platform_id: str, *, keep: bool = False
    ) -> tuple[OutboxPart, ...]:
        """The platform accepted it; its text is kept for a day if it may still fail (`keep`).
        Returns when that is durable, however long the disk refuses:
        until then nothing more goes to the chat, so that a crash leaves one part in doubt. It
        returns notices of this chat that were refused before and did not arrive, to be sent now."""

    async def mark_undelivered(self, channel: str, platform_id: str, reason: str) -> str:
        """The platform reports that a part which it had accepted did not arrive: it is dead, and
        `nanobot queue` has it. Its row (`out-7`), or "" if the part is unknown or not kept."""

    async def open_questions(self) -> Sequence[tuple[OutboxPart, str]]:
        """Return the questions that were sent with `keep`, are not closed, and that no process
        waits for, with their platform's ids. In one home all are those of earlier processes."""

    def close_question(self, code: str) -> None:
        """Note that the buttons of a question are gone. Posted."""

    def retry_later(self, item: OutboxPart, reason: str) -> None:
        """It did not go out; try again at `item.next_try_at`. Posted."""

    async def give_up(self, item: OutboxPart, reason: str) -> tuple[OutboxPart, ...]:
        """It will never go out by itself. It is kept for `nanobot queue`, and a notice to people is
        stored with it, once for each message: that is returned, to be sent. A notice itself waits
        until something else reaches its chat, and is sent twice at most."""

    async def add_helper(self, helper_id: str, if_lost: InboundMessage) -> None:
        """A helper is about to begin; `if_lost` reports its loss after a crash."""

    async def remove_helper(self, helper_id: str) -> None:
        """Its report is stored, or not wanted."""

    async def lost_helpers(
        self, scopes: Collection[str] | None = None
    ) -> list[tuple[str, InboundMessage]]:
        """The helpers of an earlier process, each with the message that reports its loss."""

    async def counts(self) -> QueueCounts:
        """How much is under way or failed."""

    async def queue_rows(self) -> tuple[list[QueueRow], list[QueueRow]]:
        """Messages that are not answered, and parts that are not delivered; oldest first."""

    async def retry_row(self, row: str) -> InboxEntry | OutboxPart:
        """Make a failed message or a dead part ready to be tried again, and return it. Raises
        `NanobotError` when the row does not exist, has not failed or cannot be read."""

    async def resend(self, row: str, chat: tuple[str, str] | None) -> tuple[OutboxPart, ...]:
        """Make the dead parts of the message ready that the part `row` is one of; those parts, in
        order, none if none is dead any more. Another failure is told again. `chat`: only if it is
        for this chat (channel and id) or was asked for there, else it raises `NanobotError`."""

    async def drop_row(self, row: str) -> None:
        """Give up a failed message or a dead part for good. Raises `NanobotError` like `retry`."""

    async def turn_record(self, turn_id: str) -> TurnRecord:
        """What is kept of a turn. Raises `NanobotError` for an id that is not known (any more)."""

    async def turns(
        self, *, session: str = "", state: str = "", before: str = "", limit: int = 50
    ) -> list[TurnRow]:
        """The newest `limit` turns, the newest first: those of a conversation, those that ended in
        a way, those that began before the turn with the id `before`, where these are given."""

    async def used_by_day(self, since: date) -> list[DayUsage]:
        """What ended turns used by day and conversation, and memory's own calls as `LEARNING`, from
        the day `since` on; the earliest first. It is known for longer than the turns."""

    async def times_by_day(self, since: date) -> list[DayTimes]:
        """How long the answered turns took that are still kept, by day; the earliest first."""

    async def find_mentions(self, name: re.Pattern[str]) -> frozenset[str]:
        """What matches `name` in messages that are not answered, in steps of turns that run, and in
        replies that are not sent."""

    async def turn_counts(self, since: datetime) -> TurnCounts:
        """The turns that began at `since` (aware) or later and have ended."""

    def add_learning_usage(self, day: date, used: UsageTotals) -> None:
        """Count calls of memory's own on a day. Posted."""

    async def day_tokens(self, day: date, use: str = "") -> Spent:
        """What the model calls of a day have used, those for one `use` or all. Raises
        `StorageError`."""

    def add_day_tokens(
        self, day: date, tokens: int, use: str = "", *, warned: bool = False
    ) -> None:
        """Count a call's tokens on a day, for one `use` or among all, and remember a warning.
        Posted."""

    async def erase(self, redact: Redact) -> int:
        """Pass every stored text through `redact` so that no byte of the old ones stays; how many
        changed. Raises `StorageError`; doing it again finishes what was left."""
