"""The values of `FakeGraphAPI`: requests, and messages as people see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class Upload:
    """A file of the business or of a person."""

    name: str
    mime: str
    content: bytes


@dataclass(frozen=True, slots=True)
class Call:
    """A request of the business.

    `operation` is "messages", "read" (which shows typing as well), "upload", "media" (asks for the
    address of a file), "file" (downloads it) or "number" (asks about the phone number). `fields`
    are the body, or the query if there is no body."""

    operation: str
    fields: Mapping[str, object] = field(default_factory=dict)
    file: Upload | None = None

    @property
    def person(self) -> str:
        """The number in digits, or the user id, of the recipient, or ""."""
        to = self.fields.get("to") or self.fields.get("recipient")
        return to.removeprefix("+") if isinstance(to, str) else ""

    def text(self, name: str) -> str:
        """Return the field `name`, or "" if it is missing."""
        value = self.fields.get(name)
        return value if isinstance(value, str) else ""


@dataclass(frozen=True, slots=True)
class Button:
    """A button under a message, or a row of its list. `id` comes back when it is pressed."""

    id: str
    label: str


@dataclass(frozen=True, slots=True)
class Sent:
    """A message of the business as the person sees it.

    `kind` is "text", "interactive", "image", "audio", "video", "document" or "sticker". `text` is
    the caption if there is a file. `listed`: its buttons are rows of a list. `reply_to` is the
    answered message, or ""."""

    id: str
    person: str
    kind: str
    text: str
    file: Upload | None = None
    buttons: tuple[Button, ...] = ()
    listed: bool = False
    reply_to: str = ""

    @property
    def labels(self) -> tuple[str, ...]:
        """The labels of its buttons."""
        return tuple(button.label for button in self.buttons)


@dataclass(frozen=True, slots=True)
class Violation:
    """A request that the API rejects in any state of the world."""

    call: Call
    description: str

    def __str__(self) -> str:
        return f"{self.call.operation}: {self.description}"


class Refusal(Exception):
    """The answer is the error `code` of the Graph API. `http` replaces its usual status."""

    def __init__(self, code: int, details: str = "", *, http: int = 0, subcode: int = 0) -> None:
        super().__init__(f"{code}: {details}")
        self.code = code
        self.details = details
        self.http = http
        self.subcode = subcode


def as_object(value: object) -> Json:
    """Return `value` if it is a JSON object, otherwise an empty one."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> tuple[Json, ...]:
    """Return the objects in `value` if it is a JSON array."""
    return tuple(one for one in value if isinstance(one, dict)) if isinstance(value, list) else ()


def string(value: object) -> str:
    """Return `value` if it is a string, otherwise ""."""
    return value if isinstance(value, str) else ""
