"""What the daemon and the helper exchange: version 1 of the bridge's protocol.

JSON in UTF-8, one object per line, a line of at most `MAX_LINE` bytes with its end. `parse` reads
what the helper sends; `encode`, `welcome_line` and `request_line` make what we send. The protocol
is documented in docs/channels/whatsapp-bridge.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Literal, get_args

from nanobot.channel.documents import document_of
from nanobot.errors import NanobotError
from nanobot_whatsapp.people import id_of

PROTOCOL = 1
MAX_LINE = 1024 * 1024
WINDOW = 64
"""How many unconfirmed events the helper may send."""
_DETAIL_CHARACTERS = 500
"""Of a text of the helper's that is only read by people."""

StateName = Literal[
    "need_pairing", "connecting", "open", "backoff", "logged_out", "replaced", "banned"
]
Method = Literal["send", "download", "typing", "read"]
ErrorCode = Literal["later", "unknown", "refused"]
Pair = Literal["none", "qr", "code"]
Fields = Mapping[str, object]


class Garbage(NanobotError):
    """A line that does not follow the protocol."""


@dataclass(frozen=True, slots=True)
class Me:
    """The linked account: `number` and `lid` are JIDs without a device; either may be empty while
    it is unknown."""

    number: str = ""
    lid: str = ""
    name: str = ""

    @property
    def ids(self) -> frozenset[str]:
        """The known ids of the account, which are no JIDs (see `nanobot_whatsapp.people`)."""
        return frozenset(id_of(jid) for jid in (self.number, self.lid) if jid)


@dataclass(frozen=True, slots=True)
class Hello:
    """What the helper is; its first line."""

    protocol: int
    bridge: str = ""
    baileys: str = ""
    node: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True)
class State:
    """The state of the connection with WhatsApp. `retry_in` is in seconds, None if nothing is tried
    automatically; `me` is None before an account is linked."""

    state: StateName
    detail: str = ""
    retry_in: float | None = None
    me: Me | None = None


@dataclass(frozen=True, slots=True)
class Qr:
    """The content of the QR code to scan; the next one replaces it."""

    data: str


@dataclass(frozen=True, slots=True)
class PairCode:
    """The code to type into the phone."""

    code: str


@dataclass(frozen=True, slots=True)
class Identity:
    """Two ids of the same person, as full JIDs."""

    lid: str
    number: str


@dataclass(frozen=True, slots=True)
class Event:
    """Something from the spool, to be confirmed. `body` is as it came; see `events.read`."""

    seq: int
    body: Fields


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed. `retry_after` is in seconds, 0.0 if none was given."""

    code: ErrorCode
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: `data`, or a `failure`."""

    id: int
    data: Fields = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True)
class Pong:
    """The answer to a ping."""

    id: int


@dataclass(frozen=True, slots=True)
class Log:
    """A line for the log. `level` is the name of a level in upper case."""

    level: str
    message: str


Change = State | Qr | PairCode | Identity
"""News of the connection and its account."""

FromHelper = Hello | Change | Event | Answer | Pong | Log


@dataclass(frozen=True, slots=True)
class Welcome:
    """How the helper is to work. `pair` says whether it may link an account if none is linked
    (`none`: it reports `need_pairing` and waits); `number`, in digits, is for `code`.
    `read_receipts`: it may tell senders what was read; `online`: it shows as online while it is
    connected."""

    pair: Pair = "none"
    number: str = ""
    read_receipts: bool = True
    online: bool = False


def encode(kind: str, **fields: object) -> bytes:
    """A line for the helper."""
    line = {"type": kind, **fields}
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def welcome_line(welcome: Welcome) -> bytes:
    """The answer to `hello`."""
    return encode("welcome", protocol=PROTOCOL, **asdict(welcome))


def request_line(number: int, method: Method, params: Fields) -> bytes:
    """A request. Raises `Garbage` if it is longer than a line may be."""
    line = encode("request", id=number, method=method, params=params)
    if len(line) > MAX_LINE:
        raise Garbage(f"a request to {method} is longer than {MAX_LINE:,} bytes")
    return line


def parse(line: bytes) -> FromHelper | None:
    """What the helper sends in a line; None for an unknown type: a newer helper may send more.
    Raises `Garbage`."""
    try:
        fields = document_of(line)
    except ValueError as error:
        raise Garbage(f"a line is not JSON: {type(error).__name__}") from None
    kind = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(kind, str):
        raise Garbage("a line is not an object with a type")
    reader = _READERS.get(kind)
    return None if reader is None else reader(fields)


def _hello(fields: Fields) -> Hello:
    bridge, baileys, node = (_text(fields, name) for name in ("bridge", "baileys", "node"))
    return Hello(_integer(fields, "protocol"), bridge, baileys, node, _integer(fields, "pid"))


def _state(fields: Fields) -> State:
    name, me = fields.get("state"), fields.get("me")
    if me is not None and not isinstance(me, dict):
        raise Garbage("`me` is not an object")
    account = Me(_text(me, "number"), _text(me, "lid"), _line(me, "name")) if me else None
    for known in get_args(StateName):
        if name == known:
            return State(known, _line(fields, "detail"), _seconds(fields, "retry_in"), account)
    raise Garbage(f"a state {str(name)[:50]!r}")


def _event(fields: Fields) -> Event:
    body = fields.get("event")
    return Event(_integer(fields, "seq"), body if isinstance(body, dict) else {})


def _answer(fields: Fields) -> Answer:
    number, data, error = _integer(fields, "id"), fields.get("data"), fields.get("error")
    if fields.get("ok") is True:
        return Answer(number, data if isinstance(data, dict) else {})
    error = error if isinstance(error, dict) else {}
    # A failure of an unknown kind may have had any effect.
    code: ErrorCode = "unknown"
    for known in get_args(ErrorCode):
        code = known if error.get("code") == known else code
    wait = _seconds(error, "retry_after") or 0.0
    return Answer(number, failure=Failure(code, _line(error, "message"), wait))


def _log(fields: Fields) -> Log:
    level = _text(fields, "level").upper()
    known = level if level in {"DEBUG", "INFO", "WARNING", "ERROR"} else "INFO"
    return Log(known, _line(fields, "message"))


def _text(fields: Fields, name: str) -> str:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise Garbage(f"{name!r} is not a text")
    return value or ""


def _line(fields: Fields, name: str) -> str:
    """A text for people: one line, nothing in it that a terminal acts on."""
    line = " ".join(_text(fields, name)[: 4 * _DETAIL_CHARACTERS].split())
    return "".join(char if char.isprintable() else "?" for char in line)[:_DETAIL_CHARACTERS]


def _integer(fields: Fields, name: str) -> int:
    value = fields.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise Garbage(f"{name!r} is not a whole number")
    return value


def _seconds(fields: Fields, name: str) -> float | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise Garbage(f"{name!r} is no number of seconds")
    return float(value)


_READERS: Mapping[str, Callable[[Fields], FromHelper]] = {
    "hello": _hello,
    "state": _state,
    "qr": lambda fields: Qr(_text(fields, "data")),
    "pair_code": lambda fields: PairCode(_text(fields, "code")),
    "identity": lambda fields: Identity(_text(fields, "lid"), _text(fields, "number")),
    "event": _event,
    "reply": _answer,
    "pong": lambda fields: Pong(_integer(fields, "id")),
    "log": _log,
}
