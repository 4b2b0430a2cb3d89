"""Messages and events between the channels and the agent: plain values that know no platform."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

TERMINAL = "cli"
"""The terminal's channel. It always exists, its user is the owner, and its chats have names."""

OWNER_ACCOUNT = "owner"
"""The owner as a sender in the terminal, on the page, and at the API."""

API = "api"
"""The channel for programs. A request gets its answer, and nothing can be sent later."""

PAGE = "web"
"""The channel of the page, where people switch between their conversations."""


def program_origin(key: str) -> str:
    """Return the origin of messages that are sent with an API key (see `Message`)."""
    return f"{API}:{key}"


PULLED = (TERMINAL, PAGE)
"""The channels that cannot notify a person, who has to open them."""

_THREAD = re.compile(r"(?P<chat>.+):(?P<thread>[0-9]+)", re.DOTALL)


class Address(Struct, frozen=True):
    """A chat, and its thread if the chat has threads (topics in Telegram)."""

    channel: str
    chat_id: str
    thread_id: str = ""

    @property
    def key(self) -> str:
        """The key of its conversation: `channel:chat_id[:thread_id]`."""
        thread = f":{self.thread_id}" if self.thread_id else ""
        return f"{self.channel}:{self.chat_id}{thread}"

    @classmethod
    def of(cls, key: str) -> Address:
        """Return the address for a conversation's key. A thread is a number. The terminal has no
        threads: `cli:taxes:2026` is a chat's name."""
        channel, _, chat = key.partition(":")
        found = _THREAD.fullmatch(chat) if channel != TERMINAL else None
        return cls(channel, found["chat"], found["thread"]) if found else cls(channel, chat)


NANOBOT = "nanobot"
"""The sender and the origin of messages by nanobot itself."""

MediaKind = Literal["image", "audio", "voice", "video", "document"]
"""`voice` is speech recorded for the chat, `audio` any other sound."""

Initiator = Literal["person", "job", "heartbeat", "helper", "report"]
"""Who began a turn. Only a `person` can be asked: for all others, calls that need approval are
denied, and no background work starts. A subagent's `report` begins a turn in the conversation that
started it. `helper` marks the calls of a subagent, never a message."""


_LARGEST = 2**63

_TO_SPEAK = "speech:"
"""Prefix of the reference of a voice message that has not been recorded yet."""


def _expect_texts(value: object, *names: str) -> None:
    """Raise `TypeError` if one of these fields is not text. Each message is checked when it is
    built, so a malformed field rejects one message and not its whole batch."""
    for name in names:
        if not isinstance(getattr(value, name), str):
            raise TypeError(f"{type(value).__name__}.{name} is not text")


class Media(Struct, frozen=True, array_like=True):
    """A file of a message. `size` is in bytes, 0 if unknown. Raises `TypeError`, `ValueError`."""

    ref: str
    """Inbound: the reference for the channel's `fetch`. Outbound: a path in the home, or text
    `to_speak`, which the core records before the channel gets the part."""
    kind: MediaKind = "document"
    mime: str = ""
    name: str = ""
    size: int = 0

    def __post_init__(self) -> None:
        _expect_texts(self, "ref", "kind", "mime", "name")
        if not isinstance(self.size, int):
            raise TypeError("Media.size is not a number")
        if not 0 <= self.size < _LARGEST:
            raise ValueError("Media.size is not a valid size")

    @classmethod
    def to_speak(cls, words: str) -> Media:
        """Return a voice message that is recorded from these words when it is sent."""
        return cls(f"{_TO_SPEAK}{words}", "voice", "audio/ogg")


class Quote(Struct, frozen=True, array_like=True):
    """The message that another one replies to. Raises `TypeError`."""

    message_id: str
    sender: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        _expect_texts(self, "message_id", "sender", "text")


class Said(Struct, frozen=True, array_like=True):
    """An earlier message of a conversation that nanobot did not store itself. `origin` is that of
    the stored message (see `Message`), `name` the program that sent it as nanobot's text."""

    role: Literal["user", "assistant"]
    text: str
    origin: str = ""
    name: str = ""


