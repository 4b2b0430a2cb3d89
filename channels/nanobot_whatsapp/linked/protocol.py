"""The messages between the daemon and the helper: version 1 of the bridge's protocol.

JSON in UTF-8, one object per line, with at most `MAX_LINE` bytes including its newline. `parse`
reads the helper's lines. `encode`, `welcome_line` and `request_line` create ours.
channels/nanobot_whatsapp/bridge/README.md documents the protocol."""

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
"""The number of unconfirmed events that the helper may send."""
_DETAIL_CHARACTERS = 500

StateName = Literal[
    "need_pairing", "connecting", "open", "backoff", "logged_out", "replaced", "banned"
]
Method = Literal["send", "download", "typing", "read"]
Pair = Literal["none", "qr", "code"]
_Seconds = Annotated[float, Meta(ge=0, lt=1e9)]


class Words(str):
    """A text of the helper that only people read: one line, without terminal control codes."""

    __slots__ = ()

    def __new__(cls, text: str = "") -> Words:
        line = " ".join(text[: 4 * _DETAIL_CHARACTERS].split())
        shown = "".join(char if char.isprintable() else "?" for char in line)
        return super().__new__(cls, shown[:_DETAIL_CHARACTERS])


class ProtocolViolation(NanobotError):
    """A line that does not follow the protocol."""


class Me(Struct, frozen=True):
    """The linked account. `number` and `lid` are JIDs without a device, and empty while unknown."""

    number: str = ""
    lid: str = ""
    name: str = ""

    @property
    def ids(self) -> frozenset[str]:
        """The known ids of the account, not as JIDs (see `nanobot_whatsapp.people`)."""
        return frozenset(id_of(jid) for jid in (self.number, self.lid) if jid)


class Hello(Struct, frozen=True, tag_field="type", tag="hello"):
    """The helper's first line, with its versions."""

    protocol: int
    bridge: str = ""
    baileys: str = ""
    node: str = ""
    pid: int = 0


class State(Struct, frozen=True, tag_field="type", tag="state"):
    """The state of the connection with WhatsApp. `retry_in` is in seconds, or None without
    automatic retries. `me` is None before an account is linked."""

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
    """An event of the spool, to be confirmed. `event` is raw; see `inbound.read`."""

    seq: int
    event: Any


class Failure(Struct, frozen=True):
    """The reason of a failed request. `retry_after` is in seconds, or 0.0."""

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
"""A change of the connection or its account."""

FromHelper = Hello | Change | Event | Answer | Pong | Log
_TYPES = {"hello", "state", "qr", "pair_code", "identity", "event", "reply", "pong", "log"}


class Welcome(Struct, frozen=True):
    """The helper's instructions. `pair`: the way it may link an account, if necessary (with `none`
    it reports `need_pairing` and waits). `number`, in digits, is for `code`. `read_receipts`: it
    may send them. `online`: it shows as online while it is connected."""

    pair: Pair = "none"
    number: str = ""
    read_receipts: bool = True
    online: bool = False


def encode(kind: str, **fields: object) -> bytes:
    """Return a line for the helper."""
    line = {"type": kind, **fields}
    return json.dumps(line, separators=(",", ":")).encode("ascii") + b"\n"


def welcome_line(welcome: Welcome) -> bytes:
    """Return the answer to `hello`."""
    return encode("welcome", protocol=PROTOCOL, **asdict(welcome))


def request_line(number: int, method: Method, params: Mapping[str, object]) -> bytes:
    """Return a request. Raises `ProtocolViolation` if it exceeds the line limit."""
    line = encode("request", id=number, method=method, params=params)
    if len(line) > MAX_LINE:
        raise ProtocolViolation(f"a request to {method} is longer than {MAX_LINE:,} bytes")
    return line


def parse(line: bytes) -> FromHelper | None:
    """Parse a line of the helper, or return None for an unknown type. Raises
    `ProtocolViolation`."""
    try:
        # A line is bounded. If a sender's text could get it rejected, it would be resent forever.
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
    except ValidationError:  # its text may contain the sender's words
        raise ProtocolViolation(f"a {kind} with an unexpected value") from None
    return said
