"""What a call of Meta's webhook can say: values."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from nanobot_whatsapp.values import Heard


@dataclass(frozen=True, slots=True)
class Said:
    """Someone said something. `button` is the id of the button that said it, as far as it was one;
    the text is then what stood on it."""

    heard: Heard
    button: str = ""


@dataclass(frozen=True, slots=True)
class Moved:
    """Someone has another number, or another user id: `old` became `new`."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Status:
    """What became of message `id` of ours, sent to `person`. `code` and `reason` are those of an
    error, 0 and empty for none."""

    id: str
    state: str
    person: str
    at: datetime
    code: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Remark:
    """Something for the log alone; `grave`: it may need a person."""

    text: str
    grave: bool = False


@dataclass(frozen=True, slots=True)
class Account:
    """What Meta decided about the business account or its number, for the owner. `over`: what it
    decided before holds no longer."""

    text: str
    over: bool = False


@dataclass(frozen=True, slots=True)
class Broken:
    """Something that cannot be read, and why."""

    raw: object
    reason: str


Item = Said | Moved | Status | Remark | Account | Broken