class Delivery(Struct, frozen=True, omit_defaults=True):
    """The relation of a message to others in its chat. Raises `TypeError`."""

    group_id: str = ""
    """The album of this item."""
    edits: str = ""
    """The event whose text this message replaces. An edit of an answered event is only noted."""
    deletes: str = ""
    """The event that the sender deleted. A waiting message is dropped, and a turn that answers
    only that event is stopped."""
    answers: str = ""
    """The event that the reply answers, if it is not this one (a message that is run again)."""
    unanswered: bool = False
    """Store the message in the conversation without beginning a turn."""
    replaces: tuple[str, ...] = ()
    """The turns in whose place this message runs again (see `Message`)."""

    def __post_init__(self) -> None:
        _expect_texts(self, "group_id", "edits", "deletes", "answers")


class Origin(Struct, frozen=True, omit_defaults=True, rename={"initiator": "begun_by"}):
    """Who began a message that no person typed, and the terms of its answer. Raises `TypeError`.
    Messages of a job or the heartbeat have a separate conversation, which is empty each time. The
    answer goes to `chat_id` and is noted in the conversation there. `job` is a name."""

    initiator: Initiator = "person"
    scope: str = ""
    """The scope whose memory the answer uses. Only nanobot sets it."""
    job: str = ""
    model: str = ""
    mark: str = ""
    """The origin of the stored message (see `Message`), like `about`."""
    about: str = ""
    by_program: bool = False
    """A program sent it for the person and waits for this answer only. It is never a command, and
    it does not join or interrupt a running turn."""
    context: tuple[Said, ...] = ()
    """Earlier messages, for a conversation that has none yet."""
    instructions: Said | None = None
    """Of the program, added once to the conversation as untrusted content."""
    schema: str = ""
    """The JSON Schema for the answer, as text."""
    off_record: bool = False
    """The conversation holds only `context`. It is never stored and never enters memory. Unless it
    is a program's, the chat is temporary: not even the journal gets its text."""

    def __post_init__(self) -> None:
        _expect_texts(self, "scope", "job", "model", "mark", "about", "schema")
        if self.initiator not in get_args(Initiator):
            raise TypeError("no turn can begin this way")


_ALONE, _TYPED = Delivery(), Origin()


class InboundMessage(Struct, frozen=True):
    """A message from a channel. Raises `TypeError` if a field has the wrong type."""

    channel: str
    chat_id: str
    sender_id: str
    content: str
    event_id: str
    """Identifies the event permanently within its channel and chat (message ID plus edit stamp,
    `callback:<id>`, `cron:<job>:<due>`, `cli:<uuid>`). A duplicate is dropped."""
    timestamp: datetime  # aware
    message_id: str = ""
    media: tuple[Media, ...] = ()
    notes: tuple[str, ...] = ()
    """Content that is neither text nor a file, such as a contact, a place, or a poll
    (`location: 52.52, 13.4`), one line each, without brackets. It is never a command."""
    thread_id: str = ""
    reply_to: Quote | None = None
    forwarded_from: str = ""
    sender_name: str = ""
    is_group: bool = False  # other people read this chat, so it has a separate memory
    session_override: str = ""
    """Replaces the default session key, for scheduled jobs and for chats that people choose."""
    delivery: Delivery = _ALONE
    origin: Origin = _TYPED

    def __post_init__(self) -> None:
        _expect_texts(self, *_TEXTS)
        whole = all(isinstance(note, str) for note in self.notes)
        whole = whole and all(isinstance(file, Media) for file in self.media)
        if not whole or not isinstance(self.reply_to, Quote | None):
            raise TypeError("a message's notes, files, or quote have the wrong type")
        if not isinstance(self.timestamp, datetime) or self.timestamp.tzinfo is None:
            raise TypeError("a message's time is invalid or has no time zone")

    @property
    def is_temporary(self) -> bool:
        """True if it is in a temporary chat."""
        return self.origin.off_record and not self.origin.by_program

    @property
    def is_background(self) -> bool:
        """True if the answer is in a separate conversation that no one watches."""
        return self.origin.initiator in {"job", "heartbeat"}

    @property
    def expects_answer(self) -> bool:
        """True if a person sent it and waits for an answer."""
        return self.sender_id != NANOBOT

    @property
    def address(self) -> Address:
        """The chat that gets the answer."""
        return Address(self.channel, self.chat_id, self.thread_id)

    @property
    def chat_key(self) -> str:
        """The key of that chat's conversation."""
        return self.address.key

    @property
    def answered_event(self) -> str:
        """The event that a reply to this message answers."""
        return self.delivery.answers or self.event_id

    @property
    def session_key(self) -> str:
        """The key of its conversation, which is the chat's unless overridden."""
        return self.session_override or self.chat_key


