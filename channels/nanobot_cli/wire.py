"""What is said on the control socket about a chat, as values: one place for both of its ends.

    client                                   gateway
    chat id=1 ──────────────────────────────>
             <────────────────────────────── accepted id=1   it is on disk, and will be answered
             <────────────────────────────── delta, tool, output, notice, message id=1, any number
             <────────────────────────────── reply id=1      the last word on this request

A request that is refused gets `{"ok": false, …}` in place of all of these. Requests may overlap.
One with `watch` says nothing: it is accepted, and from then on told what is said in its
conversation that no other request of the connection waits for, beginning with what nobody has seen
yet; it has no last word.
Light standard library only: the client's start-up time is a feature.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

DEFAULT_SESSION = "cli:direct"


class ChatRequest(NamedTuple):
    """Something to say in `session`, or with `watch` the wish to hear what is said there, without a
    text. `stream`: the client wants to see the reply being written and what tools print."""

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
            raise ValueError(f"{session!r} is no session key; one looks like {DEFAULT_SESSION}")
        return cls(request_id, session, text, stream is not False, watch)

    def as_json(self) -> dict[str, object]:
        """As it goes over the socket."""
        return {"op": "chat", **self._asdict()}


class Accepted(NamedTuple):
    """The message is durable: it will be answered whatever happens to the connection."""

    id: str


class Delta(NamedTuple):
    """More of the reply; `restart` discards what came before."""

    id: str
    text: str
    restart: bool = False


class Tool(NamedTuple):
    """A tool runs."""

    id: str
    hint: str


class Output(NamedTuple):
    """More of what a running tool prints."""

    id: str
    text: str


class Note(NamedTuple):
    """Something to see now that is not part of the reply."""

    id: str
    text: str


class SentFile(NamedTuple):
    """A file that the agent sent: what it is called, where it lies, and its size in bytes."""

    name: str
    path: str
    size: int = 0


class Choice(NamedTuple):
    """A button under a message: choosing it is to say `value`."""

    label: str
    value: str


class Said(NamedTuple):
    """Something that the agent said before its reply, with the files that it sent and what there
    is to choose. `at` is when, in ISO format, where nobody was there to see it then."""

    id: str
    text: str
    files: tuple[SentFile, ...] = ()
    choices: tuple[Choice, ...] = ()
    at: str = ""


class Reply(NamedTuple):
    """The answer, empty where a `Said` was word for word the same. `outcome` is done, failed,
    stopped or waiting; tokens are of the whole turn."""

    id: str
    text: str = ""
    turn: str = ""
    tools: tuple[str, ...] = ()
    prompt_tokens: int = 0
    completion_tokens: int = 0
    milliseconds: int = 0
    outcome: str = "done"


class Refused(NamedTuple):
    """The gateway will not do what was asked; `id` is empty where it could not read the request."""

    id: str
    error: str
    hint: str = ""


ChatEvent = Accepted | Delta | Tool | Output | Note | Said | Reply | Refused

_NAMES: dict[type, str] = {
    Accepted: "accepted", Delta: "delta", Tool: "tool", Output: "output", Note: "notice",
    Said: "message", Reply: "reply",
}  # fmt: skip


def to_json(event: Accepted | Delta | Tool | Output | Note | Said | Reply) -> dict[str, object]:
    """As it goes over the socket."""
    fields = event._asdict()
    if isinstance(event, Said):
        fields["files"] = [file._asdict() for file in event.files]
        fields["choices"] = [choice._asdict() for choice in event.choices]
    return {"event": _NAMES[type(event)], **fields}


def parse_event(data: Mapping[str, object]) -> ChatEvent | None:
    """The event in one line of the gateway's; None for one that this version does not know."""
    event_id = _text(data, "id")
    if data.get("ok") is False:
        return Refused(event_id, _text(data, "error"), _text(data, "hint"))
    event: ChatEvent | None = None
    match data.get("event"):
        case "accepted":
            event = Accepted(event_id)
        case "delta":
            event = Delta(event_id, _text(data, "text"), data.get("restart") is True)
        case "tool":
            event = Tool(event_id, _text(data, "hint"))
        case "output":
            event = Output(event_id, _text(data, "text"))
        case "notice":
            event = Note(event_id, _text(data, "text"))
        case "message":
            files, choices = _files(data.get("files")), _choices(data.get("choices"))
            said = Said(event_id, _text(data, "text"), tuple(files), tuple(choices))
            event = said._replace(at=_text(data, "at"))
        case "reply":
            event = _reply(event_id, data)
    return event


def is_session_key(key: str) -> bool:
    """Whether `key` can name a conversation: `channel:chat`, printable."""
    channel, _, chat = key.partition(":")
    return bool(channel and chat) and key.isprintable()


def _reply(event_id: str, data: Mapping[str, object]) -> Reply:
    tools = data.get("tools")
    return Reply(
        event_id,
        text=_text(data, "text"),
        turn=_text(data, "turn"),
        tools=tuple(str(tool) for tool in tools) if isinstance(tools, list) else (),
        prompt_tokens=_number(data, "prompt_tokens"),
        completion_tokens=_number(data, "completion_tokens"),
        milliseconds=_number(data, "milliseconds"),
        outcome=_text(data, "outcome") or "done",
    )


def _files(value: object) -> Iterator[SentFile]:
    for file in value if isinstance(value, list) else ():
        if isinstance(file, dict):
            yield SentFile(_text(file, "name"), _text(file, "path"), _number(file, "size"))


def _choices(value: object) -> Iterator[Choice]:
    for choice in value if isinstance(value, list) else ():
        if isinstance(choice, dict):
            yield Choice(_text(choice, "label"), _text(choice, "value"))


def _text(data: Mapping[str, object], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _number(data: Mapping[str, object], key: str) -> int:
    value = data.get(key)
    return value if isinstance(value, int) else 0
