"""What the daemon and the helper exchange: version 1 of the bridge's protocol.

JSON in UTF-8, one object per line, a line of at most `MAX_LINE` bytes with its end. `parse` reads
what the helper sends; `encode`, `welcome_line` and `request_line` make what we send. The protocol
is documented in channels/nanobot_whatsapp/bridge/README.md.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct, ValidationError, convert
from msgspec.structs import asdict

from nanobot.errors import NanobotError
from nanobot.parsing import parse_json
from nanobot_whatsapp.people import id_of

PROTOCOL = 1
MAX_LINE = 1024 * 1024
WINDOW = 64
"""How many unconfirmed events the helper may send."""
_DETAIL_CHARACTERS = 500

StateName = Literal[
    "need_pairing", "connecting", "open", "backoff", "logged_out", "replaced", "banned"
]
Method = Literal["send", "download", "typing", "read"]
Pair = Literal["none", "qr", "code"]
_Seconds = Annotated[float, Meta(ge=0, lt=1e9)]


class Words(str):
    """A text of the helper's that only people read: one line, without terminal control codes."""

    __slots__ = ()

    def __new__(cls, text: str = "") -> Words:
        line = " ".join(text[: 4 * _DETAIL_CHARACTERS].split())
        shown = "".join(char if char.isprintable() else "?" for char in line)
        return super().__new__(cls, shown[:_DETAIL_CHARACTERS])


class ProtocolViolation(NanobotError):
    """A line that does not follow the protocol."""


class Me(Struct, frozen=True):
    """The linked account: `number` and `lid` are JIDs without a device; either may be empty while
    it is unknown."""

    number: str = ""
    lid: str = ""
    name: str = ""

    @property
    def ids(self) -> frozenset[str]:
        """The known ids of the account, which are no JIDs (see `nanobot_whatsapp.people`)."""
        return frozenset(id_of(jid) for jid in (self.number, self.lid) if jid)


class Hello(Struct, frozen=True, tag_field="type", tag="hello"):
    """What the helper is; its first line."""

    protocol: int
    bridge: str = ""
    baileys: str = ""
    node: str = ""
    pid: int = 0


class State(Struct, frozen=True, tag_field="type", tag="state"):
    """The state of the connection with WhatsApp. `retry_in` is in seconds, None if nothing is tried
    automatically; `me` is None before an account is linked."""

    state: StateName
    detail: Words = Words()
    retry_in: _Seconds | None = None
    me: Me | None = None


class Qr(Struct, frozen=True, tag_field="type", tag="qr"):
    """The content of the QR code to scan; the next one replaces it."""

    data: str


class PairCode(Struct, frozen=True, tag_field="type", tag="pair_code"):
    """The code to type into the phone."""

    code: str


class Identity(Struct, frozen=True, tag_field="type", tag="identity"):
    """Two ids of the same person, as full JIDs."""

    lid: str
    number: str


class Event(Struct, frozen=True, tag_field="type", tag="event"):
    """Something from the spool, to be confirmed. `event` is as it came; see `inbound.read`."""

    seq: int
    event: Any


class Failure(Struct, frozen=True):
    """Why a request failed. `retry_after` is in seconds, 0.0 if none was given."""

    code: Literal["later", "unknown", "refused"]
    message: Words = Words()
    retry_after: _Seconds = 0.0


class Answer(Struct, frozen=True, tag_field="type", tag="reply"):
    """The answer to a request: `data`, or an `error`."""

    id: int
    ok: bool
    data: Mapping[str, Any] = {}
    error: Failure | None = None


class Pong(Struct, frozen=True, tag_field="type", tag="pong"):
    """The answer to a ping."""

    id: int


class Log(Struct, frozen=True, tag_field="type", tag="log"):
    """A line for the log."""

    level: Literal["debug", "info", "warning", "error"]
    message: Words


Change = State | Qr | PairCode | Identity
"""News of the connection and its account."""

FromHelper = Hello | Change | Event | Answer | Pong | Log
_TYPES = {"hello", "state", "qr", "pair_code", "identity", "event", "reply", "pong", "log"}


class Welcome(Struct, frozen=True):
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


def request_line(number: int, method: Method, params: Mapping[str, object]) -> bytes:
    """A request. Raises `ProtocolViolation` if it is longer than a line may be."""
    line = encode("request", id=number, method=method, params=params)
    if len(line) > MAX_LINE:
        raise ProtocolViolation(f"a request to {method} is longer than {MAX_LINE:,} bytes")
    return line


def parse(line: bytes) -> FromHelper | None:
    """What the helper said; None for a type that this version does not know. Raises
    `ProtocolViolation`."""
    try:
        # A line is bounded. Refused by what somebody wrote, it would come again for ever.
        fields = parse_json(line, most=len(line))
    except ValueError as error:
        raise ProtocolViolation(f"a line is not JSON: {type(error).__name__}") from None
    kind = fields.get("type") if isinstance(fields, dict) else None
    if not isinstance(kind, str):
        raise ProtocolViolation("a line is not an object with a type")
    if kind not in _TYPES:
        return None
    try:
        said: FromHelper = convert(fields, FromHelper, dec_hook=lambda words, text: words(text))
    except ValidationError:  # its text may repeat a value, which may be what somebody wrote
        raise ProtocolViolation(f"a {kind} with an unexpected value") from None
    return said