_TEXTS = tuple(name for name, type in InboundMessage.__annotations__.items() if type == "str")


class Button(Struct, frozen=True, array_like=True):
    """A choice below a message. Pressing it sends `value` as if it was typed. `only` names the only
    sender who may press it. Empty: everyone who may write in the chat."""

    label: str
    value: str
    only: str = ""
    id: str = ""  # by the journal; the platform gets only this (`ChannelHost.resolve_button`)


BUTTON_ID = re.compile("[0-9a-f]{24}")
"""Pattern of the ids of nanobot's buttons."""

EXPIRED_BUTTON = "/expired-button"
"""The text for a press of an expired button. Some platforms send the label instead, which would be
taken for a message."""


class OutboundMessage(Struct, frozen=True):
    """A message to send to a chat. The core splits it, and the channel converts the Markdown. Only
    the member `only` of a group sees it, if the platform supports that."""

    channel: str
    chat_id: str
    content: str
    media: tuple[Media, ...] = ()
    reply_to: str = ""
    thread_id: str = ""
    buttons: tuple[Button, ...] = ()
    only: str = ""
    late: bool = False  # it answers a message that had to wait for the model
    is_temporary: bool = False  # neither the journal nor the channel stores its text


class OutboundPart(Struct, frozen=True):
    """A part of a message that fits the channel's limits and is sent at once."""

    key: str  # the same in each attempt, so that it can be the platform's idempotency key
    channel: str
    chat_id: str
    content: str
    media: tuple[Media, ...] = ()
    reply_to: str = ""
    thread_id: str = ""
    buttons: tuple[Button, ...] = ()
    event_ids: tuple[str, ...] = ()
    """The inbound events that it answers: several if messages joined a running turn."""
    last: bool = True
    only: str = ""
    late: bool = False
    is_temporary: bool = False

    @classmethod
    def of(
        cls, key: str, message: OutboundMessage, event_ids: tuple[str, ...], last: bool
    ) -> OutboundPart:
        """Return a part with a whole message."""
        said = {name: getattr(message, name) for name in message.__struct_fields__}
        return cls(key, event_ids=event_ids, last=last, **said)

    @property
    def words(self) -> str:
        """The text to record as a voice message before sending, or an empty text."""
        refs = (file.ref for file in self.media if file.ref.startswith(_TO_SPEAK))
        return next(refs, "").removeprefix(_TO_SPEAK)


class Receipt(Struct, frozen=True):
    """The platform's confirmation that it accepted a part, with its id of the message if any."""

    platform_id: str = ""
    is_final: bool = True
    """The platform can't report a failure later (`ChannelHost.report_undelivered`)."""


class _InThread(Struct, frozen=True, kw_only=True):
    thread_id: str = ""


class _OfTurn(_InThread, frozen=True):
    """An event of a turn, and the chat that shows it."""

    channel: str
    chat_id: str
    turn_id: str

    @property
    def address(self) -> Address:
        return Address(self.channel, self.chat_id, self.thread_id)


class TurnStarted(_OfTurn, frozen=True):
    """The agent began to work on these events."""

    event_ids: tuple[str, ...] = ()


class TurnJoined(_OfTurn, frozen=True):
    """Messages that arrived during the turn are part of it now. `event_ids` are all its events."""

    event_ids: tuple[str, ...] = ()


class Waiting(_OfTurn, frozen=True):
    """The turn waits for the model. `str` is the line to show until the next event, if any."""


