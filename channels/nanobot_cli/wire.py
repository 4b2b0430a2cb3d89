"""The chat's part of the control socket's protocol, as values for both of its ends.

    client                                   gateway
    chat id=1 ──────────────────────────────>
             <────────────────────────────── accepted id=1   it is on disk, and will be answered
             <────────────────────────────── reading, delta, tool, output, notice, message id=1
             <────────────────────────────── reply id=1      the last word on this request

A request that is refused gets `{"ok": false, …}` in place of all of these. Requests may overlap.
One with `watch` has no text: it is accepted, and from then on hears what is said in its
conversation that no other request of the connection waits for, beginning with what nobody has seen
yet; it has no last word.
Only light modules of the standard library: the client has to start quickly.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

DEFAULT_SESSION = "cli:direct"


class ChatRequest(NamedTuple):
    """Something to say in `session`; with `watch` and without a text, the wish to receive what is
    said there. `stream`: the client wants to see the reply being written and what tools print."""

    id: str
    session: str
    text: str
    stream: bool = True
    watch: bool = False

    @classmethod
    def parse(cls, data: Mapping[str, object]) -> ChatRequest:
        """Raises `ValueError`, with a sentence for people, where a field is missing or wrong."""
        request_id, text = data.get("id"), data.get("text")
        session, stream = data.get("session", DEFAULT_SESSION), data.get("stream", True)
        watch = data.get("watch") is True
        if not isinstance(request_id, str) or not 1 <= len(request_id) <= 128:
            raise ValueError("a chat request needs an id of 1 to 128 characters")
        if not isinstance(text, str) or not (watch or text.strip()):
            raise ValueError("there is nothing to say: the text is empty")
        if not isinstance(session, str) or not is_session_key(session):
            raise ValueError(f"{session!r} is not a session key. An example is {DEFAULT_SESSION}")
        return cls(request_id, session, text, stream is not False, watch)

    def as_json(self) -> dict[str, object]:
        """As it goes over the socket."""
        return {"op": "chat", **self._asdict()}


# Each field has a default: what a newer or older gateway leaves out.


class Accepted(NamedTuple):
    """The message is durable: it will be answered whatever happens to the connection."""

    id: str = ""


class Delta(NamedTuple):
    """More of the reply; `restart` discards what came before."""

    id: str = ""
    text: str = ""
    restart: bool = False


class Reading(NamedTuple):
    """A line that shows the progress of reading the prompt; empty when it is done."""

    id: str = ""
    text: str = ""


class Tool(NamedTuple):
    """A tool runs."""

    id: str = ""
    hint: str = ""


class Output(NamedTuple):
    """More of what a running tool prints."""

    id: str = ""
    text: str = ""


class Note(NamedTuple):
    """Something to see now that is not part of the reply."""

    id: str = ""
    text: str = ""


class SentFile(NamedTuple):
    """A file that the agent sent: its name, its path, and its size in bytes."""

    name: str = ""
    path: str = ""
    size: int = 0


class Choice(NamedTuple):
    """A button under a message: choosing it is to say `value`."""

    label: str = ""
    value: str = ""


class AgentMessage(NamedTuple):
    """Something that the agent said before its reply, with the files that it sent and what there
    is to choose. `at` is when, in ISO format, where nobody was there to see it then."""

    id: str = ""
    text: str = ""
    files: tuple[SentFile, ...] = ()
    choices: tuple[Choice, ...] = ()
    at: str = ""


class Closed(NamedTuple):
    """A question needs no answer any more, as one was given elsewhere, or nothing waits for it:
    the one whose `choices` these were. `text` says how it ended."""

    id: str = ""
    text: str = ""
    choices: tuple[Choice, ...] = ()


class Reply(NamedTuple):
    """The answer, empty where an `AgentMessage` was word for word the same. `outcome` is done,
    failed, stopped or waiting; tokens are of the whole turn."""

    id: str = ""
    text: str = ""
    turn: str = ""
    tools: tuple[str, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0
    outcome: str = "done"


class Refused(NamedTuple):
    """The gateway rejected a request. `id` is empty if the request was unreadable. `going`: the
    gateway is shutting down, and another one may accept the request."""

    id: str = ""
    error: str = ""
    hint: str = ""
    going: bool = False


ChatEvent = (
    Accepted | Reading | Delta | Tool | Output | Note | AgentMessage | Closed | Reply | Refused
)

_EVENTS: dict[str, type[ChatEvent]] = {
    "accepted": Accepted, "reading": Reading, "delta": Delta, "tool": Tool, "output": Output,
    "notice": Note, "message": AgentMessage, "closed": Closed, "reply": Reply,
}  # fmt: skip
_NAMES = {kind: name for name, kind in _EVENTS.items()}
_LISTS: dict[str, type[NamedTuple]] = {"files": SentFile, "choices": Choice}

T = TypeVar("T", bound=NamedTuple)


def to_json(event: ChatEvent) -> dict[str, object]:
    """As it goes over the socket."""
    fields = event._asdict()
    for name in _LISTS.keys() & fields.keys():
        fields[name] = [value._asdict() for value in fields[name]]
    return {"event": _NAMES[type(event)], **fields}


def parse_event(data: Mapping[str, object]) -> ChatEvent | None:
    """The event in one line of the gateway's; None for one that this version does not know."""
    if data.get("ok") is False:
        return _parse(Refused, data)
    kind = _EVENTS.get(str(data.get("event")))
    return None if kind is None else _parse(kind, data)


def is_session_key(key: str) -> bool:
    """Whether `key` can name a conversation: `channel:chat`, printable."""
    channel, _, chat = key.partition(":")
    return bool(channel and chat) and key.isprintable()


def _parse(kind: type[T], data: Mapping[str, object]) -> T:
    """A value that is missing, or of another type than its field, is the default."""
    return kind._make(
        _value(name, data.get(name), default) for name, default in kind._field_defaults.items()
    )


def _value(name: str, value: object, default: object) -> object:
    if isinstance(value, list):
        if name in _LISTS:
            return tuple(_parse(_LISTS[name], item) for item in value if isinstance(item, dict))
        value = tuple(str(item) for item in value)
    return value if type(value) is type(default) else default
