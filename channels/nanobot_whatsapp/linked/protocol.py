"""What the daemon and the helper say to each other: version 1 of the bridge's protocol.

JSON in UTF-8, one object per line, a line of at most `MAX_LINE` bytes with its end. Here are the
values; `parsing` makes them of what the helper says, and `lines` is what we say. The whole protocol
stands in docs/channels/whatsapp-bridge.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from nanobot.errors import NanobotError
from nanobot_whatsapp.ids import id_of

PROTOCOL = 1
MAX_LINE = 1024 * 1024
WINDOW = 64
"""How many events the helper may send that are not confirmed yet."""

StateName = Literal[
    "need_pairing", "connecting", "open", "backoff", "logged_out", "replaced", "banned"
]
Method = Literal["send", "download", "typing", "read"]
ErrorCode = Literal["later", "unknown", "refused"]
Pair = Literal["none", "qr", "code"]


class Garbage(NanobotError):
    """A line that is none of the protocol."""


@dataclass(frozen=True, slots=True)
class Me:
    """The account that is linked: `number` and `lid` are JIDs without a device; either may be
    empty where it is not known yet."""

    number: str = ""
    lid: str = ""
    name: str = ""

    @property
    def ids(self) -> frozenset[str]:
        """The account's ids, as far as they are known, without what makes them JIDs."""
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
    """How the connection with WhatsApp is. `retry_in` is in seconds, None where nothing is tried
    by itself; `me` is None before an account is linked."""

    state: StateName
    detail: str = ""
    retry_in: float | None = None
    me: Me | None = None


@dataclass(frozen=True, slots=True)
class Qr:
    """What the QR code to scan holds; the next one replaces it."""

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
    """Something from the spool, to be confirmed. `body` is as it came: `events.read` reads it."""

    seq: int
    body: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a request failed. `retry_after` is in seconds, 0.0 where none was given."""

    code: ErrorCode
    message: str
    retry_after: float = 0.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a request: `data`, or a `failure`."""

    id: int
    data: Mapping[str, object] = field(default_factory=dict)
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
"""What becomes known of the connection and its account."""

Said = Hello | Change | Event | Answer | Pong | Log


@dataclass(frozen=True, slots=True)
class Welcome:
    """How the helper is to work. `pair` says whether it may link an account where none is linked
    (`none`: it says `need_pairing` and waits); `number`, in digits, is for `code`. `read_receipts`:
    it may tell senders what was read; `online`: it shows as online while it is connected."""

    pair: Pair = "none"
    number: str = ""
    read_receipts: bool = True
    online: bool = False
