"""What the daemon and the helper exchange: version 1 of the bridge's protocol.

JSON in UTF-8, one object per line, a line of at most `MAX_LINE` bytes with its end. `parse` reads
what the helper sends; `encode`, `welcome_line` and `request_line` make what we send. The protocol
is documented in docs/channels/whatsapp-bridge.md.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, field
from typing import Annotated, Any, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
)
from pydantic.dataclasses import dataclass

from nanobot.channel.documents import document_of
from nanobot.errors import NanobotError
from nanobot_whatsapp.people import id_of

PROTOCOL = 1
MAX_LINE = 1024 * 1024
WINDOW = 64
"""How many unconfirmed events the helper may send."""
_DETAIL_CHARACTERS = 500
"""Of a text of the helper's that is only read by people."""
_CONFIG = ConfigDict(extra="ignore", strict=True, hide_input_in_errors=True)


def _clean_line(text: str) -> str:
    """One line, nothing in it that a terminal acts on."""
    line = " ".join(text[: 4 * _DETAIL_CHARACTERS].split())
    return "".join(char if char.isprintable() else "?" for char in line)[:_DETAIL_CHARACTERS]


def _known_code(code: object) -> object:
    """A failure of an unknown kind may have had any effect."""
    return code if code in get_args(ErrorCode) else "unknown"


def _known_level(level: object) -> object:
    known = str(level).upper()
    return known if known in {"DEBUG", "INFO", "WARNING", "ERROR"} else "INFO"


StateName = Literal[
    "need_pairing", "connecting", "open", "backoff", "logged_out", "replaced", "banned"
]
Method = Literal["send", "download", "typing", "read"]
ErrorCode = Literal["later", "unknown", "refused"]
Pair = Literal["none", "qr", "code"]
Fields = Mapping[str, object]
_Line = Annotated[str, AfterValidator(_clean_line)]
_Seconds = Annotated[float, Field(ge=0, lt=1e9)]


class Garbage(NanobotError):
    """A line that does not follow the protocol."""


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Me:
    """The linked account: `number` and `lid` are JIDs without a device; either may be empty while
    it is unknown."""

    number: str = ""
    lid: str = ""
    name: _Line = ""

    @property
    def ids(self) -> frozenset[str]:
        """The known ids of the account, which are no JIDs (see `nanobot_whatsapp.people`)."""
        return frozenset(id_of(jid) for jid in (self.number, self.lid) if jid)


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Hello:
    """What the helper is; its first line."""

    protocol: int
    bridge: str = ""
    baileys: str = ""
    node: str = ""
    pid: int = 0


@dataclass(frozen=True, slots=True, config=_CONFIG)
class State:
    """The state of the connection with WhatsApp. `retry_in` is in seconds, None if nothing is tried
    automatically; `me` is None before an account is linked."""

    state: StateName
    detail: _Line = ""
    retry_in: _Seconds | None = None
    me: Me | None = None


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Qr:
    """The content of the QR code to scan; the next one replaces it."""

    data: str = ""


@dataclass(frozen=True, slots=True, config=_CONFIG)
class PairCode:
    """The code to type into the phone."""

    code: str = ""


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Identity:
    """Two ids of the same person, as full JIDs."""

    lid: str = ""
    number: str = ""


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Event:
    """Something from the spool, to be confirmed. `body` is as it came; see `inbound.read`."""

    seq: int
    body: dict[str, Any]


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Failure:
    """Why a request failed. `retry_after` is in seconds, 0.0 if none was given."""

    code: Annotated[ErrorCode, BeforeValidator(_known_code)] = "unknown"
    message: _Line = ""
    retry_after: _Seconds = 0.0


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Answer:
    """The answer to a request: `data`, or a `failure`."""

    id: int
    data: dict[str, Any] = field(default_factory=dict)
    failure: Failure | None = None


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Pong:
    """The answer to a ping."""

    id: int


@dataclass(frozen=True, slots=True, config=_CONFIG)
class Log:
    """A line for the log. `level` is the name of a level in upper case."""

    level: Annotated[str, BeforeValidator(_known_level)] = "INFO"
    message: _Line = ""


Change = State | Qr | PairCode | Identity
"""News of the connection and its account."""

FromHelper = Hello | Change | Event | Answer | Pong | Log


@dataclass(frozen=True, slots=True, config=_CONFIG)
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
    """What the helper said; None for a type that this version does not know. Raises `Garbage`."""
    try:
        fields = document_of(line)
    except ValueError as error:
        raise Garbage(f"a line is not JSON: {type(error).__name__}") from None
    kind = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(fields, dict) or not isinstance(kind, str):
        raise Garbage("a line is not an object with a type")
    if kind not in _KINDS:
        return None
    try:
        return _KINDS[kind](**_reshaped(kind, fields))
    except TypeError:  # a name that no field can have
        raise Garbage(f"a {kind} with an unexpected field") from None
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        raise Garbage(f"a {kind} with an unexpected {where}") from None


def _reshaped(kind: str, fields: dict[str, Any]) -> dict[str, Any]:
    """The fields by the names that they have here; what is null is left out."""
    match kind:
        case "event":
            body = fields.get("event")
            return {"seq": fields.get("seq"), "body": body if isinstance(body, dict) else {}}
        case "reply" if fields.get("ok") is True:
            data = fields.get("data")
            return {"id": fields.get("id"), "data": data if isinstance(data, dict) else {}}
        case "reply":
            return {"id": fields.get("id"), "failure": Failure(**_given(fields.get("error")))}
        case "state" if isinstance(fields.get("me"), dict):
            me = _given(fields["me"])
            return {**_given(fields), "me": Me(**me) if me else None}
    return _given(fields)


def _given(value: object) -> dict[str, Any]:
    fields = value if isinstance(value, dict) else {}
    return {name: value for name, value in fields.items() if value is not None}


_KINDS: Mapping[str, Callable[..., FromHelper]] = {
    "hello": Hello, "state": State, "qr": Qr, "pair_code": PairCode, "identity": Identity,
    "event": Event, "reply": Answer, "pong": Pong, "log": Log,
}  # fmt: skip
