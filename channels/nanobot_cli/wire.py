"""The chat's part of the control socket's protocol, as values for both ends.

    client                                   gateway
    chat id=1 ──────────────────────────────>
             <────────────────────────────── accepted id=1   it is on disk, and will be answered
             <────────────────────────────── taken id=1      its turn has begun
             <────────────────────────────── reading, delta, tool, output, done id=1
             <────────────────────────────── notice, message id=1
             <────────────────────────────── reply id=1      the last event of this request

A rejected request gets `{"ok": false, …}` instead of all these. Requests may overlap. One with
`watch` has no text: it is accepted, and then receives all events of its conversation that no other
request of the connection waits for, beginning with unseen ones. It has no last event. Imports only
light modules: the client has to start quickly. For the same reason, annotations are not texts here,
which `NamedTuple` would compile."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, Self, TypeVar

from nanobot.errors import NanobotError

DEFAULT_SESSION = "cli:direct"

MOST_BYTES = 20 * 1024 * 1024
"""Of all files of a message."""

TEMPORARY = "temporary-"
"""Prefix of the chat id of a temporary chat."""


class SharedFile(NamedTuple):
    """A file that a message attaches. `data` is in Base64."""

    name: str = ""
    data: str = ""


class ChatRequest(NamedTuple):
    """A message for `session`, or with `watch` and without a text, the request to receive its
    events. `everywhere`: also the events of other terminal chats that no client watches.
    `stream`: the client wants the incomplete reply and the output of tools. `earlier`: the messages
    before it in a temporary chat (see `nanobot.channel.temporary`)."""

    id: str = ""
    session: str = ""
    text: str = ""
    stream: bool = True
    watch: bool = False
    everywhere: bool = False
    attached: tuple[SharedFile, ...] = ()
    earlier: tuple[object, ...] = ()

    @property
    def is_temporary(self) -> bool:
        """True if it is a message of a temporary chat."""
        return self.session.startswith(f"cli:{TEMPORARY}")

    @classmethod
    def parse(cls, data: Mapping[str, object]) -> Self:
        """Parse a request. Raises `NanobotError` if a field is missing or wrong."""
        request = _parse(cls, {"session": DEFAULT_SESSION, **data})
        if not 1 <= len(request.id) <= 128:
            raise NanobotError("a chat request needs an id of 1 to 128 characters")
        if not (request.watch or request.text.strip()):
            raise NanobotError("the message is empty")
        if not is_session_key(request.session):
            key = data.get("session")
            raise NanobotError(f"{key!r} is not a valid session key, such as {DEFAULT_SESSION}")
        return request

    def as_json(self) -> dict[str, object]:
        """Return the request for the socket."""
        return {"op": "chat", **_fields_of(self)}


# Each field has a default, because a newer or older gateway may leave it out.


class Accepted(NamedTuple):
    """The message is durable: it will be answered even if the connection ends."""

    id: str = ""


class Taken(NamedTuple):
    """A turn has begun to answer the message, perhaps together with others."""

    id: str = ""
    turn: str = ""


class Delta(NamedTuple):
    """More of the reply. `restart` discards the text so far."""

    id: str = ""
    text: str = ""
    restart: bool = False


class Reading(NamedTuple):
    """A line about the wait for the model (its reading, its thinking, an outage), empty when it is
    over."""

    id: str = ""
    text: str = ""


class Tool(NamedTuple):
    """A running tool."""

    id: str = ""
    hint: str = ""


class ToolDone(NamedTuple):
    """A tool has finished. `size` is that of its result in bytes."""

    id: str = ""
    hint: str = ""
    size: int = 0
    failed: bool = False


class Output(NamedTuple):
    """More output of the running tool."""

    id: str = ""
    text: str = ""


class Note(NamedTuple):
    """A notice that is not part of the reply."""

    id: str = ""
    text: str = ""


class SentFile(NamedTuple):
    """A file that the agent sent. `size` is in bytes."""

    name: str = ""
    path: str = ""
    size: int = 0


class Choice(NamedTuple):
    """A button under a message. Choosing it sends `value`."""

    label: str = ""
    value: str = ""


class AgentMessage(NamedTuple):
    """A message of the agent before its reply, with its files and choices. `at` is its time in ISO
    format, if it came while no client was there. `chat` is its chat, if the
    client watches another one."""

    id: str = ""
    text: str = ""
    files: tuple[SentFile, ...] = ()
    choices: tuple[Choice, ...] = ()
    at: str = ""
    chat: str = ""


class Closed(NamedTuple):
    """A question that needs no answer any more, because it was answered in another place or
    dropped. `choices` identify it, `text` is its outcome."""

    id: str = ""
    text: str = ""
    choices: tuple[Choice, ...] = ()


class Reply(NamedTuple):
    """The answer, empty if an `AgentMessage` had exactly this text. `outcome` is done, failed,
    stopped or waiting. The tokens count the whole turn. `origin` marks the untrusted content that
    the answer in a temporary chat may repeat."""

    id: str = ""
    text: str = ""
    turn: str = ""
    tools: tuple[str, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0
    outcome: str = "done"
    origin: str = ""


class Refused(NamedTuple):
    """The gateway rejected a request. `id` is empty if the request was unreadable. `going`: the
    gateway is shutting down, and another one may accept the request."""

    id: str = ""
    error: str = ""
    hint: str = ""
    going: bool = False


ChatEvent = (
    Accepted | Taken | Reading | Delta | Tool | ToolDone | Output
    | Note | AgentMessage | Closed | Reply | Refused
)  # fmt: skip


class Gateway(Protocol):
    """The chat's connection to the gateway."""

    @property
    def waiting(self) -> bool:
        """True if a message has no reply yet."""

    def ask_aside(self, operation: str, arguments: Mapping[str, object]) -> Any:
        """Run one operation at any time, from any thread. Raises `NanobotError`."""

    def watch(self, session: str) -> None:
        """Receive all other events of `session`."""

    def send_message(
        self,
        text: str,
        session: str,
        *,
        stream: bool = False,
        files: Sequence[tuple[str, bytes]] = (),
        earlier: Sequence[Mapping[str, str]] = (),
    ) -> str:
        """Send a message with its files, in a temporary chat with the messages before it, and
        return the id of its events. Raises `NanobotError`."""

    def read_events(self) -> Sequence[ChatEvent]:
        """Return the events so far, without waiting. Raises `NanobotError`."""

    def fileno(self) -> int:
        """Return the descriptor to wait for events on, or -1. `send_message` and `read_events` may
        change it."""


