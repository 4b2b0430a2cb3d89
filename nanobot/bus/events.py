"""Messages and events between the channels and the agent: plain values that know no platform."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Literal, get_args

from msgspec import Struct

TERMINAL = "cli"
"""The channel that is always there. Whoever uses it is the owner, and names their chats."""

OWNER_ACCOUNT = "owner"
"""The owner, as a sender in a terminal, on the page and to the API."""

API = "api"
"""The channel of programs: each request gets its answer, and nobody there can be told more."""

PAGE = "web"
"""The channel of the page, where people choose among their conversations."""

_BORROWING = (PAGE, API)


def program_origin(key: str) -> str:
    """Return the origin of what the program with this API key sends (see `Message`)."""
    return f"{API}:{key}"


PULLED = (TERMINAL, PAGE)
"""The channels on which nobody can be spoken to: a person has to look."""

_THREAD = re.compile(r"(?P<chat>.+):(?P<thread>[0-9]+)", re.DOTALL)


def account_of(channel: str, sender_id: str) -> tuple[str, str]:
    """The account (channel, id) that a sender stands for, by which it is decided who they are.

    The page and the API know nobody by themselves: their senders are called by the account that
    they have elsewhere (`telegram:12345`), or `owner`.
    """
    if channel not in _BORROWING:
        return channel, sender_id
    there, _, account = sender_id.partition(":")
    if account and there not in (TERMINAL, *_BORROWING):
        return there, account
    return (TERMINAL, sender_id) if sender_id == OWNER_ACCOUNT else (channel, sender_id)


class Address(Struct, frozen=True):
    """A chat, and the thread in it where it has some (Telegram's topics)."""

    channel: str
    chat_id: str
    thread_id: str = ""

    @property
    def key(self) -> str:
        """The conversation there: `channel:chat_id[:thread_id]`."""
        thread = f":{self.thread_id}" if self.thread_id else ""
        return f"{self.channel}:{self.chat_id}{thread}"

    @classmethod
    def of(cls, key: str) -> Address:
        """The chat behind a conversation's key. A thread is a number, and a terminal has none:
        `cli:taxes:2026` is a name that somebody gave."""
        channel, _, chat = key.partition(":")
        found = _THREAD.fullmatch(chat) if channel != TERMINAL else None
        return cls(channel, found["chat"], found["thread"]) if found else cls(channel, chat)


NANOBOT = "nanobot"
"""The sender, and the origin, of what nanobot itself puts into a conversation."""

MediaKind = Literal["image", "audio", "voice", "video", "document"]
"""`voice` is speech recorded for the chat, `audio` any other sound."""


Initiator = Literal["person", "job", "heartbeat", "helper", "report"]
"""Who began a turn. For all but a person nobody is there to be asked: what needs an approval is
refused, and none of them begins anything that goes on by itself. A `report` of a helper begins a
turn in the conversation that asked for it. `helper` is never said of a message, only of the calls
of a helper agent."""


_LARGEST = 2**63

_TO_SPEAK = "speech:"
"""Begins the reference of a voice message that is yet to be made."""


def _expect_texts(value: object, *names: str) -> None:
    """Raise `TypeError` unless these fields are texts. What platforms send is checked where it
    becomes a value, so that one odd field costs one message and not the batch it came in."""
    for name in names:
        if not isinstance(getattr(value, name), str):
            raise TypeError(f"{type(value).__name__}.{name} is not text")


class Media(Struct, frozen=True, array_like=True):
    """A file that belongs to a message. Raises `TypeError` or `ValueError` for what is none.

    `ref` is what the channel's `fetch` needs to get it (inbound), or a path in the home (outbound);
    the core makes a voice message that is yet `to_speak` before the channel gets to see it.
    `size` is in bytes, 0 when the platform did not say.
    """

    ref: str
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
        """A voice message that is made of these words when it is sent."""
        return cls(f"{_TO_SPEAK}{words}", "voice", "audio/ogg")


class Quote(Struct, frozen=True, array_like=True):
    """The message that another one replies to. Raises `TypeError` for what is none."""

    message_id: str
    sender: str = ""
    text: str = ""

    def __post_init__(self) -> None:
        _expect_texts(self, "message_id", "sender", "text")


class Said(Struct, frozen=True, array_like=True):
    """Something that was said before, in a conversation that nanobot did not keep itself. `origin`
    is that of the message it becomes, `name` the program that sent it as nanobot's words."""

    role: Literal["user", "assistant"]
    text: str
    origin: str = ""
    name: str = ""


class Delivery(Struct, frozen=True, omit_defaults=True):
    """The relation of a message to others of its chat. Raises `TypeError` if a field is no text."""

    group_id: str = ""
    """Marks the items of an album."""
    edits: str = ""
    """The event whose text this message replaces: a correction until that is answered, and only
    noted afterwards."""
    deletes: str = ""
    """The event that its sender took back. A waiting message is dropped, and a turn that answers
    nothing else is stopped."""
    answers: str = ""
    """The event that a reply answers if it is not this one, when a message is run again."""
    unanswered: bool = False
    """The message is kept in the conversation and begins no turn."""

    def __post_init__(self) -> None:
        _expect_texts(self, "group_id", "edits", "deletes", "answers")


class Origin(Struct, frozen=True, omit_defaults=True, rename={"initiator": "begun_by"}):
    """Who began a message if no person typed it, and the terms of its answer. Raises `TypeError`.

    The messages of a job or of the heartbeat have a conversation of their own, which is empty each
    time. The answer goes to `chat_id` and is noted in the conversation there.
    """

    initiator: Initiator = "person"
    scope: str = ""
    """The scope whose memory it is answered with. Only nanobot sets it."""
    job: str = ""
    """The name of the job."""
    model: str = ""
    """The model that the job asks for."""
    mark: str = ""
    """The origin of the stored message (see `Message`)."""
    by_program: bool = False
    """A program sent it for the person and waits for this answer only. So it is never a command,
    joins no running turn and interrupts none."""
    context: tuple[Said, ...] = ()
    """The messages before it, for a conversation that has none yet."""
    instructions: Said | None = None
    """The program's, which the conversation gains as untrusted content unless it has them."""
    schema: str = ""
    """The JSON Schema, as text, that the answer must fit."""
    off_record: bool = False
    """Its conversation holds only `context`, is never stored, and no memory reads it."""

    def __post_init__(self) -> None:
        _expect_texts(self, "scope", "job", "model", "mark", "schema")
        if self.initiator not in get_args(Initiator):
            raise TypeError("no turn can begin this way")


_ALONE, _TYPED = Delivery(), Origin()


class InboundMessage(Struct, frozen=True):
    """A message as a channel understood it. Raises `TypeError` if a field has the wrong type."""

    channel: str
    chat_id: str
    sender_id: str
    content: str
    event_id: str
    """Identifies the event permanently within its channel and chat (message ID plus edit stamp,
    `callback:<id>`, `cron:<job>:<due>`, `cli:<uuid>`). A duplicate is dropped."""
    timestamp: datetime
    """Aware."""
    message_id: str = ""
    media: tuple[Media, ...] = ()
    notes: tuple[str, ...] = ()
    """Contents that are neither words nor files, such as a contact, a place or a poll
    (`location: 52.52, 13.4`), a line each, without brackets. They are never a command. A message
    may have nothing else."""
    thread_id: str = ""
    reply_to: Quote | None = None
    forwarded_from: str = ""
    sender_name: str = ""
    is_group: bool = False
    """Others read this chat, so it has a memory of its own."""
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
    def is_background(self) -> bool:
        """Whether it is answered in a conversation of its own, which nobody watches."""
        return self.origin.initiator in {"job", "heartbeat"}

    @property
    def expects_answer(self) -> bool:
        """Whether a person sent it and waits for an answer: nobody does for nanobot's own."""
        return self.sender_id != NANOBOT

    @property
    def address(self) -> Address:
        """The chat that answers to this go to."""
        return Address(self.channel, self.chat_id, self.thread_id)

    @property
    def chat_key(self) -> str:
        """The conversation of that chat: `channel:chat_id[:thread_id]`."""
        thread = f":{self.thread_id}" if self.thread_id else ""
        return f"{self.channel}:{self.chat_id}{thread}"

    @property
    def answered_event(self) -> str:
        """The event that a reply to this message answers."""
        return self.delivery.answers or self.event_id

    @property
    def session_key(self) -> str:
        """The conversation this belongs to: that of the chat unless overridden."""
        return self.session_override or self.chat_key


_TEXTS = tuple(name for name, type in InboundMessage.__annotations__.items() if type == "str")


class Button(Struct, frozen=True, array_like=True):
    """A choice under a message; pressing it sends `value` back as text, as if typed.

    `only` is the sender who may press it; empty: everyone who may talk in the chat. The journal
    gives it its `id`, which is all that the platform gets to know of it (see
    `ChannelHost.resolve_button`)."""

    label: str
    value: str
    only: str = ""
    id: str = ""


BUTTON_ID = re.compile("[0-9a-f]{24}")
"""The ids of our own buttons."""

EXPIRED_BUTTON = "/expired-button"
"""The text of a press of a button that has expired. Some platforms send the label instead, which
would pass for a message."""


class OutboundMessage(Struct, frozen=True):
    """Something to say in a chat. Markdown; the channel translates and the core splits. `only` is
    the sender to whom alone it is shown in a group where the platform can do that. `late`: it
    answers a message that had to wait for the model."""

    channel: str
    chat_id: str
    content: str
    media: tuple[Media, ...] = ()
    reply_to: str = ""
    thread_id: str = ""
    buttons: tuple[Button, ...] = ()
    only: str = ""
    late: bool = False


class OutboundPart(Struct, frozen=True):
    """One delivery: a part of a message that fits the channel's limits.

    `key` is the same on every attempt; a channel whose platform takes an idempotency key uses it.
    `event_ids` name the inbound events that this answers (several where messages were steered into
    a running turn); empty where it answers none. `last` marks the final part of a message.
    """

    key: str
    channel: str
    chat_id: str
    content: str
    media: tuple[Media, ...] = ()
    reply_to: str = ""
    thread_id: str = ""
    buttons: tuple[Button, ...] = ()
    event_ids: tuple[str, ...] = ()
    last: bool = True
    only: str = ""
    late: bool = False

    @classmethod
    def of(
        cls, key: str, message: OutboundMessage, event_ids: tuple[str, ...], last: bool
    ) -> OutboundPart:
        """One that holds a whole message."""
        said = {name: getattr(message, name) for name in message.__struct_fields__}
        return cls(key, event_ids=event_ids, last=last, **said)

    @property
    def words(self) -> str:
        """What is yet to be spoken; empty where the part can be sent as it is."""
        refs = (file.ref for file in self.media if file.ref.startswith(_TO_SPEAK))
        return next(refs, "").removeprefix(_TO_SPEAK)


class Receipt(Struct, frozen=True):
    """The platform accepted a part; `platform_id` is its id there, if it has one. `is_final`: it
    can't report a failure later (`ChannelHost.report_undelivered`)."""

    platform_id: str = ""
    is_final: bool = True


class _InThread(Struct, frozen=True, kw_only=True):
    """What shows in a chat that may have threads."""

    thread_id: str = ""


class _OfTurn(_InThread, frozen=True):
    """What happens in a turn, and the chat where it shows."""

    channel: str
    chat_id: str
    turn_id: str

    @property
    def address(self) -> Address:
        return Address(self.channel, self.chat_id, self.thread_id)


class TurnStarted(_OfTurn, frozen=True):
    """The agent began to work on the events named."""

    event_ids: tuple[str, ...] = ()


class PromptReading(_OfTurn, frozen=True):
    """A slow model server has read `read` of the `total` tokens of a prompt. It is shown until
    text or a tool follows. `str` is the line for people, empty if the whole prompt is read."""

    read: int
    total: int

    @property
    def is_done(self) -> bool:
        """Whether the whole prompt has been read."""
        return self.read >= self.total

    def __str__(self) -> str:
        return "" if self.is_done else f"reading {self.read:,} of {self.total:,} tokens"


class TextDelta(_OfTurn, frozen=True):
    """More text of the reply that is being written. `restart` discards what came before it."""

    text: str
    restart: bool = False


class ToolStarted(_OfTurn, frozen=True):
    """A tool runs; `hint` is a short human line such as `read_file notes.txt`."""

    hint: str


class ToolOutput(_OfTurn, frozen=True):
    """More of what a running tool prints, without secrets; any number of lines, or parts of one."""

    text: str


class TurnEnded(_OfTurn, frozen=True):
    """The turn is over and its reply, if any, is in the outbox.

    `event_ids` are all events it answered; `outcome` says how it ended (`waiting`: for the model,
    and a message says so; `held`: by the disk, and only a notice could say so). `tools` are the
    names of tools called, in order; tokens are those of all model calls; `milliseconds` is wall
    time. `error` is the class of the error that failed it or lets it wait (`ContextTooLong`).
    `origin` is the mark of the answer to a program (see `Message`).
    Channels only get to see turns in a conversation with a person.
    """

    event_ids: tuple[str, ...]
    outcome: Literal["done", "failed", "stopped", "waiting", "held"]
    tools: tuple[str, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0
    initiator: Initiator = "person"
    error: str = ""
    origin: str = ""


class Notice(Struct, frozen=True):
    """Something a person should see now that is not worth keeping (a disk is full, …)."""

    channel: str
    chat_id: str
    text: str
    thread_id: str = ""


ApprovalAnswer = Literal["once", "chat_today", "always", "no", "unseen"]
"""The answers to a question about a call. A program that nobody watches answers `unseen`: the call
does not run, and the owner has not refused it."""


class ApprovalAsked(_OfTurn, frozen=True):
    """The owner is asked about a call, in the chat named; it waits. `what` names the action,
    `details` is all that decides what would happen, `because` says why they are asked; these are
    written out for review, as the chat shows them. `answers` are those that are possible,
    `asked_at` is aware, `seconds` is how long it waits."""

    code: str
    what: str
    details: str
    because: str
    answers: tuple[ApprovalAnswer, ...]
    asked_at: datetime
    seconds: float


class ApprovalClosed(_OfTurn, frozen=True):
    """That question waits no more. `by` is who answered; empty where nobody did."""

    code: str
    outcome: ApprovalAnswer | Literal["expired", "withdrawn"]
    by: str = ""

    def __str__(self) -> str:
        """A line for people."""
        by = f", by {self.by}" if self.by else ""
        return f"{_OUTCOMES[self.outcome]}{by}."


_OUTCOMES = {
    "once": "Approved",
    "chat_today": "Approved for this chat today",
    "always": "Approved from now on",
    "no": "Denied",
    "unseen": "Not approved because no one was there to answer",
    "expired": "Not answered in time",
    "withdrawn": "No longer needed",
}


class ToolFinished(Struct, frozen=True):
    """A tool that was started has run. There is neither event for a call that does not run."""

    name: str
    seconds: float


Progress = TurnStarted | PromptReading | TextDelta | ToolStarted | ToolOutput | TurnEnded | Notice
"""What a channel may show while a turn runs. Best effort: never stored, never retried."""