class PromptReading(Waiting, frozen=True):
    """A slow model server has read `read` of a prompt's `total` tokens."""

    read: int
    total: int

    def __str__(self) -> str:
        return "" if self.read >= self.total else f"reading {self.read:,} of {self.total:,} tokens"


class Thinking(Waiting, frozen=True):
    """The model has been thinking for `seconds`."""

    seconds: int

    def __str__(self) -> str:
        return f"thinking {self.seconds:,} s"


class ModelUnreachable(Waiting, frozen=True):
    """The model failed `tries` times, and is asked again in `seconds` (0: now), or later at a time
    `at`. Only the owner gets a `reason`."""

    reason: str
    seconds: int
    tries: int
    at: str = ""

    def __str__(self) -> str:
        why = self.reason and f": {self.reason}"
        soon = f" in {self.seconds:,} s" if self.seconds else ""
        when = f" at {self.at}" if self.at else soon
        return f"model unreachable{why}, trying again{when} ({self.tries})"


class TextDelta(_OfTurn, frozen=True):
    """More text of the reply. `restart` discards the text before it."""

    text: str
    restart: bool = False


class ToolStarted(_OfTurn, frozen=True):
    """A tool runs. `hint` is a short line for people, such as `read_file notes.txt`."""

    hint: str


class ToolOutput(_OfTurn, frozen=True):
    """More output of a running tool, with secrets redacted. It may end within a line."""

    text: str


class ToolFinished(_OfTurn, frozen=True):
    """A tool has finished. A call that does not run has neither event. `size` is in bytes."""

    hint: str
    seconds: float
    size: int
    failed: bool = False


class TurnEnded(_OfTurn, frozen=True):
    """The turn is over, and its reply, if any, is in the outbox. Channels get this event only for
    conversations with a person. `event_ids` are all events that it answered, `tools` the names of
    the called tools in order, `origin` that of the answer to a program or in a temporary chat.
    `waiting`: for the model, which a message reports. `held`: by the disk. `error` is the class of
    an error. The chat's address does not show the conversation if it was chosen."""

    event_ids: tuple[str, ...]
    outcome: Literal["done", "failed", "stopped", "waiting", "held"]
    tools: tuple[str, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0
    initiator: Initiator = "person"
    error: str = ""
    origin: str = ""
    session_key: str = ""


class Notice(Struct, frozen=True):
    """A short-lived notice for a person, such as a full disk. It is not stored."""

    channel: str
    chat_id: str
    text: str
    thread_id: str = ""


ApprovalAnswer = Literal["once", "chat_today", "always", "no", "unseen"]
"""The answers to an approval question. A program that no one watches answers `unseen`: the call
does not run, but the owner did not deny it."""


class ApprovalAsked(_OfTurn, frozen=True):
    """The owner is asked in a chat about a call, which waits. The texts are as the chat shows them:
    the action, everything that determines its effect, and the reason for the question. `asked_at`
    is aware. The question expires after `seconds`."""

    code: str
    what: str
    details: str
    because: str
    answers: tuple[ApprovalAnswer, ...]
    asked_at: datetime
    seconds: float


class ApprovalClosed(_OfTurn, frozen=True):
    """The question is closed. `by` is the account that answered, or empty."""

    code: str
    outcome: ApprovalAnswer | Literal["expired", "withdrawn"]
    by: str = ""

    def __str__(self) -> str:
        by = f", by {self.by}" if self.by else ""
        return f"{_OUTCOMES[self.outcome]}{by}."


_OUTCOMES = {
    "once": "Approved", "chat_today": "Approved for this chat today",
    "always": "Approved permanently", "no": "Denied",
    "unseen": "Not approved because no one was there to answer",
    "expired": "Not answered in time", "withdrawn": "No longer needed",
}  # fmt: skip


Progress = (
    TurnStarted | TurnJoined | Waiting | TextDelta
    | ToolStarted | ToolOutput | ToolFinished | TurnEnded | Notice
)  # fmt: skip
"""Events that a channel may show while a turn runs. Best effort: never stored or retried."""