_EVENTS: dict[str, type[ChatEvent]] = {
    "accepted": Accepted, "taken": Taken, "reading": Reading, "delta": Delta, "tool": Tool,
    "output": Output, "done": ToolDone, "notice": Note,
    "message": AgentMessage, "closed": Closed, "reply": Reply,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _EVENTS.items()}
_LISTS: dict[str, type[NamedTuple]] = {
    "attached": SharedFile, "files": SentFile, "choices": Choice,
}  # fmt: skip

T = TypeVar("T", bound=NamedTuple)


def to_json(event: ChatEvent) -> dict[str, object]:
    """Return an event for the socket."""
    return {"event": _NAMES[type(event)], **_fields_of(event)}


def parse_event(data: Mapping[str, object]) -> ChatEvent | None:
    """Return the event in a line of the gateway, or None if this version does not know it."""
    if data.get("ok") is False:
        return _parse(Refused, data)
    kind = _EVENTS.get(str(data.get("event")))
    return None if kind is None else _parse(kind, data)


def is_session_key(key: str) -> bool:
    """Return True if `key` can name a conversation: `channel:chat`, printable."""
    channel, _, chat = key.partition(":")
    return bool(channel and chat) and key.isprintable()


def _fields_of(value: ChatEvent | ChatRequest) -> dict[str, object]:
    fields = value._asdict()
    for name in _LISTS.keys() & fields.keys():
        fields[name] = [one._asdict() for one in fields[name]]
    return fields


def _parse(kind: type[T], data: Mapping[str, object]) -> T:
    """Parse the fields. Missing values and values of a wrong type become the default."""
    return kind._make(
        _value(name, data.get(name), default) for name, default in kind._field_defaults.items()
    )


def _value(name: str, value: object, default: object) -> object:
    if isinstance(value, list):
        kind = _LISTS.get(name)
        parsed = [_parse(kind, one) for one in value if isinstance(one, dict)] if kind else value
        value = tuple(parsed)
    return value if type(value) is type(default) else default
